defmodule Postern.Program do
  @moduledoc """
  A program that was loaded: the types of what it takes and gives as `{type, shape}`, and the names
  of the functions that it calls and of its hooks. A size that is open, so that the program takes
  any, is -1.
  """
  alias Postern.{Error, Nif, Shards, Tensor}

  @enforce_keys [:handle, :inputs, :outputs, :functions, :hooks]
  defstruct [:handle, :inputs, :outputs, :functions, :hooks]

  @type t :: %__MODULE__{
          handle: reference,
          inputs: [{atom, tuple}],
          outputs: [{atom, tuple}],
          functions: [String.t()],
          hooks: [String.t()]
        }

  @doc false
  def from_nif({:ok, handle}) do
    {inputs, outputs, functions, hooks} = Nif.program_info(handle)

    {:ok,
     %__MODULE__{
       handle: handle,
       inputs: Enum.map(inputs, &Tensor.parse_type/1),
       outputs: Enum.map(outputs, &Tensor.parse_type/1),
       functions: functions,
       hooks: hooks
     }}
  end

  def from_nif(error), do: Error.from_nif(error)

  @doc false
  # Numbers take the type of the input; what is too many is refused by the library, in words.
  def tensors(%__MODULE__{inputs: inputs}, arguments), do: tensors_of(arguments, inputs)

  defp tensors_of([], _inputs), do: []
  defp tensors_of(arguments, []), do: Enum.map(arguments, &tensor(&1, nil))

  defp tensors_of([argument | arguments], [{type, _} | inputs]),
    do: [tensor(argument, type) | tensors_of(arguments, inputs)]

  @doc false
  # The functions that somebody else may have to answer in a run that is given these.
  def calls(%__MODULE__{functions: functions}, given), do: functions -- Map.keys(given.functions)

  @doc false
  # Names into those of hooks and those of functions.
  def split(%__MODULE__{} = program, names) do
    {hooks, others} = Enum.split_with(Enum.uniq(names), &(&1 in program.hooks))

    case others -- program.functions do
      [] ->
        {:ok, hooks, others}

      [name | _] ->
        text =
          "the program has neither a hook nor a function #{inspect(name)}; its hooks are " <>
            "#{inspect(program.hooks)}, its functions #{inspect(program.functions)}"

        {:error, %Error{code: :invalid_argument, message: text}}
    end
  end

  defp tensor(%Tensor{} = tensor, _type), do: tensor
  defp tensor(%Shards{} = shards, _type), do: Shards.to_nif(shards)
  defp tensor(numbers, type), do: Tensor.new(numbers, type)
end

defmodule Postern.Run do
  @moduledoc "A run that was started; see `Postern.start/3`."
  @enforce_keys [:ref, :handle, :owner, :print, :calls, :own]
  defstruct [:ref, :handle, :owner, :print, :calls, :own, shards: false]

  # `calls`: the functions that it may wait for without a limit; `own`: what it was given its owner
  # for.
  @type t :: %__MODULE__{
          ref: reference,
          handle: reference,
          owner: pid,
          print: pid | fun,
          calls: [String.t()],
          own: [String.t()],
          shards: boolean
        }
end
