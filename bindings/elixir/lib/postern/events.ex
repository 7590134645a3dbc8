defmodule Postern.Events do
  @moduledoc false
  # Taps and hooks as a stream, served by the process that consumes it.
  alias Postern.{Error, Nif, Request, Run}

  @all :erlang.bsl(1, 62)

  def stream(names, start) do
    Stream.resource(fn -> start(names, start) end, &next/1, &stop/1)
  end

  defp start(names, start) do
    ref = make_ref()
    {:ok, bridge} = Nif.bridge_new(ref)

    try do
      for name <- names, do: serve!(bridge, name)
      events = %{bridge: bridge, ref: ref, run: nil, shown: nil, ended: nil}

      case start && start.() do
        nil -> events
        {:ok, run} -> %{events | run: run}
        {:error, error} -> %{events | ended: {:error, error}}
      end
    catch
      # Stream.resource stops only what has started.
      kind, reason ->
        close(bridge, ref)
        :erlang.raise(kind, reason, __STACKTRACE__)
    end
  end

  defp serve!(bridge, name) do
    with {:error, _, _, _} = error <- Nif.bridge_serve(bridge, name, false) do
      {:error, error} = Error.from_nif(error)
      raise error
    end
  end

  # The program waits in an event until the next one is asked for.
  defp next(%{shown: nil} = events) do
    # Operands are copied: what is made of a stream is often a list.
    case Nif.bridge_next(events.bridge, @all) do
      {:ok, handle, operands} ->
        info = Request.info(%Request{handle: handle, operands: operands})
        {[Map.put(info, :operands, operands)], %{events | shown: handle}}

      :wait ->
        wait(events)

      {:error, _, _, _} ->
        {:halt, events}
    end
  end

  defp next(%{shown: handle} = events) do
    Request.reply(handle, :filled)
    next(%{events | shown: nil})
  end

  defp wait(%{ended: :told} = events), do: {:halt, events}
  # What the run has left was taken before.
  defp wait(%{ended: {_, _} = ended} = events), do: {[ended], %{events | ended: :told}}

  defp wait(%{ref: ref, run: nil} = events) do
    receive do
      {:postern_ready, ^ref} -> next(events)
    end
  end

  defp wait(%{ref: ref, run: %Run{ref: run_ref, print: print} = run} = events) do
    receive do
      {:postern_ready, ^ref} ->
        next(events)

      {:postern_print, ^run_ref, text} when is_function(print) ->
        print.(text)
        wait(events)

      {:postern_ended, ^run_ref} ->
        next(%{events | ended: Postern.await(run)})
    end
  end

  defp stop(%{bridge: bridge, shown: shown, ref: ref, run: run, ended: ended}) do
    if run && !ended, do: Postern.cancel(run) && Postern.await(run)
    if shown, do: Request.reply(shown, :filled)
    close(bridge, ref)
  end

  defp close(bridge, ref) do
    Nif.bridge_end(bridge)
    forget(ref)
  end

  defp forget(ref) do
    receive do
      {:postern_ready, ^ref} -> forget(ref)
    after
      0 -> :ok
    end
  end
end
