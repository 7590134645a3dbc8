defmodule Postern.Telemetry do
  @moduledoc """
  Events of served calls, in the manner of the `telemetry` package: each has a name, measurements
  and metadata, and calls the functions that are attached to it, in the process where it happens.

  | event | measurements | metadata |
  | --- | --- | --- |
  | `[:postern, :call, :stop]` | `duration` till the answer, native time units | `server`, `names` |
  | `[:postern, :call, :exception]` | `duration` | the same, `kind`, `reason`, `stacktrace` |
  | `[:postern, :server, :start]` | `system_time` | `server`, `names` |
  | `[:postern, :compilation]` | `eval_time`, `compile_time`, `total_time` in us | `key` |

  The last one is of `Postern.Defn`, and an event of the package `telemetry` too where that is
  loaded: how long a function, the `key`, was traced, and its program loaded.

  A call is told of where it is answered, and what it is answered with: a result that does not fit,
  a time that is over and an answer that comes too late for its run are failures. The end of a
  process that was to answer is told for `processes: :each`.

  A function that raises is detached, and a warning is logged.
  """
  require Logger

  @key {__MODULE__, :handlers}

  @doc false
  def start, do: :persistent_term.put(@key, [])

  @doc "Attaches `function.(event, measurements, metadata, config)` to these events."
  def attach(id, events, function, config \\ nil)
      when is_list(events) and is_function(function, 4) do
    change(fn handlers ->
      if List.keymember?(handlers, id, 0),
        do: {{:error, :already_exists}, handlers},
        else: {:ok, [{id, events, function, config} | handlers]}
    end)
  end

  @doc "Detaches it."
  def detach(id) do
    change(fn handlers ->
      if List.keymember?(handlers, id, 0),
        do: {:ok, List.keydelete(handlers, id, 0)},
        else: {{:error, :not_found}, handlers}
    end)
  end

  @doc false
  # Whether anybody listens; what has to be measured is asked only then.
  def attached?, do: :persistent_term.get(@key, []) != []

  @doc false
  def execute(event, measurements, metadata) do
    for {id, events, function, config} <- :persistent_term.get(@key, []), event in events do
      try do
        function.(event, measurements, metadata, config)
      catch
        kind, reason ->
          detach(id)
          text = Exception.format(kind, reason, __STACKTRACE__)
          Logger.warning("the telemetry handler #{inspect(id)} failed and was detached: " <> text)
      end
    end

    :ok
  end

  @doc false
  # What a request has to be told by.
  def watch(names) do
    if attached?(), do: {System.monotonic_time(), %{server: self(), names: names}}
  end

  @doc false
  # As it was answered: :ok, :held, what the native part refused, or {kind, reason, stacktrace}.
  def answered({began, metadata}, outcome) do
    measured = %{duration: System.monotonic_time() - began}

    case outcome do
      {:error, _, _, _} = refused ->
        {:error, error} = Postern.Error.from_nif(refused)
        failed(measured, metadata, {:error, error, []})

      {_, _, _} = failure ->
        failed(measured, metadata, failure)

      _ ->
        execute([:postern, :call, :stop], measured, metadata)
    end
  end

  defp failed(measured, metadata, {kind, reason, stacktrace}) do
    more = %{kind: kind, reason: reason, stacktrace: stacktrace}
    execute([:postern, :call, :exception], measured, Map.merge(metadata, more))
  end

  defp change(act) do
    :global.trans(
      {@key, self()},
      fn ->
        {answer, handlers} = act.(:persistent_term.get(@key, []))
        :persistent_term.put(@key, handlers)
        answer
      end,
      [node()]
    )
  end
end
