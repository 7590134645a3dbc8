defmodule Postern.Tensor do
  @moduledoc """
  An array: `data` is a binary of its elements, row-major, in the machine's byte order.

  `type` is the element's, as the library names it: `:f32`, `:s64`, `:pred`, `:bf16`, ...; `shape`
  is a tuple. Elements of less than a byte take one each.

  The data of a result is the library's own memory, without a copy; it stays as long as a binary
  shows it. Given to the next run it is used in place. The binaries of the VM are used in place
  where they are aligned to 64 bytes, and else copied once.
  """
  @enforce_keys [:type, :shape, :data]
  defstruct [:type, :shape, :data]

  @type t :: %__MODULE__{type: atom, shape: tuple, data: binary}

  @widths %{
    pred: 8,
    s2: 8,
    s4: 8,
    s8: 8,
    s16: 16,
    s32: 32,
    s64: 64,
    u2: 8,
    u4: 8,
    u8: 8,
    u16: 16,
    u32: 32,
    u64: 64,
    f16: 16,
    bf16: 16,
    f32: 32,
    f64: 64,
    c64: 64,
    c128: 128,
    f8e5m2: 8,
    f8e4m3fn: 8,
    f8e4m3b11fnuz: 8,
    f8e5m2fnuz: 8,
    f8e4m3fnuz: 8,
    f8e4m3: 8,
    f8e3m4: 8,
    f8e8m0fnu: 8,
    f4e2m1fn: 8
  }
  @signed [:s2, :s4, :s8, :s16, :s32, :s64]
  @unsigned [:u2, :u4, :u8, :u16, :u32, :u64]
  @types Map.new(Map.keys(@widths), &{Atom.to_string(&1), &1})

  @doc """
  A tensor of numbers: a number, or nested lists of them. Without a type floats are `:f32`, integers
  `:s32`, booleans `:pred`.

      iex> Postern.Tensor.new([[1, 2], [3, 4]], :f32).shape
      {2, 2}
  """
  def new(numbers, type \\ nil) do
    shape =
      shape_of(numbers) ||
        raise ArgumentError, "a tensor's lists must have equal lengths, got #{inspect(numbers)}"

    flat = List.flatten([numbers])
    type = type || default_type(flat)

    %__MODULE__{type: type, shape: shape, data: for(n <- flat, into: <<>>, do: encode(n, type))}
  end

  @doc "A tensor over a binary, whose size must be what type and shape need."
  def from_binary(data, type, shape) when is_binary(data) and is_tuple(shape) do
    need = div(width!(type), 8) * Tuple.product(shape)

    if byte_size(data) != need do
      raise ArgumentError,
            "a tensor of #{type} #{inspect(shape)} has #{need} bytes, got #{byte_size(data)}"
    end

    %__MODULE__{type: type, shape: shape, data: data}
  end

  @doc """
  The numbers: one of shape `{}`, else nested lists. Floats that are no numbers of the VM are
  `:nan`, `:infinity`, `:neg_infinity`; complex numbers are `{real, imaginary}`.
  """
  def to_list(%__MODULE__{type: type, shape: shape, data: data}) do
    size = div(width!(type), 8)
    flat = for <<element::binary-size(size) <- data>>, do: decode(element, type)
    nest(flat, Tuple.to_list(shape))
  end

  @doc """
  The same with its bytes copied into memory of the VM: what is kept of an operand after its call
  was answered, so that the program need not wait until nobody has it any more.
  """
  def copy(%__MODULE__{data: data} = tensor), do: %{tensor | data: :binary.copy(data)}

  @doc false
  # "f32[2,3]"; "f32[-1,3]" where a size is open.
  def parse_type(text) do
    [name, dims] = String.split(String.trim_trailing(text, "]"), "[")
    dims = for dim <- String.split(dims, ",", trim: true), do: String.to_integer(dim)
    {Map.fetch!(@types, name), List.to_tuple(dims)}
  end

  # nil where lists beside each other differ.
  defp shape_of([]), do: {0}

  defp shape_of([first | rest] = numbers) do
    inner = shape_of(first)

    if inner && Enum.all?(rest, &(shape_of(&1) == inner)) do
      Tuple.insert_at(inner, 0, length(numbers))
    end
  end

  defp shape_of(_number), do: {}

  defp default_type([]), do: :f32

  defp default_type(flat) do
    cond do
      Enum.all?(flat, &is_boolean/1) -> :pred
      Enum.all?(flat, &is_integer/1) -> :s32
      true -> :f32
    end
  end

  defp width!(type) do
    Map.get(@widths, type) ||
      raise ArgumentError, "no type of elements is called #{inspect(type)}"
  end

  defp encode(true, :pred), do: <<1>>
  defp encode(false, :pred), do: <<0>>
  defp encode(n, :bf16), do: <<round_to_bf16(encode(n, :f32))::16-native>>
  defp encode({re, im}, :c64), do: encode(re, :f32) <> encode(im, :f32)
  defp encode({re, im}, :c128), do: encode(re, :f64) <> encode(im, :f64)
  defp encode(n, :c64) when is_number(n), do: encode({n, 0.0}, :c64)
  defp encode(n, :c128) when is_number(n), do: encode({n, 0.0}, :c128)
  defp encode(n, type) when type in [:f16, :f32, :f64], do: encode_float(n, width!(type))

  defp encode(n, type) when is_integer(n) and type in @signed do
    encode_integer(n, type, -Bitwise.bsl(1, bits(type) - 1), Bitwise.bsl(1, bits(type) - 1) - 1)
  end

  defp encode(n, type) when is_integer(n) and type in @unsigned do
    encode_integer(n, type, 0, Bitwise.bsl(1, bits(type)) - 1)
  end

  defp encode(n, type), do: raise(ArgumentError, "#{inspect(n)} is no number of #{inspect(type)}")

  defp encode_integer(n, type, least, most) do
    if n not in least..most do
      raise ArgumentError, "#{n} is no number of #{type}, which has #{least} to #{most}"
    end

    <<n::native-size(width!(type))>>
  end

  # Of the number: those of less than a byte take one each.
  defp bits(type) when type in [:s2, :u2], do: 2
  defp bits(type) when type in [:s4, :u4], do: 4
  defp bits(type), do: width!(type)

  defp encode_float(n, width) when is_number(n), do: <<n::float-native-size(width)>>
  defp encode_float(:nan, 16), do: <<0x7E00::16-native>>
  defp encode_float(:nan, 32), do: <<0x7FC00000::32-native>>
  defp encode_float(:nan, 64), do: <<0x7FF8000000000000::64-native>>
  defp encode_float(:infinity, 16), do: <<0x7C00::16-native>>
  defp encode_float(:infinity, 32), do: <<0x7F800000::32-native>>
  defp encode_float(:infinity, 64), do: <<0x7FF0000000000000::64-native>>
  defp encode_float(:neg_infinity, 16), do: <<0xFC00::16-native>>
  defp encode_float(:neg_infinity, 32), do: <<0xFF800000::32-native>>
  defp encode_float(:neg_infinity, 64), do: <<0xFFF0000000000000::64-native>>

  defp encode_float(n, width) do
    raise ArgumentError, "#{inspect(n)} is no number of f#{width}"
  end

  # To the nearest, ties to even; a nan stays one.
  defp round_to_bf16(<<bits::32-native>>) do
    nan = Bitwise.band(bits, 0x7FFFFFFF) > 0x7F800000
    odd = Bitwise.band(Bitwise.bsr(bits, 16), 1)
    rounded = if nan, do: bits, else: bits + 0x7FFF + odd
    Bitwise.bsr(rounded, 16)
  end

  defp decode(<<n>>, :pred), do: n != 0
  defp decode(<<bits::16-native>>, :bf16), do: decode(<<Bitwise.bsl(bits, 16)::32-native>>, :f32)
  defp decode(<<re::binary-4, im::binary-4>>, :c64), do: {decode(re, :f32), decode(im, :f32)}
  defp decode(<<re::binary-8, im::binary-8>>, :c128), do: {decode(re, :f64), decode(im, :f64)}

  defp decode(bytes, type) when type in [:f16, :f32, :f64] do
    width = width!(type)

    case bytes do
      <<n::float-native-size(width)>> -> n
      <<bits::unsigned-native-size(width)>> -> not_a_number(bits, width)
    end
  end

  defp decode(bytes, type) when type in @signed do
    width = width!(type)
    <<n::signed-native-size(width)>> = bytes
    n
  end

  defp decode(bytes, type) when type in @unsigned do
    width = width!(type)
    <<n::unsigned-native-size(width)>> = bytes
    n
  end

  defp decode(_bytes, type) do
    raise ArgumentError, "numbers of #{type} are shown as bytes alone: see the tensor's data"
  end

  defp not_a_number(bits, width) do
    cond do
      <<bits::native-size(width)>> == encode_float(:infinity, width) -> :infinity
      <<bits::native-size(width)>> == encode_float(:neg_infinity, width) -> :neg_infinity
      true -> :nan
    end
  end

  defp nest([number], []), do: number
  defp nest(flat, [_]), do: flat
  defp nest(_flat, [0 | _]), do: []

  defp nest(flat, [dim | rest]) do
    case div(length(flat), dim) do
      0 -> List.duplicate(nest([], rest), dim)
      chunk -> for part <- Enum.chunk_every(flat, chunk), do: nest(part, rest)
    end
  end
end
