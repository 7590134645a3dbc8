defmodule Postern.BlocksTest do
  use Postern.Case, async: false
  alias Postern.{Blocks, Lower}

  defmodule Scale do
    defstruct [:by]
  end

  setup do: on_exit(fn -> Postern.restore_block(Scale) end)

  defp node(op, args) do
    %{type: {:f, 32}, shape: {2}, data: %{id: make_ref(), op: op, args: args}}
  end

  # A block whose own is the double of its operand.
  defp block(by) do
    parameter = node(:parameter, [0])

    node(:block, [
      %Scale{by: by},
      [node(:parameter, [0])],
      node(:add, [parameter, parameter]),
      nil
    ])
  end

  defp lowered(by), do: Lower.program(block(by), block: &Blocks.choose/3)

  defp run(lowered, functions \\ %{}) do
    {:ok, program} = Postern.load_text(lowered.text)
    {:ok, [y]} = Postern.run(program, [[1, 2]], functions: functions)
    Tensor.to_list(y)
  end

  test "a block is its own, until it is overridden, and again afterwards" do
    assert run(lowered(3)) == [2.0, 4.0]
    Postern.override_block(Scale, host: fn _, x -> x end)
    lowered = lowered(3)
    assert [%{kind: :block, struct: %Scale{by: 3}} = site] = lowered.sites
    scale = fn [x] -> for n <- Tensor.to_list(x), do: n * site.struct.by end
    assert run(lowered, %{Lower.site_name(site, 0) => scale}) == [3.0, 6.0]
    Postern.restore_block(Scale)
    assert run(lowered(3)) == [2.0, 4.0]
  end

  test "the last override that fits counts" do
    Postern.override_block(Scale, kernel: "first", types: [{:f, 64}])
    fits = fn scale, [x], [y] -> scale.by > 3 and x.type == {:f, 32} and y.shape == {2} end
    attributes = fn scale -> [{"by", "#{scale.by} : i64"}] end
    layouts = "[dense<[0]> : tensor<1xindex>]"

    Postern.override_block(Scale,
      kernel: "second",
      when: fits,
      attributes: attributes,
      operand_layouts: layouts,
      side_effect: true
    )

    assert lowered(3).text =~ "@\"first\""
    assert lowered(3).text =~ ": (tensor<2xf64>) -> (tensor<2xf32>)"
    text = lowered(4).text
    assert text =~ "@\"second\""
    assert text =~ "by = 4 : i64"
    assert text =~ "operand_layouts = " <> layouts
    assert text =~ "has_side_effect = true"
  end

  test "what is no override is refused" do
    for options <- [[], [kernel: "a", host: fn _, x -> x end], [kernel: "a", platform: :cuda]] do
      assert_raise ArgumentError, fn -> Postern.override_block(Scale, options) end
    end

    assert_raise ArgumentError, fn -> Postern.override_block(Scale, kernels: "a") end
  end

  test "a library that is not there is an error" do
    assert {:error, %Error{message: text}} = Postern.load_library("/nowhere/kernels.so")
    assert text =~ "/nowhere/kernels.so"
  end
end
