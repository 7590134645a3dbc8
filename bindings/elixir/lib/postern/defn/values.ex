defmodule Postern.Defn.Values do
  @moduledoc false
  # Tensors of Nx as those of the library, and back.
  @compile {:no_warn_undefined, Nx}
  alias Postern.Lower.Types
  alias Postern.Tensor

  def from_nx(%{data: %{__struct__: Nx.Defn.Expr}} = tensor) do
    raise ArgumentError,
          "cannot pass a tensor expression as argument to defn, got: #{inspect(tensor)}"
  end

  def from_nx(%{data: %Postern.Backend{tensor: tensor}}), do: tensor

  def from_nx(tensor) do
    tensor = Nx.devectorize(tensor)
    data = tensor |> Nx.to_binary() |> spread(tensor.type)
    %Tensor{type: Types.name(tensor.type), shape: tensor.shape, data: data}
  end

  @doc "`out` says type, shape, names and vectorised axes."
  def to_nx(%Tensor{} = tensor, out, device),
    do: %{out | data: %Postern.Backend{tensor: tensor, device: device}}

  @doc "The same for whom it is to look at: of Nx's own backend."
  def to_binary_backend(%Tensor{data: data}, out),
    do: %{out | data: struct(Nx.BinaryBackend, state: packed(data, out.type))}

  @doc "Elements of less than a byte, which Nx packs, and the library does not."
  def spread(data, {:s, bits}) when bits < 8,
    do: for(<<n::signed-size(bits) <- data>>, into: <<>>, do: <<n::signed-8>>)

  def spread(data, {:u, bits}) when bits < 8,
    do: for(<<n::size(bits) <- data>>, into: <<>>, do: <<n>>)

  def spread(data, _type), do: data

  def packed(data, {kind, bits}) when kind in [:s, :u] and bits < 8,
    do: for(<<n::8 <- data>>, into: <<>>, do: <<n::size(bits)>>)

  def packed(data, _type), do: data
end
