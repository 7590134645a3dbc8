defmodule Postern.Program do
  @moduledoc """
  A program that was loaded: the types of what it takes and gives as `{type, shape}`, and the names
  of the functions that it calls.
  """
  alias Postern.{Error, Nif, Tensor}

  @enforce_keys [:handle, :inputs, :outputs, :functions]
  defstruct [:handle, :inputs, :outputs, :functions]

  @type t :: %__MODULE__{
          handle: reference,
          inputs: [{atom, tuple}],
          outputs: [{atom, tuple}],
          functions: [String.t()]
        }

  @doc false
  def from_nif({:ok, handle}) do
    {inputs, outputs, functions} = Nif.program_info(handle)

    {:ok,
     %__MODULE__{
       handle: handle,
       inputs: Enum.map(inputs, &Tensor.parse_type/1),
       outputs: Enum.map(outputs, &Tensor.parse_type/1),
       functions: functions
     }}
  end

  def from_nif(error), do: Error.from_nif(error)

  @doc false
  # Numbers take the type of the input; what is too many is refused by the library, in words.
  def tensors(%__MODULE__{inputs: inputs}, arguments) do
    inputs = Stream.concat(inputs, Stream.repeatedly(fn -> {nil, nil} end))
    for {argument, {type, _}} <- Enum.zip(arguments, inputs), do: tensor(argument, type)
  end

  defp tensor(%Tensor{} = tensor, _type), do: tensor
  defp tensor(numbers, type), do: Tensor.new(numbers, type)
end

defmodule Postern.Run do
  @moduledoc "A run that was started; see `Postern.start/3`."
  @enforce_keys [:ref, :handle, :owner, :print, :calls]
  defstruct [:ref, :handle, :owner, :print, :calls]

  # `calls`: the functions that it may wait for without a limit.
  @type t :: %__MODULE__{
          ref: reference,
          handle: reference,
          owner: pid,
          print: pid | fun,
          calls: [String.t()]
        }
end
