defmodule Postern.Lower.Types do
  @moduledoc false
  # Element types as Nx names them, `{:f, 32}`, and `:pred`: how StableHLO, the library and numbers
  # write them.

  @named %{
    :pred => {"i1", :pred},
    {:f, 8} => {"f8E5M2", :f8e5m2},
    {:f8_e4m3fn, 8} => {"f8E4M3FN", :f8e4m3fn},
    {:bf, 16} => {"bf16", :bf16},
    {:c, 64} => {"complex<f32>", :c64},
    {:c, 128} => {"complex<f64>", :c128}
  }

  @doc "As StableHLO writes it."
  def text({:s, bits}), do: "i#{bits}"
  def text({:u, bits}), do: "ui#{bits}"
  def text({:f, bits}) when bits > 8, do: "f#{bits}"
  def text(type), do: @named |> Map.fetch!(type) |> elem(0)

  @doc "As the library names it."
  def name({kind, bits}) when kind in [:s, :u] or (kind == :f and bits > 8), do: :"#{kind}#{bits}"
  def name(type), do: @named |> Map.fetch!(type) |> elem(1)

  def complex?(type), do: match?({:c, _}, type)
  def integer?(type), do: match?({kind, _} when kind in [:s, :u], type)
  def float?(type), do: not complex?(type) and not integer?(type) and type != :pred
  def packed?({_, bits}), do: bits < 8
  def packed?(:pred), do: false

  def real({:c, bits}), do: {:f, div(bits, 2)}
  def real(type), do: type
  def complex({:c, _} = type), do: type
  def complex({:f, 64}), do: {:c, 128}
  def complex(_type), do: {:c, 64}

  @doc "The type that two operands meet in, as Nx has it."
  def merge(:pred, :pred), do: {:u, 8}
  def merge(:pred, type), do: merge({:u, 8}, type)
  def merge(type, :pred), do: merge(type, {:u, 8})
  def merge({kind, left}, {kind, right}), do: {kind, max(left, right)}

  def merge(left, right) do
    case if(rank(left) < rank(right), do: {left, right}, else: {right, left}) do
      {{:u, unsigned}, {:s, signed}} -> {:s, max(min(2 * unsigned, 64), signed)}
      {{:f, real}, {:c, complex}} -> {:c, max(2 * real, complex)}
      {_, higher} -> higher
    end
  end

  defp rank({kind, _}), do: Map.fetch!(%{c: 4, f: 3, f8_e4m3fn: 3, bf: 2, s: 1, u: 0}, kind)

  @doc "The least and the greatest number of a type."
  def least(:pred), do: 0
  def least({:u, _}), do: 0
  def least({:s, bits}), do: -Bitwise.bsl(1, bits - 1)
  def least({:f8_e4m3fn, 8}), do: -448.0
  def least(_type), do: :neg_infinity

  def greatest(:pred), do: 1
  def greatest({:u, bits}), do: Bitwise.bsl(1, bits) - 1
  def greatest({:s, bits}), do: Bitwise.bsl(1, bits - 1) - 1
  def greatest({:f8_e4m3fn, 8}), do: 448.0
  def greatest(_type), do: :infinity

  @doc "A number as it stands in `dense<...>`; of a type of at least 16 bits, if it is a float."
  def literal(%{re: re, im: im}, {:c, _} = type) do
    "(#{literal(re, real(type))}, #{literal(im, real(type))})"
  end

  def literal(number, {:c, _} = type), do: literal(%{re: number, im: 0}, type)
  def literal(number, :pred), do: to_string(number not in [0, false])

  def literal(number, type) do
    if integer?(type),
      do: to_string(trunc(number)),
      else: "0x" <> Base.encode16(bits(number, type))
  end

  # Big-endian. Of bf16 the lower half of an f32 is cut off, as Nx does.
  defp bits(number, {:bf, 16}), do: binary_part(bits(number, {:f, 32}), 0, 2)
  defp bits(:nan, {:f, 16}), do: <<0x7E00::16>>
  defp bits(:nan, {:f, 32}), do: <<0x7FC00000::32>>
  defp bits(:nan, {:f, 64}), do: <<0x7FF8000000000000::64>>
  defp bits(:infinity, {:f, 16}), do: <<0x7C00::16>>
  defp bits(:infinity, {:f, 32}), do: <<0x7F800000::32>>
  defp bits(:infinity, {:f, 64}), do: <<0x7FF0000000000000::64>>

  defp bits(:neg_infinity, type) do
    <<0::1, rest::bitstring>> = bits(:infinity, type)
    <<1::1, rest::bitstring>>
  end

  # The VM has no such float for a number beyond the type's range.
  defp bits(number, {:f, size}) do
    <<number::float-size(size)>>
  rescue
    ArgumentError -> bits(if(number > 0, do: :infinity, else: :neg_infinity), {:f, size})
  end
end
