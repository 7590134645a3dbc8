# `Nx.Defn.shard_jit`, with Nx: scripts/try_nx runs it, on four devices.
Code.ensure_loaded?(ExUnit) && ExUnit.start(timeout: 120_000)
for application <- [:nx, :postern], do: {:ok, _} = Application.ensure_all_started(application)

defmodule Postern.NxShardingTest do
  use ExUnit.Case, async: true
  import Nx.Defn

  @mesh %{__struct__: Nx.Mesh, name: "mesh", shape: {2, 2}}
  @cut [%{0 => [0], 1 => [1]}]

  defp run(fun, shardings, lists, options \\ [], mesh \\ @mesh) do
    options = [compiler: Postern.Defn, input_shardings: shardings] ++ options
    Nx.Defn.shard_jit(fun, mesh, options).(lists)
  end

  defp shard(fun, shardings, lists, options \\ []),
    do: fun |> run(shardings, lists, options) |> Enum.map(&Nx.to_flat_list/1)

  defp parts, do: for(i <- 0..3, do: [Nx.tensor([[i]], type: :f32)])

  test "each device has its part, and what it makes of it" do
    assert shard(&Nx.transpose/1, [%{0 => [0, 1]}], parts()) == [[0.0], [1.0], [2.0], [3.0]]
    assert shard(&Nx.sum/1, @cut, parts()) == [[6.0], [6.0], [6.0], [6.0]]
    results = run(&Nx.add(&1, 1), @cut, parts())
    assert Enum.map(results, &Nx.to_flat_list/1) == [[1.0], [2.0], [3.0], [4.0]]
    assert for(%{data: %Postern.Backend{device: device}} <- results, do: device) == [0, 1, 2, 3]
    assert for(result <- results, do: result.shape) == List.duplicate({1, 1}, 4)
  end

  test "results go into the next, and several are a container" do
    twice = run(&Nx.multiply(&1, 2), @cut, parts())
    both = fn x -> %{sum: Nx.sum(x), row: {x, Nx.sum(x, axes: [0])}} end
    results = run(both, @cut, for(x <- twice, do: [x]))
    assert for(%{sum: sum} <- results, do: Nx.to_number(sum)) == [12.0, 12.0, 12.0, 12.0]

    assert for(%{row: {_, row}} <- results, do: Nx.to_flat_list(row)) == [
             [4.0],
             [8.0],
             [4.0],
             [8.0]
           ]
  end

  test "a product of a cut matrix and a whole one meets where it has to" do
    x = for i <- 0..3, do: Nx.iota({2, 4}, type: :f32) |> Nx.add(8 * div(i, 2))
    w = Nx.iota({4, 2}, type: :f32)
    lists = for part <- x, do: [part, w]
    results = run(&Nx.dot/2, [%{0 => [0]}, %{}], lists)
    whole = Nx.dot(Nx.concatenate([Enum.at(x, 0), Enum.at(x, 2)]), w)
    assert Nx.to_flat_list(Enum.at(results, 3)) == Nx.to_flat_list(whole[2..3])
  end

  test "what no argument leads to, and arguments that nobody uses" do
    assert shard(fn _ -> Nx.tensor(7) end, @cut, parts()) == [[7], [7], [7], [7]]
    two = for [x] <- parts(), do: [x, x]
    assert shard(fn _, y -> Nx.negate(y) end, @cut ++ [%{}], two, []) |> length() == 4
  end

  test "a mesh of one device, and vectorised axes" do
    mesh = %{@mesh | shape: {1}}
    assert [x] = run(&Nx.add(&1, 1), [%{0 => [0]}], [[Nx.tensor([1, 2])]], [], mesh)
    assert Nx.to_list(x) == [2, 3]
    lists = for [x] <- parts(), do: [Nx.vectorize(Nx.stack([x, Nx.multiply(x, 10)]), :v)]
    results = run(&Nx.add(&1, 1), @cut, lists)
    assert for(x <- results, do: x.vectorized_axes) == List.duplicate([v: 2], 4)
    flat = for x <- results, do: x |> Nx.devectorize() |> Nx.to_flat_list()
    assert flat == [[1.0, 1.0], [2.0, 11.0], [3.0, 21.0], [4.0, 31.0]]
  end

  def seen(x, options), do: send(options[:to], {:seen, Nx.to_flat_list(x)}) && Nx.multiply(x, 10)
  def failing(x, _), do: if(Nx.to_number(Nx.sum(x)) > 6, do: raise("too much"), else: x)

  defn looped(x) do
    while x, Nx.sum(x) < 1000 do
      call(x) * 2
    end
  end

  deftransformp(call(x), do: Nx.runtime_call(x, x, &__MODULE__.failing/2))

  test "what it calls sees the whole, once, and its failure ends the run, also in a loop" do
    me = self()
    call = fn x -> Nx.runtime_call(x, x, [to: me], &__MODULE__.seen/2) end
    assert shard(call, @cut, parts()) == List.duplicate([0.0, 10.0, 20.0, 30.0], 4)
    assert_received {:seen, [+0.0, 1.0, 2.0, 3.0]}
    refute_received {:seen, _}

    shown = &Nx.io_call(Nx.add(&1, 1), :shown)
    hooks = %{shown: &send(me, {:shown, Nx.to_flat_list(&1)})}
    assert shard(shown, @cut, parts(), hooks: hooks) == [[1.0], [2.0], [3.0], [4.0]]
    assert_received {:shown, [1.0, 2.0, 3.0, 4.0]}

    error = assert_raise Postern.Error, fn -> shard(&looped/1, @cut, parts()) end
    assert error.code == :threw
    assert error.message =~ "too much"
    assert shard(&Nx.add(&1, 1), @cut, parts()) == [[1.0], [2.0], [3.0], [4.0]]
  end

  def nested(x, _) do
    inner = fn x -> Nx.runtime_call(x, x, [], fn x, _ -> Nx.add(x, 1) end) end
    lists = for i <- 0..3, do: [Nx.reshape(x, {4, 1})[i..i]]
    parts = run(inner, [%{0 => [0, 1]}], lists)
    Nx.reshape(hd(parts), x.shape)
  end

  def slow(x, _), do: Process.sleep(3000) && x

  test "what it calls may run on the same devices, and has the time that there is" do
    call = fn x -> Nx.runtime_call(x, x, [], &__MODULE__.nested/2) end
    assert shard(call, @cut, parts()) == List.duplicate([1.0, 2.0, 3.0, 4.0], 4)
    slow = fn x -> Nx.runtime_call(x, x, [], &__MODULE__.slow/2) end

    for limit <- [[timeout: 100], [deadline: 100]] do
      error = assert_raise Postern.Error, fn -> shard(slow, @cut, parts(), limit) end
      assert error.code == :timeout
    end

    many = fn i -> shard(&Nx.add(&1, i), @cut, parts()) end
    results = Task.async_stream(1..12, many, max_concurrency: 6, timeout: 60_000)
    assert for({:ok, [[first] | _]} <- results, do: first) == for(i <- 1..12, do: 1.0 * i)
  end

  test "copies that differ are each device's own, unless they are compared" do
    lists = for i <- 0..3, do: [Nx.tensor([i])]
    assert shard(&Nx.add(&1, &1), [%{0 => [0]}], lists) == [[0], [2], [4], [6]]
    compared = fn -> shard(&Nx.add(&1, &1), [%{0 => [0]}], lists, compare_copies: true) end
    assert_raise Postern.Error, ~r/different values/, compared
  end

  test "refuses what does not fit" do
    wrong = Nx.tensor([[1, 2]], type: :f32)
    add = &Nx.add(&1, 1)

    for {why, shardings, lists, options, mesh} <- [
          {~r/are required/, nil, parts(), [], @mesh},
          {~r/expected 1 input sharding configuration\(s\), got 0/, [], parts(), [], @mesh},
          {~r/axis 2 is not valid for mesh with 2 axes/, [%{0 => [2]}], parts(), [], @mesh},
          {~r/axis 0 was used twice/, [%{0 => [0], 1 => [0]}], parts(), [], @mesh},
          {~r/invalid for shape with rank 2/, [%{3 => [0]}], parts(), [], @mesh},
          {~r/specified multiple times/, [%{0 => [0], -2 => [1]}], parts(), [], @mesh},
          {~r/a list of the mesh's axes/, [%{0 => 1}], parts(), [], @mesh},
          {~r/to be a map/, [[]], parts(), [], @mesh},
          {~r/of 4 partitions, got 3/, @cut, tl(parts()), [], @mesh},
          {~r/that of partition 3 is f32\{1, 2\}/, @cut, Enum.take(parts(), 3) ++ [[wrong]], [],
           @mesh},
          {~r/has 8 devices, this system 4/, @cut, parts() ++ parts(), [],
           %{@mesh | shape: {2, 4}}},
          {~r/sizes of its axes/, @cut, parts(), [], %{@mesh | shape: {2, 0}}},
          {~r/has no option :presicion/, @cut, parts(), [presicion: :high], @mesh}
        ] do
      assert_raise ArgumentError, why, fn -> run(add, shardings, lists, options, mesh) end
    end

    jit = fn options -> Nx.Defn.jit(add, [compiler: Postern.Defn] ++ options).(1) end
    assert_raise ArgumentError, ~r/no device mesh was/, fn -> jit.(input_shardings: []) end
    assert_raise ArgumentError, ~r/did you mean :timeout\?/, fn -> jit.(timeuot: 5) end
    assert_raise ArgumentError, ~r/:shared or :copied/, fn -> jit.(operands: :share) end
    assert %Nx.Tensor{} = jit.(client: :host, lazy_transfers: :always)
  end

  test "inspect says the mesh, and how arguments lie" do
    options = [mesh: %{@mesh | name: "2d"}, input_shardings: @cut]
    text = Postern.Defn.inspect(&Nx.add(&1, 1), parts(), options)
    assert text =~ ~s(sdy.mesh @"2d" = <["axis_0"=2, "axis_1"=2]>)
    assert text =~ ~s(tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@"2d", )
    assert text =~ ~s([{"axis_0", ?}p0, {"axis_1", ?}p0]>})
  end
end
