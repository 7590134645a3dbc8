defmodule Postern.Defn.Sharding do
  @moduledoc false
  # `Nx.Defn.shard_jit` on one device: whole arguments of their shards, and results cut again.
  @compile {:no_warn_undefined, [Nx, Nx.Defn.Composite]}
  alias Nx.Defn.Composite

  @doc "For each argument and dimension the mesh's axes that cut it."
  def axes(mesh, shardings, vars) do
    if not is_list(shardings),
      do: raise(ArgumentError, "input_shardings are required for sharding")

    if length(shardings) != length(vars) do
      raise ArgumentError,
            "expected #{length(vars)} input sharding configuration(s), got #{length(shardings)}"
    end

    Enum.zip_with(shardings, vars, &of_argument(mesh, &1, &2))
  end

  defp of_argument(mesh, sharding, var) when is_map(sharding) do
    cuts = for {dimension, axes} <- sharding, do: {Nx.axis_index(var, dimension), axes}
    used = Enum.flat_map(cuts, &elem(&1, 1))
    count = tuple_size(mesh.shape)

    for axis <- used, axis not in 0..(count - 1)//1 do
      raise ArgumentError, "axis #{inspect(axis)} is not valid for mesh with #{count} axes"
    end

    for axis <- used -- Enum.uniq(used) do
      raise ArgumentError, "axis #{axis} was used twice in the same input sharding"
    end

    for {dimension, _} <- cuts -- Enum.uniq_by(cuts, &elem(&1, 0)) do
      raise ArgumentError, "tensor dimension of index #{dimension} was specified multiple times"
    end

    cuts = Map.new(cuts)
    for dimension <- Nx.axes(var.shape), do: Map.get(cuts, dimension, [])
  end

  defp of_argument(_mesh, sharding, _var) do
    raise ArgumentError, "expected input sharding to be a map, got: #{inspect(sharding)}"
  end

  @doc "The whole of a shard."
  def whole(mesh, var, axes) do
    sizes = Enum.zip_with(Tuple.to_list(var.shape), axes, &(&1 * parts(mesh, &2)))
    %{var | shape: List.to_tuple(sizes)}
  end

  @doc "Puts an argument together of its shards; copies of one must be equal."
  def assemble(mesh, var, axes, shards) do
    shards = Enum.map(shards, &Nx.backend_copy(&1, Nx.BinaryBackend))

    for shard <- shards, {shard.shape, shard.type} != {var.shape, var.type} do
      raise ArgumentError,
            "shards of an argument must be alike: expected #{inspect(var.shape)} of " <>
              "#{inspect(var.type)}, got #{inspect(shard.shape)} of #{inspect(shard.type)}"
    end

    places = for partition <- partitions(mesh), do: place(mesh, partition, axes)
    blocks = Enum.zip(places, shards)
    first = Enum.uniq_by(blocks, &elem(&1, 0))
    bytes = Map.new(first, fn {place, shard} -> {place, Nx.to_binary(shard)} end)

    for {place, shard} <- blocks, Nx.to_binary(shard) != bytes[place] do
      raise ArgumentError,
            "partitions that hold the same part of an argument gave it different values"
    end

    join(first, 0)
  end

  defp join([{[], shard}], _dimension), do: shard
  defp join([{place, shard}], dimension) when length(place) == dimension, do: shard

  defp join(blocks, dimension) do
    blocks
    |> Enum.group_by(fn {place, _} -> Enum.at(place, dimension) end)
    |> Enum.sort_by(&elem(&1, 0))
    |> Enum.map(fn {_, blocks} -> join(blocks, dimension + 1) end)
    |> Nx.concatenate(axis: dimension)
  end

  @doc "The results of each partition."
  def cut(mesh, traced, inputs, results) do
    for partition <- partitions(mesh) do
      {cut, []} =
        Composite.traverse(results, Composite.flatten_list([traced]), fn result, [out | rest] ->
          axes = fit(mesh, out.shape, spread(out, inputs))
          sizes = Enum.zip_with(Tuple.to_list(out.shape), axes, &div(&1, parts(mesh, &2)))
          starts = Enum.zip_with(place(mesh, partition, axes), sizes, &(&1 * &2))
          {Nx.slice(result, starts, sizes), rest}
        end)

      cut
    end
  end

  # A dimension that cannot be cut evenly is whole everywhere.
  defp fit(mesh, shape, axes) do
    Enum.zip_with(Tuple.to_list(shape), axes, fn size, axes ->
      if rem(size, parts(mesh, axes)) == 0, do: axes, else: []
    end)
  end

  # How a value is cut, by what it is made of; whole where dimensions are not those of operands.
  defp spread(%{data: %{op: :parameter, args: [i]}}, inputs), do: Enum.at(inputs, i)

  defp spread(%{data: %{op: :transpose, args: [of, axes]}}, inputs) do
    cuts = spread(of, inputs)
    Enum.map(axes, &Enum.at(cuts, &1))
  end

  defp spread(%{data: %{op: op, args: [of | _]}} = out, inputs)
       when op in [:window_sum, :window_max, :window_min, :window_product] do
    if Nx.rank(of) == Nx.rank(out), do: spread(of, inputs), else: whole(out)
  end

  @elementwise [:add, :subtract, :multiply, :divide, :pow, :min, :max, :negate, :exp, :log] ++
                 [:tanh, :sin, :cos, :sqrt, :rsqrt, :abs, :sigmoid, :as_type]
  defp spread(%{data: %{op: op, args: args}} = out, inputs) when op in @elementwise do
    for(%{shape: _} = operand <- args, do: aligned(operand, out, inputs))
    |> Enum.reduce(&merge/2)
  end

  defp spread(out, _inputs), do: whole(out)

  defp whole(out), do: for(_ <- Nx.axes(out.shape), do: [])

  defp aligned(operand, out, inputs) do
    missing = List.duplicate([], tuple_size(out.shape) - tuple_size(operand.shape))
    missing ++ spread(operand, inputs)
  end

  defp merge(second, first) do
    used = Enum.concat(first)

    Enum.zip_with(first, second, fn
      [], axes -> if Enum.any?(axes, &(&1 in used)), do: [], else: axes
      axes, _ -> axes
    end)
  end

  defp parts(mesh, axes), do: Enum.reduce(axes, 1, &(&2 * elem(mesh.shape, &1)))

  # Places of the mesh, the last axis fastest.
  defp partitions(mesh) do
    Enum.reduce(Tuple.to_list(mesh.shape), [[]], fn size, places ->
      for place <- places, i <- 0..(size - 1)//1, do: place ++ [i]
    end)
  end

  defp place(mesh, partition, axes) do
    for cuts <- axes do
      Enum.reduce(cuts, 0, &(&2 * elem(mesh.shape, &1) + Enum.at(partition, &1)))
    end
  end

  def count(mesh), do: mesh.shape |> Tuple.to_list() |> Enum.product()
end
