defmodule Postern.Events do
  @moduledoc false
  # Taps and hooks as a stream, served by the process that consumes it.
  alias Postern.{Error, Nif, Reentry, Request, Run}

  @all :erlang.bsl(1, 62)
  # Milliseconds that a stream whose run has ended waits for what is still to be delivered.
  @patience 5_000

  def stream(names, start) do
    Stream.resource(fn -> start(names, start) end, &next/1, &stop/1)
  end

  defp start(names, start) do
    ref = make_ref()
    {:ok, bridge} = Nif.bridge_new(ref)
    # Where a queue of asynchronous taps waits for this process, that does not wait for the queue.
    behind = Reentry.in_delivery?()
    events = %{bridge: bridge, ref: ref, run: nil, shown: nil, ended: nil, behind: behind}

    try do
      for name <- names, do: serve!(bridge, name)

      events =
        case start && start.(bridge) do
          nil -> events
          {:ok, run} -> %{events | run: run}
          {:error, error} -> %{events | ended: {:error, error}}
        end

      Reentry.serves(bridge)
      events
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
      {:ok, handle, operands} -> show(%Request{handle: handle, operands: operands}, events)
      :wait -> wait(events)
      {:error, _, _, _} -> over(events)
    end
  end

  defp next(events), do: next(answered(events))

  # The bridge ends behind the run, when its asynchronous taps were shown.
  defp over(%{ended: nil, run: %Run{} = run} = events) do
    tell(%{events | ended: Postern.await(run)})
  end

  defp over(%{ended: {_, _}} = events), do: tell(events)
  defp over(events), do: {:halt, events}

  defp show(request, events) do
    info = Request.info(request)

    case Request.results(request) do
      {:ok, [_ | _]} ->
        text =
          "a stream shows taps and hooks, and answers nothing: #{inspect(info.function)} is " <>
            "called for results, which Postern.serve/3 can give"

        Request.fail(request, %Error{code: :bad_result, message: text})
        next(events)

      _ ->
        Reentry.enter(request.handle)
        {[Map.put(info, :operands, request.operands)], %{events | shown: request}}
    end
  end

  defp answered(%{shown: nil} = events), do: events

  defp answered(%{shown: request} = events) do
    Reentry.leave(request.handle)
    Request.reply(request, :filled)
    %{events | shown: nil}
  end

  defp wait(%{ended: :told} = events), do: {:halt, events}
  # It has not begun.
  defp wait(%{ended: {_, _}, run: nil} = events), do: tell(events)
  defp wait(%{ended: {_, _}, behind: true} = events), do: tell(events)

  defp wait(%{ref: ref, run: nil} = events) do
    receive do
      {:postern_ready, ^ref} -> next(events)
    end
  end

  defp wait(%{ref: ref, run: %Run{ref: run_ref, print: print} = run, ended: ended} = events) do
    receive do
      {:postern_ready, ^ref} ->
        next(events)

      {:postern_print, ^run_ref, text} when is_function(print) ->
        print.(text)
        wait(events)

      {:postern_ended, ^run_ref} ->
        next(%{events | ended: Postern.await(run)})
    after
      # What another program's listener holds up may be held up by this process.
      if(ended, do: @patience, else: :infinity) -> tell(events)
    end
  end

  defp tell(%{ended: ended} = events), do: {[ended], %{events | ended: :told}}

  # Where who prints raises, these are the events as they were before: what was shown may have been
  # answered since, and who prints may raise once more.
  defp stop(%{run: run, ended: ended} = events) do
    if run && !ended do
      Postern.or_abandon(run, fn -> Postern.cancel(run) && Postern.await(run) end)
    end
  after
    answered(events)
    Reentry.serves_no_more(events.bridge)
    close(events.bridge, events.ref)
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
