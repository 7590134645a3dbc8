# `Nx.Defn.shard_jit`, with Nx: scripts/try_nx runs it.
Code.ensure_loaded?(ExUnit) && ExUnit.start(timeout: 120_000)
for application <- [:nx, :postern], do: {:ok, _} = Application.ensure_all_started(application)

defmodule Postern.NxShardingTest do
  use ExUnit.Case, async: true

  @mesh %{__struct__: Nx.Mesh, name: "mesh", shape: {2, 2}}

  defp shard(fun, shardings, lists) do
    options = [compiler: Postern.Defn, input_shardings: shardings]
    Enum.map(Nx.Defn.shard_jit(fun, @mesh, options).(lists), &Nx.to_flat_list/1)
  end

  test "sees the whole and gives parts" do
    lists = for i <- 0..3, do: [Nx.tensor([[i]])]
    cut = [%{0 => [0], 1 => [1]}]
    assert shard(&Nx.transpose/1, [%{0 => [0, 1]}], lists) == [[0], [1], [2], [3]]
    assert shard(&Nx.sum/1, cut, lists) == [[6], [6], [6], [6]]
    assert shard(&Nx.add(&1, 1), cut, lists) == [[1], [2], [3], [4]]
  end

  test "refuses what does not fit" do
    lists = for i <- 0..3, do: [Nx.tensor([[i]])]

    for {shardings, lists} <- [
          {nil, lists},
          {[], lists},
          {[%{0 => [2]}], lists},
          {[%{0 => [0], 1 => [0]}], lists},
          {[%{3 => [0]}], lists},
          {[%{0 => [0]}], tl(lists)},
          {[%{0 => [0]}], lists}
        ] do
      assert_raise ArgumentError, fn -> shard(&Nx.add(&1, 1), shardings, lists) end
    end
  end
end
