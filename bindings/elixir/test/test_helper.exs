# The programs that the tests load, saved by a program in C++.
folder = Path.join(System.tmp_dir!(), "postern_elixir_#{System.pid()}")
File.mkdir_p!(folder)
{_, 0} = System.cmd(System.fetch_env!("SAVE_PROGRAMS"), [folder])
Application.put_env(:postern, :test_programs, folder)
# A plug-in whose programs call no functions (`./test --staged`): what needs them is left out.
stages = Path.basename(System.get_env("POSTERN_PLUGIN", "")) == "no_ffi.so"
Application.put_env(:postern, :test_in_stages, stages)

if stages do
  without = "needs a plug-in that calls functions:"
  IO.puts("elixir, decompositions of Nx #{without} LAPACK is custom calls")
  IO.puts("elixir, a thousand calls at once #{without} each stage waits on a thread")
end

ExUnit.start(
  capture_log: true,
  assert_receive_timeout: 60_000,
  timeout: 600_000,
  exclude: if(stages, do: [:no_stages], else: [])
)

ExUnit.after_suite(fn _ ->
  File.rm_rf!(folder)
  # What the tests have made is gone with their processes.
  Postern.Case.eventually(fn -> Postern.Case.alive() == [] end)
end)

defmodule Postern.Case do
  use ExUnit.CaseTemplate

  using do
    quote do
      import Postern.Case
      alias Postern.{Error, Tensor}
    end
  end

  def eventually(condition, left \\ 3000) do
    cond do
      condition.() -> :ok
      left == 0 -> ExUnit.Assertions.flunk("it did not become true")
      true -> Process.sleep(20) && eventually(condition, left - 1)
    end
  end

  @doc "Serves until the test ends."
  def serve!(names, answers, options \\ []) do
    {:ok, server} = Postern.serve(names, answers, options)
    ExUnit.Callbacks.on_exit(fn -> Postern.unserve(server) end)
    server
  end

  def scale(factor), do: fn [x] -> for(n <- Postern.Tensor.to_list(x), do: factor * n) end
  def first(tensor), do: tensor |> Postern.Tensor.to_list() |> List.wrap() |> hd()

  @doc "What a process does that passes on what it gets."
  def forward(to) do
    receive do: (message -> send(to, message))
    forward(to)
  end

  @doc "The native objects that there are after a collection, of each kind."
  def alive do
    for pid <- Process.list(), do: :erlang.garbage_collect(pid)
    for {_, count} = kind <- Postern.Nif.alive(), count != 0, do: kind
  end

  def alive(kind), do: Keyword.get(alive(), kind, 0)

  @doc "The native functions that a process was in on dirty schedulers while `act` ran."
  def dirty(pid, act) do
    :erlang.trace(pid, true, [:running, :scheduler_id])
    act.()
    :erlang.trace(pid, false, [:running])
    ref = :erlang.trace_delivered(pid)
    receive do: ({:trace_delivered, ^pid, ^ref} -> :ok)
    Enum.uniq(traced(pid))
  end

  defp traced(pid) do
    receive do
      {:trace, ^pid, :in, {Postern.Nif, function, _}, 0} -> [function | traced(pid)]
      {:trace, ^pid, _, _, _} -> traced(pid)
    after
      0 -> []
    end
  end

  def program(name) do
    {:ok, program} =
      Postern.load(Path.join(Application.fetch_env!(:postern, :test_programs), name <> ".mlir"))

    program
  end
end
