# side.exs FOLDER STEPS STARTED: calls of processes of the BEAM from saved loops of so many calls,
# one JSON line each. Sides take turns, and medians count. STARTED: how many one program has open at
# once.
defmodule Copying do
  @on_load :load
  def load, do: :erlang.load_nif(String.to_charlist(System.fetch_env!("COPYING_NIF")), 0)
  def serve(_name), do: :erlang.nif_error(:nif_not_loaded)
  def reply(_call, _bytes), do: :erlang.nif_error(:nif_not_loaded)

  def start(name, answer) do
    parent = self()

    spawn(fn ->
      :ok = serve(name)
      send(parent, :serving)
      answer_all(answer)
    end)

    receive do: (:serving -> :ok)
  end

  defp answer_all(answer) do
    receive do: ({:call, call, bytes} -> reply(call, answer.(bytes)))
    answer_all(answer)
  end
end

defmodule Side do
  @rounds 15

  def medians(sides) do
    for side <- sides, do: side.()
    rounds = for _ <- 1..@rounds, do: for(side <- sides, do: elem(:timer.tc(side), 0))
    for times <- Enum.zip(rounds), do: Enum.at(Enum.sort(Tuple.to_list(times)), div(@rounds, 2))
  end

  def line(name, value, unit, peer, peer_value, note) do
    ratio = value / peer_value

    IO.puts(
      ~s({"name": "#{name}", "value": #{value}, "unit": "#{unit}", "peer": "#{peer}", ) <>
        ~s("peer_value": #{peer_value}, "ratio": #{ratio}, "note": "#{note}"})
    )
  end

  def load(folder, name) do
    {:ok, program} = Postern.load(Path.join(folder, name))
    program
  end

  # The longest that a message between two processes takes, of 99 in 100, while `busy` goes on.
  def latency(busy) do
    work = Task.async(busy)
    times = pings(spawn(&echo/0), work, [])
    Enum.at(Enum.sort(times), div(99 * length(times), 100))
  end

  defp pings(echo, work, times) do
    times = [elem(:timer.tc(fn -> ping(echo) end), 0) | times]
    if Task.yield(work, 1), do: times, else: pings(echo, work, times)
  end

  # Calls of many runs, all of which are open for a second before the first is answered.
  def hold_all(program, x, runs, started) do
    holder =
      spawn_link(fn ->
        open = for _ <- 1..(runs * started), do: receive(do: ({:postern_call, request} -> request))
        Process.sleep(1000)
        for request <- open, do: :ok = Postern.reply(request, request.operands |> hd())
      end)

    {:ok, server} = Postern.serve("bench.beam.started", holder, owner: nil)
    tasks = for _ <- 1..runs, do: Task.async(fn -> Postern.run!(program, [x]) end)
    Enum.each(tasks, &Task.await(&1, :infinity))
    :ok = Postern.barrier()
    Postern.unserve(server)
  end

  defp ping(echo) do
    send(echo, self())
    receive do: (:pong -> :ok)
  end

  defp echo do
    receive do: (pid -> send(pid, :pong))
    echo()
  end
end

[folder, steps, started] = System.argv()
[steps, started] = for number <- [steps, started], do: String.to_integer(number)
{:ok, _} = Application.ensure_all_started(:postern)
small = Postern.Tensor.new([1.0], :f32)
large = Postern.Tensor.from_binary(:binary.copy(<<0::32>>, 262_144), :f32, {262_144})
copying = "enif_send of a copy, and a condition variable"

{:ok, _} = Postern.serve("bench.beam.0", fn [x] -> x end, owner: nil)
:ok = Copying.start("bench.beam.copying", & &1)
[ours, theirs] = [Side.load(folder, "scalar_0"), Side.load(folder, "scalar_copying")]
run = fn program, x -> fn -> Postern.run!(program, [x]) end end
[trip, other] = Side.medians([run.(ours, small), run.(theirs, small)])
note = "a scalar to a process and back; 12 us is the aim"
Side.line("beam/round_trip", trip / steps, "us", copying, other / steps, note)

{:ok, _} = Postern.serve("bench.beam.look", fn _ -> <<0::32>> end, owner: nil)
:ok = Copying.start("bench.beam.look_copying", fn _ -> <<0::32>> end)
programs = for name <- ["looked_4", "looked", "looked_copying"], do: Side.load(folder, name)

[four, mib, copied] =
  Side.medians(for {p, x} <- Enum.zip(programs, [small, large, large]), do: run.(p, x))

note = "a call that looks at 1 MiB; with 4 bytes #{four / steps} us, 5 % more is the aim"
Side.line("beam/payload", mib / steps, "us", copying, copied / steps, note)

for i <- 1..3, do: {:ok, _} = Postern.serve("bench.beam.#{i}", fn [x] -> x end, owner: nil)
four = for i <- 0..3, do: Side.load(folder, "scalar_#{i}")

together = fn ->
  four
  |> Enum.map(fn program -> Task.async(run.(program, small)) end)
  |> Enum.each(&Task.await(&1, :infinity))
end

[time] = Side.medians([together])
rate = 4 * steps / (time / 1.0e6)
note = "four processes, 100000 is the aim"
Side.line("beam/rate", rate, "per s", "one process", 1.0e6 * steps / trip, note)

idle = Side.latency(fn -> Process.sleep(2500) end)
busy = Side.latency(fn -> for _ <- 1..max(1, div(10_000, 4 * steps)), do: together.() end)
note = "99 of 100 messages between two processes while 4 programs call; at most 1000 is the aim"
Side.line("beam/scheduler", busy, "us", "an idle VM", max(idle, 1), note)

program = Side.load(folder, "started")
runs = div(10_000, started) + 1
open = Side.latency(fn -> Side.hold_all(program, small, runs, started) end)
note = "the same while #{runs * started} calls come, are open at once, and are answered"
Side.line("beam/scheduler_in_flight", open, "us", "an idle VM", max(idle, 1), note)
System.halt(0)
