defmodule Postern.Lower.Elementwise do
  @moduledoc false
  # Operations on each element. All take the operands, what the node says, and a parameter of the
  # table's row.
  import Postern.Lower.Text
  alias Postern.Lower.Types

  def constant([number], out, _), do: fill(number, out.type, out.shape)
  def tensor([data], out, _), do: bytes(data, out.type, out.shape)

  def unary([x], out, name), do: op(name, [convert(x, out.type)], out.type, out.shape)

  @doc "A function of CHLO, which has none for floats of 8 bits."
  def chlo([x], out, name) do
    type = if elem(out.type, 1) == 8, do: {:f, 32}, else: out.type
    convert(op("chlo." <> name, [convert(x, type)], type, out.shape), out.type)
  end

  # Of its operand's type, which may be complex where the result's is real.
  def abs([{_, {:u, _}, _} = x], out, _), do: convert(x, out.type)
  def abs([{_, {:c, _}, _} = x], out, _), do: op("stablehlo.abs", [x], out.type, out.shape)
  def abs([x], out, _), do: op("stablehlo.abs", [convert(x, out.type)], out.type, out.shape)

  def sign([x], %{type: {:u, _} = type, shape: shape}, _),
    do: op("stablehlo.minimum", [convert(x, type), fill(1, type, shape)], type, shape)

  def sign([x], out, _), do: unary([x], out, "stablehlo.sign")

  def part([{_, {:c, _} = type, _} = x], out, name),
    do: convert(op(name, [x], Types.real(type), out.shape), out.type)

  def part([x], out, "stablehlo.real"), do: convert(x, out.type)
  def part([_x], out, "stablehlo.imag"), do: fill(0, out.type, out.shape)

  def conjugate([x], out, _), do: op("chlo.conj", [convert(x, out.type)], out.type, out.shape)

  def nan?([x], out, _), do: convert(compare("NE", x, x), out.type)

  def infinite?([{_, {:c, _} = type, shape} = x], out, _) do
    [re, im] =
      for name <- ["stablehlo.real", "stablehlo.imag"],
          do: infinite(op(name, [x], Types.real(type), shape))

    convert(op("stablehlo.or", [re, im], :pred, shape), out.type)
  end

  def infinite?([x], out, _), do: convert(infinite(x), out.type)

  # Integers and f8E4M3FN have none.
  defp infinite({_, type, shape} = x) do
    if Types.integer?(type) or type == {:f8_e4m3fn, 8} do
      fill(0, :pred, shape)
    else
      x = convert(x, if(elem(type, 1) == 8, do: {:f, 32}, else: type))
      op("chlo.is_inf", [x], :pred, shape)
    end
  end

  def as_type([x], out, _), do: convert(x, out.type)

  def bitcast([{_, type, _} = x], %{type: type}, _), do: x
  def bitcast([x], out, _), do: op("stablehlo.bitcast_convert", [x], out.type, out.shape)

  ## Of two operands, which meet in one type and shape

  def binary(operands, out, name) do
    {left, right, type} = meet(operands, out, out.type)
    convert(op(name, [left, right], type, out.shape), out.type)
  end

  def quotient([left, right], out, _) do
    binary([convert(left, out.type), convert(right, out.type)], out, "stablehlo.divide")
  end

  def right_shift(operands, out, _) do
    kind = if match?({:u, _}, out.type), do: "logical", else: "arithmetic"
    binary(operands, out, "stablehlo.shift_right_" <> kind)
  end

  def comparison([{_, left, _}, {_, right, _}] = operands, out, direction) do
    {left, right, _} = meet(operands, out, Types.merge(left, right))
    convert(compare(direction, left, right), out.type)
  end

  def logical([left, right], out, name) do
    operands = for x <- [left, right], do: spread(truth(x), out.shape)
    convert(op(name, operands, :pred, out.shape), out.type)
  end

  defp meet([{_, left_type, _} = left, {_, right_type, _} = right], out, type) do
    type = left_type |> Types.merge(right_type) |> Types.merge(type)
    {spread(convert(left, type), out.shape), spread(convert(right, type), out.shape), type}
  end

  @doc "Whether each element is not zero."
  def truth({_, :pred, _} = x), do: x
  def truth({_, {:c, _} = type, shape} = x), do: compare("NE", x, fill(0, type, shape))
  def truth(x), do: convert(x, :pred)

  ## Of three

  def choose([predicate, on_true, on_false], out, _) do
    [on_true, on_false] =
      for x <- [on_true, on_false], do: spread(convert(x, out.type), out.shape)

    predicate = truth(predicate)
    scalar = elem(predicate, 2) == {}
    select(if(scalar, do: predicate, else: spread(predicate, out.shape)), on_true, on_false)
  end

  def clip([x, least, greatest], out, _) do
    operands = for value <- [least, x, greatest], do: convert(value, out.type)
    op("stablehlo.clamp", operands, out.type, out.shape)
  end
end
