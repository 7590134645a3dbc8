defmodule Postern.Reentry do
  @moduledoc false
  # What a process serves, and which requests it is inside of: so that it does not wait for itself.
  alias Postern.{Error, Nif}

  @bridges :"$postern_bridges"
  @inside :"$postern_inside"

  def serves(bridge), do: Process.put(@bridges, [bridge | Process.get(@bridges, [])])
  def serves_no_more(bridge), do: Process.put(@bridges, List.delete(served(), bridge))

  @doc "Around a function of ours that answers a request, for which a program or a queue waits."
  def enter(handle), do: Process.put(@inside, [handle | inside()])
  def leave(handle), do: Process.put(@inside, List.delete(inside(), handle))

  @doc "Whether a queue of asynchronous taps waits for this process."
  def in_delivery?, do: Enum.any?(inside(), &asynchronous?/1)

  defp asynchronous?(handle) do
    match?({:ok, {_, _, _, _, _, _, true, _}}, Nif.request_info(handle))
  end

  @doc """
  Whether this process may wait without a limit for a program that calls these functions, and these
  of its own that this process answers in any case.
  """
  def check(functions, own) do
    own =
      own ++ for bridge <- served(), name <- functions, Nif.bridge_serves(bridge, name), do: name

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
    if inside() != [] do
      text = "barrier inside a served function, or an event, would wait for the run that calls it"
      {:error, %Error{code: :reentry, message: text}}
    else
      :ok
    end
  end

  defp inside, do: Process.get(@inside, [])
  defp served, do: Process.get(@bridges, [])
end
