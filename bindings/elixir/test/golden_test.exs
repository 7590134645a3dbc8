defmodule Postern.GoldenTest do
  @moduledoc """
  Expressions of Nx that scripts/golden_nx recorded, with inputs and the values that
  Nx.BinaryBackend made of them: written as text, compiled, run and compared. Nx isn't needed.
  """
  use Postern.Case, async: true
  alias Postern.Lower
  alias Postern.Lower.Types

  @path Path.expand("../../../tests/data/nx.etf", __DIR__)
  @external_resource @path

  # Each test reads them: a term that is sent to another process is a tree, and no graph.
  defp cases, do: @path |> File.read!() |> :erlang.binary_to_term()

  # Nodes with those that they use in their place.
  defp expression(%{nodes: nodes, roots: roots} = one) do
    nodes =
      Enum.reduce(nodes, %{}, fn {id, node}, nodes ->
        data = %{id: id, op: node.op, args: whole(node.op, filled(node.args, nodes))}
        Map.put(nodes, id, %{type: node.type, shape: node.shape, data: data})
      end)

    Map.put(one, :container, filled(roots, nodes))
  end

  defp whole(:block, [struct | rest]), do: [Map.new(struct) | rest]
  defp whole(_op, args), do: args

  defp filled({:"$node", id}, nodes), do: Map.fetch!(nodes, id)
  defp filled(list, nodes) when is_list(list), do: Enum.map(list, &filled(&1, nodes))

  defp filled(tuple, nodes) when is_tuple(tuple),
    do: tuple |> Tuple.to_list() |> filled(nodes) |> List.to_tuple()

  defp filled(other, _nodes), do: other

  test "are at least 400, and have every operation and type" do
    cases = cases()
    assert length(cases) >= 400
    used = for %{nodes: nodes} <- cases, {_, node} <- nodes, uniq: true, do: node.op
    assert Lower.Operations.names() -- used == []

    control = [:parameter, :elem, :metadata, :fun, :while, :cond, :block, :io_call, :runtime_call]
    assert control -- used == []

    types = for %{nodes: nodes} <- cases, {_, node} <- nodes, uniq: true, do: node.type

    all =
      [f: 8, f8_e4m3fn: 8, f: 16, bf: 16, f: 32, f: 64, c: 64, c: 128] ++
        for(kind <- [:s, :u], bits <- [2, 4, 8, 16, 32, 64], do: {kind, bits})

    assert all -- types == []
  end

  # Of Nx 0.9 to 0.12, which no script records.
  test "may have tokens and optional operations" do
    node = fn op, args ->
      %{type: {:f, 32}, shape: {2}, data: %{id: make_ref(), op: op, args: args}}
    end

    x = node.(:parameter, [0])
    hook = %{expr: node.(:negate, [x]), name: :seen, callback: :note}
    token = %{node.(:token, [%{hooks: [hook]}]) | type: {:tuple, 0}}
    default = node.(:add, [node.(:parameter, [0]), node.(:parameter, [1])])
    call = node.(:made_up, [x, node.(:multiply, [x, x]), [axis: 0]])
    result = node.(:attach_token, [token, node.(:optional, [call, default, nil])])

    one = %{
      container: result,
      inputs: [{{:f, 32}, {2}, <<3.0::float-32-native, 4.0::float-32-native>>}]
    }

    assert {:ok, [sum], [{:seen, [[-3.0, -4.0]]}]} = run(one)
    assert Tensor.to_list(sum) == [12.0, 20.0]
  end

  test "are listed on a page" do
    page = File.read!(Path.expand("../../../docs/elixir.md", __DIR__))
    assert for(name <- Lower.Operations.names(), not (page =~ "`#{name}`"), do: name) == []
  end

  # In parts, so that a failure doesn't hide the others, and none takes long.
  for part <- 0..7 do
    test "give what Nx gives, part #{part}" do
      wrong =
        for one <- cases() |> Enum.drop(unquote(part)) |> Enum.take_every(8),
            what <- List.wrap(wrong(expression(one))),
            not (in_stages() and what =~ "handler \"lapack_"),
            do: {one.name, what}

      assert wrong == []
    end
  end

  defp in_stages, do: Application.fetch_env!(:postern, :test_in_stages)

  defp wrong(one) do
    case run(one) do
      {:ok, results, _} -> differences(results, one.outputs, one.name)
      {:error, error} -> error.message
    end
  end

  defp run(one) do
    lowered = Lower.program(one.container, hooks: [])
    inputs = for i <- lowered.inputs, do: one.inputs |> Enum.at(i) |> tensor()
    {:ok, agent} = Agent.start_link(fn -> [] end)

    functions =
      for {site, i} <- Enum.with_index(lowered.sites), into: %{} do
        {Lower.site_name(site, i), function(site, agent)}
      end

    with {:ok, program} <- Postern.load_text(lowered.text),
         {:ok, results} <- Postern.run(program, inputs, functions: functions) do
      {:ok, results, Enum.reverse(Agent.get(agent, & &1))}
    end
  end

  defp tensor({{kind, bits} = type, shape, data}) do
    data =
      cond do
        bits >= 8 -> data
        kind == :s -> for <<n::signed-size(bits) <- data>>, into: <<>>, do: <<n::signed-8>>
        kind == :u -> for <<n::size(bits) <- data>>, into: <<>>, do: <<n>>
      end

    %Tensor{type: Types.name(type), shape: shape, data: data}
  end

  # What the recorded functions do.
  defp function(%{kind: :io_call, spec: spec}, agent) do
    name = if match?({:named, _, _}, spec), do: elem(spec, 1)

    fn tensors ->
      Agent.update(agent, &[{name, Enum.map(tensors, fn x -> Tensor.to_list(x) end)} | &1])
    end
  end

  defp function(%{kind: :runtime_call, fun: fun, options: options}, _agent) do
    fn tensors ->
      case {fun, Enum.map(tensors, &Tensor.to_list/1)} do
        {:double, [x]} -> for n <- x, do: 2 * n
        {:offset, [x]} -> for n <- x, do: n + options[:by]
        {:both, [x, y]} -> {Enum.zip_with(x, y, &(&1 + &2)), Enum.zip_with(x, y, &(&1 - &2))}
        {:named, [a, b]} -> {a, Enum.zip_with(a, b, &(&1 + &2))}
      end
    end
  end

  defp differences(results, outputs, _name) when length(results) != length(outputs),
    do: "#{length(results)} results, not #{length(outputs)}"

  defp differences(results, outputs, name) do
    for {result, {type, shape, _} = output} <- Enum.zip(results, outputs),
        expected = tensor(output),
        {result.type, result.shape} != {expected.type, shape} or
          not close?(result.data, expected.data, tolerance(name, type)) do
      "#{inspect(numbers(result.data, type))} of #{result.type}#{inspect(result.shape)} instead " <>
        "of #{inspect(numbers(expected.data, type))} of #{expected.type}#{inspect(shape)}"
    end
  end

  @tolerances %{
    {:f, 16} => 4.0e-3,
    {:bf, 16} => 2.0e-2,
    {:f, 32} => 2.0e-5,
    {:f, 64} => 1.0e-9,
    {:c, 64} => 2.0e-5,
    {:c, 128} => 1.0e-9
  }

  # Nx.BinaryBackend's own has seven digits.
  defp tolerance("erf_inv f64", type), do: {type, 1.0e-6}
  defp tolerance(_name, type), do: {type, Map.get(@tolerances, type, 0)}

  defp close?(same, same, _tolerance), do: true

  defp close?(left, right, {type, tolerance}) do
    numbers(left, type)
    |> Enum.zip(numbers(right, type))
    |> Enum.all?(fn
      {a, b} when is_number(a) and is_number(b) -> abs(a - b) <= tolerance * max(1, abs(b))
      {a, b} -> a == b
    end)
  end

  defp numbers(data, {:c, bits}), do: numbers(data, {:f, div(bits, 2)})

  defp numbers(data, {kind, bits} = type) when kind in [:f, :bf] and bits > 8 do
    size = div(byte_size(data) * 8, bits)
    Tensor.to_list(%Tensor{type: Types.name(type), shape: {size}, data: data})
  end

  defp numbers(data, {:s, bits}) when bits >= 8,
    do: for(<<n::signed-native-size(bits) <- data>>, do: n)

  defp numbers(data, {:u, bits}) when bits >= 8, do: for(<<n::native-size(bits) <- data>>, do: n)
  defp numbers(data, _type), do: :binary.bin_to_list(data)

  test "show what they show, in the order of the program" do
    shown = fn name ->
      {:ok, _, shown} = cases() |> Enum.find(&(&1.name == name)) |> expression() |> run()
      shown
    end

    assert [{:a, [[2.0, 3.0, 4.0]]}, {:b, [_, [1.0, 2.0, 3.0]]}, {:c, _}] = shown.("io_many")
    assert [step: [[2.0, 4.0, 6.0]], step: _, step: [last]] = shown.("io_in_loop")
    assert last == [8.0, 16.0, 24.0]
    assert [positive: _] = shown.("io_in_branch")
    assert [negative: _] = shown.("io_in_branch low")
    assert [before: _, high: [[4.0, 8.0, 12.0]], behind: _] = shown.("io_around")
    assert [] = shown.("io_unheard")
    assert [{nil, [[2.0, 3.0, 4.0]]}] = shown.("io")
  end
end
