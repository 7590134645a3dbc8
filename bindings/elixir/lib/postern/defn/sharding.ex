defmodule Postern.Defn.Sharding do
  @moduledoc false
  # `Nx.Defn.shard_jit`: which devices have what of arguments and results.
  @compile {:no_warn_undefined, [Nx, Nx.Type, Nx.Defn.Composite]}
  alias Nx.Defn.Composite
  alias Postern.Defn.Values
  alias Postern.Shards

  @doc "For each argument and dimension the mesh's axes that cut it."
  def axes(mesh, shardings, vars) do
    require_mesh(mesh)

    if not is_list(shardings),
      do: raise(ArgumentError, "input_shardings are required for sharding")

    if length(shardings) != length(vars) do
      raise ArgumentError,
            "expected #{length(vars)} input sharding configuration(s), got #{length(shardings)}"
    end

    Enum.zip_with(shardings, vars, &of_argument(mesh, &1, &2))
  end

  defp require_mesh(%{shape: shape} = mesh) when is_tuple(shape) and tuple_size(shape) > 0 do
    if not Enum.all?(Tuple.to_list(shape), &(is_integer(&1) and &1 > 0)), do: no_mesh(mesh)
  end

  defp require_mesh(mesh), do: no_mesh(mesh)

  defp no_mesh(mesh) do
    raise ArgumentError,
          "a mesh has a name and the sizes of its axes, from 1 on, got: #{inspect(mesh)}"
  end

  defp of_argument(mesh, sharding, var) when is_map(sharding) do
    cuts = for {dimension, axes} <- sharding, do: {Nx.axis_index(var, dimension), axes}

    for {dimension, axes} <- cuts, not is_list(axes) do
      raise ArgumentError,
            "dimension #{dimension} is cut by a list of the mesh's axes, got: #{inspect(axes)}"
    end

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

  @doc "What the text says of the mesh: as `Postern.Lower` has it."
  def written(mesh, vars, inputs) do
    cuts = for {var, axes} <- Enum.zip(vars, inputs), do: vectorised(var) ++ axes
    {mesh.name, Tuple.to_list(mesh.shape), cuts}
  end

  defp vectorised(var), do: for(_ <- var.vectorized_axes, do: [])

  @doc "An argument of its shards, each of which goes to its device."
  def together(mesh, var, axes, shards, compare) do
    parts =
      for {shard, i} <- Enum.with_index(shards) do
        shard = shard.()

        if {shard.shape, shard.type, shard.vectorized_axes} !=
             {var.shape, var.type, var.vectorized_axes} do
          raise ArgumentError,
                "shards of an argument must be alike: that of partition 0 is #{text(var)}, " <>
                  "that of partition #{i} is #{text(shard)}"
        end

        Values.from_nx(shard)
      end

    %Shards{mesh: mesh.shape, cuts: vectorised(var) ++ axes, parts: parts, compare: compare}
  end

  defp text(tensor), do: "#{Nx.Type.to_string(tensor.type)}#{inspect(tensor.shape)}"

  @doc "The results of each partition, of what each device has of them."
  def results(mesh, outputs, shards) do
    shards = Enum.map(shards, &Map.new/1)

    for device <- 0..(count(mesh) - 1)//1 do
      {container, []} =
        Composite.traverse(outputs, shards, fn out, [of | rest] ->
          {of_device(of[device], out, device), rest}
        end)

      container
    end
  end

  # A part has sizes of its own.
  defp of_device(tensor, out, device) do
    {vectors, shape} = tensor.shape |> Tuple.to_list() |> Enum.split(length(out.vectorized_axes))
    axes = for {{name, _}, size} <- Enum.zip(out.vectorized_axes, vectors), do: {name, size}
    out = %{out | shape: List.to_tuple(shape), vectorized_axes: axes}
    Values.to_nx(tensor, out, device)
  end

  @doc "Refuses meshes that this process has not enough devices for."
  def require_devices(mesh) do
    {:ok, there} = Postern.device_count()

    if count(mesh) > there do
      raise ArgumentError,
            "the mesh #{inspect(mesh.name)} of shape #{inspect(mesh.shape)} has #{count(mesh)} " <>
              "devices, this system #{there}: Postern.configure(cpu_devices: #{count(mesh)}) " <>
              "before anything runs, or POSTERN_CPU_DEVICES"
    end
  end

  defp parts(mesh, axes), do: Enum.reduce(axes, 1, &(&2 * elem(mesh.shape, &1)))

  def count(mesh), do: mesh.shape |> Tuple.to_list() |> Enum.product()
end
