# A line through points: `mix run -e Fit.run`. Each loss is told to a process while XLA computes.
defmodule Fit do
  import Nx.Defn

  defn step({w, b}, x, y) do
    {loss, {dw, db}} = value_and_grad({w, b}, fn {w, b} -> Nx.mean(Nx.pow(w * x + b - y, 2)) end)

    {_, w, b} = io_call({loss, w - 0.1 * dw, b - 0.1 * db}, :loss)
    {w, b}
  end

  def run do
    x = Nx.linspace(-1, 1, n: 64)
    step = Nx.Defn.jit(&step/3, compiler: Postern.Defn, hooks: %{loss: &show/1})
    Enum.reduce(1..50, {0.0, 0.0}, fn _, line -> step.(line, x, Nx.add(Nx.multiply(x, 3), 1)) end)
  end

  defp show({loss, _, _}), do: IO.puts("loss #{Nx.to_number(loss)}")
end
