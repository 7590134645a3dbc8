defmodule Postern.Request do
  @moduledoc """
  A firing of a call, tap or hook that waits for an answer: `Postern.reply/2` or `Postern.fail/2`,
  from any process, once. It fails with `:closed` when nobody has it any more, or when the process
  that was to answer ends.

  `operands` may show the program's own memory (see `Postern.serve/3`): the program goes on when
  they were answered *and* collected. What is to be kept is copied, by `Postern.Tensor.copy/1`.
  """
  alias Postern.{Attributes, Error, Nif, Telemetry, Tensor}

  @enforce_keys [:handle, :operands]
  # Until the answer: `timer` is that of its limit, `watch` what telemetry is told.
  defstruct [:handle, :operands, :timer, :watch]

  @type t :: %__MODULE__{
          handle: reference,
          operands: [Tensor.t()],
          timer: nil | reference,
          watch: nil | {integer, map}
        }

  @doc """
  What fires: `%{function: name, site: name, attributes: map, device: n, run: n, element: n,
  asynchronous: boolean, coordinates: [n]}`. `function` is the name that is served, or that the run
  was given it by; `element` the index in a batch whose elements fire one by one, else -1;
  `asynchronous` says that no program waits for the answer; `coordinates` are the device's place on
  the mesh, by axis, inside of `shard_map`, else `[]`.
  """
  def info(%__MODULE__{handle: handle}) do
    with {:ok, {function, site, attributes, device, run, element, asynchronous, place}} <-
           Nif.request_info(handle) do
      %{
        function: function,
        site: site,
        attributes: Attributes.parse(attributes),
        device: device,
        run: run,
        element: element,
        asynchronous: asynchronous,
        coordinates: place
      }
    else
      error -> Error.from_nif(error)
    end
  end

  @doc false
  # The name alone, at less cost.
  def function(%__MODULE__{handle: handle}) do
    with {:ok, info} <- Nif.request_info(handle), do: elem(info, 0)
  end

  @doc "The types of the results that it wants: `{:ok, [{type, shape}]}`."
  def results(%__MODULE__{handle: handle}), do: Error.from_nif(Nif.request_results(handle))

  @doc """
  Writes iodata into a result's own memory, from a byte on; then `Postern.reply(request, :filled)`.
  """
  def put(%__MODULE__{handle: handle}, result, offset, iodata) do
    Error.from_nif(Nif.request_put(handle, result, offset, iodata))
  end

  @doc "Whether its run was cancelled or has failed, so that nobody waits for the answer."
  def stopped?(%__MODULE__{handle: handle}), do: Nif.request_stopped(handle)

  @doc false
  # A tuple for several results; anything else is the one. What a tap gives is not looked at.
  def reply(%__MODULE__{handle: handle} = request, result) do
    outcome = reply_with(handle, result)
    if answered?(outcome), do: done(request, outcome)
    outcome
  end

  defp reply_with(handle, :filled), do: Nif.request_reply(handle, :filled)
  defp reply_with(handle, results) when is_tuple(results), do: reply_typed(handle, results)
  defp reply_with(handle, result), do: reply_typed(handle, {result})

  defp reply_typed(handle, results) do
    case Nif.request_results(handle) do
      {:ok, []} ->
        Nif.request_reply(handle, [])

      {:ok, types} ->
        # A complex number is a tuple too.
        results = if complex?(types, results), do: {results}, else: results
        results = Tuple.to_list(results)
        types = types ++ List.duplicate({nil, {}}, max(0, length(results) - length(types)))
        tensors = for {result, {type, _}} <- Enum.zip(results, types), do: tensor(result, type)
        Nif.request_reply(handle, tensors)

      error ->
        error
    end
  end

  defp complex?([{type, _}], {re, im}),
    do: type in [:c64, :c128] and is_number(re) and is_number(im)

  defp complex?(_types, _results), do: false

  defp tensor(%Tensor{} = tensor, _type), do: tensor
  defp tensor(bytes, _type) when is_binary(bytes), do: bytes
  defp tensor(numbers, type), do: Tensor.new(numbers, type)

  @doc false
  def fail(request, %Error{code: code, message: text, cause: cause} = error) do
    fail_with(request, {code, text, cause}, {:error, error, []})
  end

  @doc false
  # An exception, exit or throw: in words, and the terms themselves.
  def fail(request, kind, reason, stacktrace) do
    code = if match?(%Error{code: :bad_result}, reason), do: :bad_result, else: :threw
    text = Exception.format(kind, reason, stacktrace)
    cause = {kind, reason, stacktrace}
    fail_with(request, {code, text, cause}, cause)
  end

  defp fail_with(%__MODULE__{handle: handle} = request, {code, text, cause}, failure) do
    outcome = Nif.request_fail(handle, code, text, cause)
    if answered?(outcome), do: done(request, failure)
    outcome
  end

  # By this answer. One that came too late for its run is the last one too.
  defp answered?(outcome) when outcome in [:ok, :held], do: true
  defp answered?({:error, code, _, _}), do: code == :cancelled

  defp done(%__MODULE__{timer: timer, watch: watch}, outcome) do
    # The timer keeps the request.
    if timer, do: Process.cancel_timer(timer, async: true, info: false)
    if watch, do: Telemetry.answered(watch, outcome)
  end
end
