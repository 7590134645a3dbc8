defmodule Postern.Lower.Reducing do
  @moduledoc false
  # Operations that make one of many: over axes, over windows; and sorts.
  import Postern.Lower.Text
  import Postern.Lower.Elementwise, only: [truth: 1]
  alias Postern.Lower.{Shaping, Types}

  @doc "`initial`: a number, :least or :greatest."
  def aggregate([x, options], out, {name, initial}) do
    reduced([convert(x, out.type)], [initial(initial, out.type)], options, out, &fold(name, &1))
  end

  # Whether all, or any, are not zero.
  def truths([x, options], out, {name, initial}) do
    as_bits = %{out | type: :pred}
    all = reduced([truth(x)], [constant(initial, :pred)], options, as_bits, &fold(name, &1))
    convert(all, out.type)
  end

  def reduce([x, initial, options, fun], out, _) do
    reduced([convert(x, out.type)], [convert(initial, out.type)], options, out, fun)
  end

  # What there is comes first: nan + infinity is nan, and infinity + nan infinity.
  defp fold(name, [{_, type, {}} = old, new]), do: [op(name, [new, old], type, {})]

  defp initial(:least, type), do: constant(Types.least(type), type)
  defp initial(:greatest, type), do: constant(Types.greatest(type), type)
  defp initial(number, type), do: constant(number, type)

  defp reduced([{_, _, from} = x], [initial], options, %{type: type, shape: shape}, fun) do
    axes = Enum.sort(options[:axes] || Enum.to_list(0..(tuple_size(from) - 1)//1))
    body = region([{type, {}}, {type, {}}], fun)
    dims = [dimensions: numbers(axes)]
    reshape(op("stablehlo.reduce", [x, initial], type, without(from, axes), dims, [body]), shape)
  end

  defp without(shape, axes), do: Enum.reduce(Enum.reverse(axes), shape, &Tuple.delete_at(&2, &1))

  @doc "`extreme` is :least or :greatest; among equal ones `tie_break` says which."
  def index_of([x, options], out, extreme) do
    {_, type, from} = x = along(x, options[:axis])
    axis = options[:axis] || 0
    # It begins with what everything is as good as, at the place behind all.
    worst = if extreme == :greatest, do: :least, else: :greatest
    initials = [initial(worst, type), constant(0, out.type)]
    index = Shaping.iota(out.type, from, axis)
    scalars = [{type, {}}, {out.type, {}}, {type, {}}, {out.type, {}}]
    body = region(scalars, &better(&1, extreme, options[:tie_break] || :low))
    left = Tuple.delete_at(from, axis)
    results = [{type, left}, {out.type, left}]
    dims = [dimensions: numbers([axis])]
    [_, found] = ops("stablehlo.reduce", [x, index | initials], results, dims, [body])
    reshape(found, out.shape)
  end

  defp along(x, axis) when axis != nil, do: x
  defp along({_, _, shape} = x, nil), do: reshape(x, {Tuple.product(shape)})

  # A nan is better than all.
  defp better([left, left_index, right, right_index], extreme, tie_break) do
    wins = compare(if(extreme == :greatest, do: "GT", else: "LT"), left, right)
    wins = op("stablehlo.or", [wins, compare("NE", left, left)], :pred, {})
    before = compare(if(tie_break == :low, do: "LT", else: "GT"), left_index, right_index)
    ties = op("stablehlo.and", [compare("EQ", left, right), before], :pred, {})
    first = op("stablehlo.or", [wins, ties], :pred, {})
    [select(wins, left, right), select(first, left_index, right_index)]
  end

  ## Windows

  def window_aggregate([x, dims, options], out, {name, initial}) do
    window(convert(x, out.type), initial(initial, out.type), dims, options, out, &fold(name, &1))
  end

  def window_reduce([x, initial, dims, options, fun], out, _) do
    window(convert(x, out.type), convert(initial, out.type), dims, options, out, fun)
  end

  defp window({_, _, from} = x, initial, dims, options, %{type: type, shape: shape}, fun) do
    body = region([{type, {}}, {type, {}}], fun)

    attributes = [
      window_dimensions: numbers(Tuple.to_list(dims)),
      window_strides: numbers(options[:strides]),
      base_dilations: numbers(List.duplicate(1, tuple_size(from))),
      window_dilations: numbers(options[:window_dilations]),
      padding: padding(options[:padding])
    ]

    op("stablehlo.reduce_window", [x, initial], type, shape, attributes, [body])
  end

  @doc "Adds each of the source to the window's greatest, or least, element."
  def window_scatter([x, source, initial, dims, options], out, direction) do
    type = out.type
    scalars = [{type, {}}, {type, {}}]
    choose = region(scalars, fn [left, right] -> [compare(direction, left, right)] end)
    add = region(scalars, fn both -> [op("stablehlo.add", both, type, {})] end)
    operands = for value <- [x, source, initial], do: convert(value, type)

    attributes = [
      window_dimensions: numbers(Tuple.to_list(dims)),
      window_strides: numbers(options[:strides]),
      padding: padding(options[:padding])
    ]

    op("stablehlo.select_and_scatter", operands, type, out.shape, attributes, [choose, add])
  end

  ## Sorting

  def sort([x, options], out, _) do
    [sorted] = sorted([convert(x, out.type)], options)
    sorted
  end

  def argsort([{_, _, shape} = x, options], out, _) do
    [_, index] = sorted([x, Shaping.iota(out.type, shape, options[:axis])], options)
    index
  end

  @doc "Others in the order of the last axis of a key, the greatest first."
  def sorted_by({_, _, shape} = key, others) do
    options = [axis: tuple_size(shape) - 1, direction: :desc, stable: true]
    tl(sorted([key | others], options))
  end

  @doc "The first ones, and where they were."
  def top_k([{_, type, _} = x], [_, index_out] = outs, k) do
    results = for {out, type} <- Enum.zip(outs, [type, {:s, 32}]), do: {type, out.shape}
    [values, index] = ops("chlo.top_k", [x], results, k: number(k))
    [values, convert(index, index_out.type)]
  end

  defp sorted([{_, type, _} | _] = operands, options) do
    scalars = for {_, type, _} <- operands, _ <- 1..2, do: {type, {}}
    direction = if options[:direction] == :desc, do: "GT", else: "LT"
    float = Types.float?(type)

    body =
      region(scalars, fn [left, right | _] ->
        [left, right] = if float, do: [canonical(left), canonical(right)], else: [left, right]
        [compare(direction, left, right, if(float, do: "TOTALORDER", else: "FLOAT"))]
      end)

    attributes = [
      dimension: number(options[:axis]),
      is_stable: to_string(options[:stable] == true)
    ]

    results = for {_, type, shape} <- operands, do: {type, shape}
    ops("stablehlo.sort", operands, results, attributes, [body])
  end

  # Zeros are one number, and so are nans.
  defp canonical({_, type, {}} = x) do
    zero = constant(0, type)
    x = select(compare("EQ", x, zero), zero, x)
    select(compare("NE", x, x), constant(:nan, type), x)
  end
end
