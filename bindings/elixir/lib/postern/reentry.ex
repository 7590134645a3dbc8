defmodule Postern.Reentry do
  @moduledoc false
  # What a process serves, and whether it is inside of it: so that it does not wait for itself.
  alias Postern.{Error, Nif}

  @bridges :"$postern_bridges"
  @inside :"$postern_inside"

  def serves(bridge), do: Process.put(@bridges, [bridge | Process.get(@bridges, [])])
  def serves_no_more(bridge), do: Process.put(@bridges, List.delete(served(), bridge))

  @doc "Around a function of ours that a program waits for."
  def enter, do: Process.put(@inside, Process.get(@inside, 0) + 1)
  def leave, do: Process.put(@inside, Process.get(@inside, 1) - 1)
  def inside?, do: Process.get(@inside, 0) > 0

  @doc "Whether this process may wait without a limit for a program that calls these functions."
  def check(functions) do
    own = for bridge <- served(), name <- functions, Nif.bridge_serves(bridge, name), do: name

    if own == [] do
      :ok
    else
      text =
        "the program calls #{Enum.map_join(own, ", ", &inspect/1)}, which the process that " <>
          "waits for it answers itself: serve with processes: :each, or wait with a limit"

      {:error, %Error{code: :reentry, message: text}}
    end
  end

  @doc "Whether this process may wait for all runs."
  def check_barrier do
    if inside?() do
      text = "barrier inside a served function, or an event, would wait for the run that calls it"
      {:error, %Error{code: :reentry, message: text}}
    else
      :ok
    end
  end

  defp served, do: Process.get(@bridges, [])
end
