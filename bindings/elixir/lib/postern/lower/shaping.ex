defmodule Postern.Lower.Shaping do
  @moduledoc false
  # Operations that make, move, cut and join elements.
  import Postern.Lower.Text
  alias Postern.Lower.Types

  def iota([nil], out, _) do
    size = Tuple.product(out.shape)
    reshape(iota(out.type, {size}, 0), out.shape)
  end

  def iota([axis], out, _), do: iota(out.type, out.shape, axis)

  def iota(type, shape, axis) do
    # XLA has none of bits below a byte, nor of 8-bit floats on every platform.
    written = if elem(type, 1) <= 8, do: {:s, 32}, else: type
    convert(op("stablehlo.iota", [], written, shape, iota_dimension: number(axis)), type)
  end

  def eye([], %{type: type, shape: shape}, _) do
    rank = tuple_size(shape)
    convert(compare("EQ", iota({:s, 32}, shape, rank - 2), iota({:s, 32}, shape, rank - 1)), type)
  end

  def reshape([x | _], out, _), do: reshape(x, out.shape)

  def broadcast_to([x, _shape, axes], out, _),
    do: broadcast(convert(x, out.type), out.shape, axes)

  def transpose([x, axes], out, _), do: transposed(x, out.shape, axes)

  def transposed({_, type, _} = x, shape, axes),
    do: op("stablehlo.transpose", [x], type, shape, permutation: numbers(axes))

  def reverse([x, axes], out, _),
    do: op("stablehlo.reverse", [x], out.type, out.shape, dimensions: numbers(axes))

  def pad([x, value, config], out, _),
    do: padded(convert(x, out.type), convert(value, out.type), config, out.shape)

  def padded({_, type, _} = x, value, config, shape) do
    op("stablehlo.pad", [x, value], type, shape,
      edge_padding_low: numbers(for {low, _, _} <- config, do: low),
      edge_padding_high: numbers(for {_, high, _} <- config, do: high),
      interior_padding: numbers(for {_, _, inner} <- config, do: inner)
    )
  end

  def concatenate([list, axis], out, _) do
    list = for x <- list, do: convert(x, out.type)
    op("stablehlo.concatenate", list, out.type, out.shape, dimension: number(axis))
  end

  def stack([list, axis], out, _) do
    shape = put_elem(out.shape, axis, 1)
    concatenate([for(x <- list, do: reshape(x, shape)), axis], out, nil)
  end

  def slice([x, starts, lengths, strides], out, _) do
    if Enum.all?(starts, &is_integer/1) do
      limits = Enum.zip_with(starts, lengths, &(&1 + &2))
      cut(x, starts, limits, strides, out.shape)
    else
      shape = List.to_tuple(lengths)
      sizes = [slice_sizes: numbers(lengths)]
      part = op("stablehlo.dynamic_slice", [x | indices(starts)], out.type, shape, sizes)

      if shape == out.shape,
        do: part,
        else: cut(part, List.duplicate(0, length(lengths)), lengths, strides, out.shape)
    end
  end

  def cut({_, type, _} = x, starts, limits, strides, shape) do
    op("stablehlo.slice", [x], type, shape,
      start_indices: numbers(starts),
      limit_indices: numbers(limits),
      strides: numbers(strides)
    )
  end

  def put_slice([x, starts, part], out, _) do
    [x, part] = for value <- [x, part], do: convert(value, out.type)
    operands = [x, part | indices(starts)]
    op("stablehlo.dynamic_update_slice", operands, out.type, out.shape)
  end

  # They have one type.
  defp indices(starts) do
    types = for {_, type, _} <- starts, do: type
    type = Enum.reduce(types, {:s, 32}, &Types.merge/2)

    for start <- starts,
        do: if(is_integer(start), do: constant(start, type), else: convert(start, type))
  end

  def gather([{_, _, from} = x, {_, _, index_shape} = index, options], out, _) do
    axes = options[:axes]
    vector = tuple_size(index_shape) - 1
    sizes = for i <- axes(from), do: if(i in axes, do: 1, else: elem(from, i))
    left = tuple_size(from) - length(axes)
    gathered(x, index, vector, sizes, Enum.to_list(vector..(vector + left - 1)//1), axes, out)
  end

  @doc "Slices along an axis, which the indices' dimensions take the place of."
  def take([{_, _, from} = x, {_, _, index_shape} = index], out, axis) do
    rank = tuple_size(index_shape)
    sizes = from |> put_elem(axis, 1) |> Tuple.to_list()
    offsets = axes(out.shape) -- Enum.to_list(axis..(axis + rank - 1)//1)
    gathered(x, index, rank, sizes, offsets, [axis], out)
  end

  # Indices wider than s64 there are none of; narrower ones XLA widens.
  defp gathered(x, index, vector, sizes, offsets, axes, out) do
    numbers =
      "#stablehlo.gather<offset_dims = #{list(offsets)}, collapsed_slice_dims = #{list(axes)}, " <>
        "start_index_map = #{list(axes)}, index_vector_dim = #{vector}>"

    op("stablehlo.gather", [x, index], out.type, out.shape,
      dimension_numbers: numbers,
      slice_sizes: numbers(sizes),
      indices_are_sorted: "false"
    )
  end

  def scatter([x, {_, _, _} = index, {_, _, given} = updates, options], out, kind) do
    axes = options[:axes]

    numbers =
      "#stablehlo.scatter<update_window_dims = #{list(tl(axes(given)))}, " <>
        "inserted_window_dims = #{list(axes)}, scatter_dims_to_operand_dims = #{list(axes)}, " <>
        "index_vector_dim = 1>"

    body =
      region([{out.type, {}}, {out.type, {}}], fn [old, new] ->
        [if(kind == :add, do: op("stablehlo.add", [old, new], out.type, {}), else: new)]
      end)

    operands = [convert(x, out.type), index, convert(updates, out.type)]

    op("stablehlo.scatter", operands, out.type, out.shape, [scatter_dimension_numbers: numbers], [
      body
    ])
  end

  defp axes(shape), do: Enum.to_list(0..(tuple_size(shape) - 1)//1)
end
