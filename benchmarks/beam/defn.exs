# defn.exs: a `defn` by Postern.Defn beside Nx.Defn.Evaluator, one JSON line each. Needs Nx.
for application <- [:nx, :postern], do: {:ok, _} = Application.ensure_all_started(application)

defmodule Programs do
  import Nx.Defn

  def next(x, _options), do: Nx.add(x, 1)

  defn called(x) do
    while x, x < 10_000 do
      Nx.runtime_call(x, x, &next/2)
    end
  end

  def echo do
    receive do: (from -> send(from, :pong))
    echo()
  end

  defn(small(x, y), do: Nx.sin(x) * y + 1)

  defn shown(x) do
    while x, x < 1000 do
      io_call(x + 1, :step)
    end
  end

  defn step({w1, w2}, x, y) do
    {loss, {d1, d2}} =
      value_and_grad({w1, w2}, fn {w1, w2} ->
        Nx.mean(Nx.pow(Nx.dot(Nx.tanh(Nx.dot(x, w1)), w2) - y, 2))
      end)

    {loss, {w1 - 0.01 * d1, w2 - 0.01 * d2}}
  end
end

defmodule Side do
  # The median of so many; the first one compiles.
  def median(fun, times) do
    fun.()
    all = for _ <- 1..times, do: elem(:timer.tc(fun), 0)
    Enum.at(Enum.sort(all), div(times, 2))
  end

  def line(name, value, unit, peer_value, note, peer \\ "Evaluator") do
    IO.puts(
      ~s({"name": "beam/#{name}", "value": #{value}, "unit": "#{unit}", "peer": "#{peer}", ) <>
        ~s("peer_value": #{peer_value}, "ratio": #{value / peer_value}, "note": "#{note}"})
    )
  end

  def row(name, fun, arguments, {unit, per}, options, times, note) do
    [ours, theirs] =
      for compiler <- [Postern.Defn, Nx.Defn.Evaluator] do
        run = Nx.Defn.jit(fun, [compiler: compiler] ++ options)
        median(fn -> apply(run, arguments) end, times) / per
      end

    line(name, ours, unit, theirs, note)
  end
end

uniform = fn seed, shape ->
  elem(Nx.Random.uniform(Nx.Random.key(seed), shape: shape), 0) |> Nx.backend_copy()
end

# The longest that a message between two processes takes, of 99 in 100, while `busy` goes on.
latency = fn busy ->
  echo = spawn(fn -> Programs.echo() end)
  work = Task.async(busy)

  ping = fn ->
    send(echo, self())
    receive do: (:pong -> :ok)
  end

  times =
    Stream.repeatedly(fn -> elem(:timer.tc(ping), 0) end)
    |> Enum.take_while(fn _ -> !Task.yield(work, 1) end)
    |> Enum.sort()

  Enum.at(times, div(99 * length(times), 100))
end

zero = Nx.tensor(0)
one = {"us", 1}
note = "one runtime_call in a while of 10000"
Side.row("defn_calls", &Programs.called/1, [zero], {"us", 10_000}, [], 5, note)
note = "one hook of 1000 in a while"
hooks = [hooks: %{step: fn _ -> :ok end}]
Side.row("defn_hooks", &Programs.shown/1, [zero], {"us", 1000}, hooks, 15, note)
pair = [Nx.tensor([1.0, 2.0]), Nx.tensor([3.0, 4.0])]
Side.row("defn_dispatch", &Programs.small/2, pair, one, [], 1001, "two numbers and a sine")
weights = {uniform.(1, {32, 64}), uniform.(2, {64, 1})}
arguments = [weights, uniform.(3, {64, 32}), uniform.(4, {64, 1})]
note = "64 by 32, 64 hidden, its gradient and step"
Side.row("defn_step", &Programs.step/3, arguments, one, [], 15, note)
called = Nx.Defn.jit(&Programs.called/1, compiler: Postern.Defn)
idle = latency.(fn -> Process.sleep(2500) end)

four = fn ->
  1..4 |> Enum.map(fn _ -> Task.async(fn -> called.(zero) end) end) |> Task.await_many(60_000)
end

busy = latency.(four)
note = "99 of 100 messages while four defn call 10000 times each; at most 1000 is the aim"
Side.line("defn_scheduler", busy, "us", max(idle, 1), note, "an idle VM")
System.halt(0)
