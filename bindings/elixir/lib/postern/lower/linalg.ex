defmodule Postern.Lower.Linalg do
  @moduledoc false
  # Decompositions by the library's LAPACK, which serves these targets; Cholesky's is XLA's own.
  # Where LAPACK finds nothing, the results are nans.
  import Postern.Lower.Text
  alias Postern.Lower.{Reducing, Shaping, Types}

  @letters %{{:f, 32} => "s", {:f, 64} => "d", {:c, 64} => "c", {:c, 128} => "z"}

  @doc "Whether LAPACK has a kernel for the type; what is none is computed as f32."
  def type({:c, _} = type), do: type
  def type({:f, 64}), do: {:f, 64}
  def type(_type), do: {:f, 32}

  def cholesky(a, [out]) do
    {_, type, shape} = a = convert(a, type(out.type))
    l = op("stablehlo.cholesky", [a], type, shape, lower: "true")
    [convert(triangle(l, "LE"), out.type)]
  end

  def qr(a, [q_out, r_out], mode) do
    {_, type, shape} = a = convert(a, type(q_out.type))
    rank = tuple_size(shape)
    [rows, columns] = [elem(shape, rank - 2), elem(shape, rank - 1)]
    least = min(rows, columns)
    tau = shape |> Tuple.delete_at(rank - 1) |> put_elem(rank - 2, least)
    [packed, tau] = lapack("geqrf", type, [a], [{type, shape}, {type, tau}], [])
    r = triangle(corner(packed, r_out.shape), "GE")
    # Q has as many columns as there are reflections, or as rows.
    width = if mode == :complete, do: rows, else: least
    whole = put_elem(shape, rank - 1, width)
    name = if Types.complex?(type), do: "ungqr", else: "orgqr"
    [q] = lapack(name, type, [corner(packed, whole), tau], [{type, whole}], [])
    [convert(q, q_out.type), convert(r, r_out.type)]
  end

  def eigh(a, [values_out, vectors_out]) do
    {_, type, shape} = a = convert(a, type(vectors_out.type))
    name = if Types.complex?(type), do: "heevd", else: "syevd"
    attributes = [{"mode", "86 : ui8"}, {"uplo", "76 : ui8"}]
    values = {Types.real(type), values_out.shape}
    results = [{type, shape}, values, info(shape)]
    [vectors, values, info] = lapack(name, type, [a], results, attributes)
    # Nx has the greatest first, whatever their signs; columns go with their values.
    rank = tuple_size(shape)
    size = op("stablehlo.abs", [values], Types.real(type), values_out.shape)
    columns = Enum.to_list(0..(rank - 3)//1) ++ [rank - 1]
    [vectors] = Reducing.sorted_by(broadcast(size, shape, columns), [vectors])
    [values] = Reducing.sorted_by(size, [values])
    [found(values, info, values_out), found(vectors, info, vectors_out)]
  end

  def svd(a, [u_out, s_out, v_out], full) do
    {_, type, shape} = a = convert(a, type(u_out.type))
    mode = if full, do: 65, else: 83
    results = [{type, shape}, {Types.real(type), s_out.shape}, {type, u_out.shape}]
    results = results ++ [{type, v_out.shape}, info(shape)]
    [_, s, u, v, info] = lapack("gesdd", type, [a], results, [{"mode", "#{mode} : ui8"}])
    [found(u, info, u_out), found(s, info, s_out), found(v, info, v_out)]
  end

  # Matrices lie column by column.
  defp lapack(name, type, operands, results, attributes) do
    target = "lapack_#{@letters[type]}#{name}_ffi"
    layouts = fn shapes -> "[" <> Enum.map_join(shapes, ", ", &layout/1) <> "]" end

    # Of vectors, tau and info, only the leading axes are more than one.
    matrix = tuple_size(elem(hd(operands), 2))

    options = [
      operand_layouts: layouts.(for {_, _, shape} <- operands, do: {shape, matrix}),
      result_layouts: layouts.(for {_, shape} <- results, do: {shape, matrix})
    ]

    custom_call(target, operands, results, attributes, options)
  end

  defp layout({shape, matrix}) do
    rank = tuple_size(shape)
    minor = Enum.to_list((rank - 1)..0//-1)

    order = if rank == matrix, do: [rank - 2, rank - 1 | Enum.drop(minor, 2)], else: minor

    if rank == 0,
      do: "dense<> : tensor<0xindex>",
      else: "dense<#{list(order)}> : tensor<#{rank}xindex>"
  end

  defp info(shape) do
    {leading, _} = shape |> Tuple.to_list() |> Enum.split(-2)
    {{:s, 32}, List.to_tuple(leading)}
  end

  defp found({_, type, shape} = value, {_, _, leading} = info, out) do
    well = compare("EQ", info, fill(0, {:s, 32}, leading))
    well = broadcast(well, shape, Enum.to_list(0..(tuple_size(leading) - 1)//1))
    convert(select(well, value, fill(:nan, type, shape)), out.type)
  end

  # Cut to a shape, or filled with zeros behind it.
  defp corner({_, type, from} = x, shape) do
    rank = tuple_size(from)
    sizes = for axis <- 0..(rank - 1), do: min(elem(from, axis), elem(shape, axis))
    cut = List.to_tuple(sizes)
    ones = List.duplicate(1, rank)
    x = if cut == from, do: x, else: Shaping.cut(x, List.duplicate(0, rank), sizes, ones, cut)
    more = for axis <- 0..(rank - 1), do: {0, elem(shape, axis) - elem(cut, axis), 0}
    if cut == shape, do: x, else: Shaping.padded(x, constant(0, type), more, shape)
  end

  # What is on the diagonal and on one side of it, zeros on the other.
  defp triangle({_, type, shape} = x, direction) do
    rank = tuple_size(shape)
    row = Shaping.iota({:s, 32}, shape, rank - 2)
    column = Shaping.iota({:s, 32}, shape, rank - 1)
    select(compare(direction, column, row), x, fill(0, type, shape))
  end
end
