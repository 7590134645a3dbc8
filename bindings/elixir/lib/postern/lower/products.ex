defmodule Postern.Lower.Products do
  @moduledoc false
  # Products, convolutions, Fourier transforms and triangular systems.
  import Postern.Lower.Text
  alias Postern.Lower.{Shaping, Types}

  def dot([left, contract1, batch1, right, contract2, batch2], out, _) do
    [left, right] = for x <- [left, right], do: convert(x, out.type)

    numbers =
      "#stablehlo.dot<lhs_batching_dimensions = #{list(batch1)}, " <>
        "rhs_batching_dimensions = #{list(batch2)}, " <>
        "lhs_contracting_dimensions = #{list(contract1)}, " <>
        "rhs_contracting_dimensions = #{list(contract2)}>"

    op("stablehlo.dot_general", [left, right], out.type, out.shape,
      dot_dimension_numbers: numbers,
      precision_config: precision()
    )
  end

  def conv([x, kernel, options], out, _) do
    numbers =
      "#stablehlo.conv<[#{marks(options[:input_permutation], ["b", "f"])}]x" <>
        "[#{marks(options[:kernel_permutation], ["o", "i"])}]->" <>
        "[#{marks(options[:output_permutation], ["b", "f"])}]>"

    attributes = [
      window_strides: numbers(options[:strides]),
      padding: padding(options[:padding]),
      lhs_dilation: numbers(options[:input_dilation]),
      rhs_dilation: numbers(options[:kernel_dilation]),
      dimension_numbers: numbers,
      feature_group_count: number(options[:feature_group_size]),
      batch_group_count: number(options[:batch_group_size]),
      precision_config: precision()
    ]

    operands = [convert(x, out.type), convert(kernel, out.type)]
    op("stablehlo.convolution", operands, out.type, out.shape, attributes)
  end

  # What each dimension is: b, f, o, i, or the number of a spatial one.
  defp marks(permutation, first) do
    names = first ++ Enum.map(0..(length(permutation) - 3)//1, &to_string/1)
    permutation |> Enum.zip(names) |> Enum.sort() |> Enum.map_join(", ", &elem(&1, 1))
  end

  ## Fourier transforms

  def fft([x, options], out, kind) do
    length = options[:length]
    # What comes in: complex numbers, the real ones of rfft, of irfft half of its result and one.
    {type, held} =
      case kind do
        "RFFT" -> {Types.real(out.type), length}
        "IRFFT" -> {Types.complex(out.type), div(length, 2) + 1}
        _ -> {out.type, length}
      end

    x = resized(convert(x, type), options[:axis], held)
    transform(x, [options[:axis]], [length], kind, out)
  end

  def fft2([x, options], out, kind) do
    [first, second] = axes = options[:axes]
    [length, other] = lengths = options[:lengths]
    x = x |> convert(out.type) |> resized(first, length) |> resized(second, other)
    transform(x, axes, lengths, kind, out)
  end

  # XLA transforms the last axes.
  defp transform({_, _, from} = x, axes, lengths, kind, out) do
    rank = tuple_size(from)
    order = Enum.to_list(0..(rank - 1)//1) -- axes
    order = order ++ axes
    attributes = [fft_type: "#stablehlo<fft_type #{kind}>", fft_length: numbers(lengths)]

    if order == Enum.to_list(0..(rank - 1)//1) do
      op("stablehlo.fft", [x], out.type, out.shape, attributes)
    else
      back = for axis <- 0..(rank - 1)//1, do: Enum.find_index(order, &(&1 == axis))
      x = Shaping.transposed(x, permuted(from, order), order)
      x = op("stablehlo.fft", [x], out.type, permuted(out.shape, order), attributes)
      Shaping.transposed(x, out.shape, back)
    end
  end

  defp permuted(shape, order), do: List.to_tuple(for axis <- order, do: elem(shape, axis))

  # Cut, or filled with zeros.
  defp resized({_, type, shape} = x, axis, length) do
    had = elem(shape, axis)
    new = put_elem(shape, axis, length)
    rank = tuple_size(shape)

    cond do
      had == length ->
        x

      had > length ->
        zeros = List.duplicate(0, rank)
        Shaping.cut(x, zeros, Tuple.to_list(new), List.duplicate(1, rank), new)

      true ->
        config = {0, 0, 0} |> List.duplicate(rank) |> List.replace_at(axis, {0, length - had, 0})
        Shaping.padded(x, constant(0, type), config, new)
    end
  end

  ## Triangular systems

  def triangular_solve([a, b, options], %{type: type, shape: shape}, _) do
    {_, _, a_shape} = a = convert(a, type)
    {_, _, b_shape} = b = convert(b, type)
    complex = Types.complex?(type)

    {a, transpose} =
      case options[:transform_a] do
        :transpose when complex -> {a, "ADJOINT"}
        :transpose -> {a, "TRANSPOSE"}
        :conjugate when complex -> {op("chlo.conj", [a], type, a_shape), "NO_TRANSPOSE"}
        _ -> {a, "NO_TRANSPOSE"}
      end

    # A vector is a matrix of one column.
    vector = tuple_size(a_shape) > tuple_size(b_shape)
    held = if vector, do: Tuple.insert_at(b_shape, tuple_size(b_shape), 1), else: b_shape

    attributes = [
      left_side: to_string(options[:left_side]),
      lower: to_string(options[:lower]),
      unit_diagonal: "false",
      transpose_a: "#stablehlo<transpose #{transpose}>"
    ]

    solved = op("stablehlo.triangular_solve", [a, reshape(b, held)], type, held, attributes)
    reshape(solved, shape)
  end
end
