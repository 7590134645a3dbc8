defmodule Postern.Defn.Cache do
  @moduledoc false
  # Compiled programs by what they were compiled of; the oldest go when there are too many.
  @limit 512

  def start do
    :ets.new(__MODULE__, [:named_table, :public, read_concurrency: true])
    :ets.new(:postern_defn_ages, [:named_table, :public, :ordered_set])
  end

  @doc """
  What is there, behind `found`, or what `make` gives. Two that come at once may both make it.
  """
  def fetch(key, make, found \\ fn -> :ok end) do
    case :ets.lookup(__MODULE__, key) do
      [{_, compiled}] ->
        found.()
        compiled

      [] ->
        compiled = make.()
        if :ets.insert_new(__MODULE__, {key, compiled}), do: remember(key)
        compiled
    end
  end

  def size, do: :ets.info(__MODULE__, :size)

  @doc "Forgets all."
  def clear do
    :ets.delete_all_objects(:postern_defn_ages)
    :ets.delete_all_objects(__MODULE__)
    :ok
  end

  defp remember(key) do
    :ets.insert(:postern_defn_ages, {:erlang.unique_integer([:monotonic]), key})
    if size() > @limit, do: forget(:ets.first(:postern_defn_ages))
  end

  defp forget(:"$end_of_table"), do: :ok

  defp forget(age) do
    for {_, key} <- :ets.take(:postern_defn_ages, age), do: :ets.delete(__MODULE__, key)
  end
end
