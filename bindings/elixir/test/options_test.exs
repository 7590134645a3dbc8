defmodule Postern.OptionsTest do
  @moduledoc "Options that there are not."
  use Postern.Case, async: true

  defp refused(options_of) do
    Exception.message(assert_raise ArgumentError, fn -> options_of.() end)
  end

  test "a mistyped option is an error that names it, and those that there are" do
    serve = fn -> Postern.serve("options.none", fn x -> x end, replaces: true) end

    for {act, name, others} <- [
          {fn -> Postern.configure(devices: 2) end, ":devices", ":cache_dir, :cpu_devices"},
          {fn -> Postern.run(program("plain"), [[1]], deadlines: 1) end, ":deadlines", ":hooks"},
          {fn -> Postern.override_block(Any, kernal: "k") end, ":kernal", ":kernel"},
          {fn -> Postern.Lower.program({}, presicion: :high) end, ":presicion", ":precision"},
          {fn -> Postern.Server.start_link(Any, 0, namess: []) end, ":namess", ":names"},
          {fn -> Postern.Backend.init(devise: 1) end, ":devise", ":device"},
          {serve, ":replaces", ":replace"}
        ] do
      text = refused(act)
      assert text =~ "has no option #{name}, it has "
      assert text =~ others
    end
  end

  test "one that is near is told, and only such a one" do
    assert refused(fn -> Postern.override_block(Any, kernal: "k") end) =~ "did you mean :kernel?"
    refute refused(fn -> Postern.override_block(Any, zzz: 1) end) =~ "did you mean"
    assert refused(fn -> Postern.override_block(Any, [:kernel]) end) =~ "are a keyword list"
  end
end
