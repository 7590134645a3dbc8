defmodule Postern.Shards do
  @moduledoc """
  An array over several devices, by its parts.

  As an argument: `mesh` is the shape of a grid of the first devices, row-major, `{2, 2}` of four;
  `cuts` has for each axis of the array the axes of the mesh that cut it; `parts` is a tensor for
  each device. Devices along axes that cut nothing have copies of a part, which must be equal; with
  `compare: false` nobody looks. A program that is given one runs on all devices of the grid, each
  on its part; XLA cuts it.

      halves = %Postern.Shards{mesh: {2}, cuts: [[0]], parts: [first, second]}
      {:ok, [sum]} = Postern.run(program, [halves], shards: true)
      [{0, of_device_0}, {1, of_device_1}] = sum

  With `shards: true` each result is a list of pairs of a device and the tensor that it has;
  otherwise results are put together.
  """
  @enforce_keys [:mesh, :cuts, :parts]
  defstruct [:mesh, :cuts, :parts, compare: true]

  @type t :: %__MODULE__{
          mesh: tuple,
          cuts: [[non_neg_integer]],
          parts: [Postern.Tensor.t()],
          compare: boolean
        }

  @doc false
  # The sharding is JSON.
  def to_nif(%__MODULE__{mesh: mesh, cuts: cuts, parts: parts, compare: compare} = shards) do
    good =
      is_tuple(mesh) and is_list(parts) and is_boolean(compare) and Enum.all?(cuts, &is_list/1)

    if not (good and Enum.all?(Tuple.to_list(mesh) ++ Enum.concat(cuts), &is_integer/1)) do
      raise ArgumentError,
            "Postern.Shards has a mesh as {2, 2}, cuts as [[0], [1]] and a list of parts, got: " <>
              inspect(shards)
    end

    axes = for {size, i} <- Enum.with_index(Tuple.to_list(mesh)), do: ["axis_#{i}", size]
    spec = for axes <- cuts, do: for(axis <- axes, do: "axis_#{axis}")
    devices = Enum.to_list(0..(length(parts) - 1)//1)
    mesh = ~s({"axes": #{json(axes)}, "devices": #{json(devices)}})
    sharding = ~s({"mesh": #{mesh}, "spec": #{json(spec)}})
    %{parts: parts, sharding: sharding, compare: compare}
  end

  # Of integers and of texts that need no escapes.
  defp json(list), do: inspect(list, limit: :infinity, charlists: :as_lists)
end
