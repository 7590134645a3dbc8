defmodule Postern.Lower.Plan do
  @moduledoc false
  # Where the nodes of an expression are computed: each in the innermost branch that all its uses
  # are in, behind what it uses. So what only one branch needs is computed in that branch, also what
  # calls back, and what both need before them.
  #
  # A branch is named by its path: pairs of a cond's id and a place in it, {clause, boolean}, from
  # the outermost on. The second clause is tried where the first is false, and so on.

  @may_call [:io_call, :token, :while, :cond, :block]

  @doc """
  The nodes of each branch, in an order in which they can be computed; what may call back in the
  order in which it was made, as far as that is one.
  """
  def of(roots) do
    {found, _} = Enum.reduce(roots, {[], %{}}, &visit/2)
    first = found |> Enum.filter(&(&1.data.op in @may_call)) |> Enum.sort_by(& &1.data.id)
    {order, _} = Enum.reduce(first ++ roots, {[], %{}}, &visit/2)
    branches = Enum.reduce(roots, %{}, &used(&1, [], &2))

    branches =
      Enum.reduce(order, branches, fn node, all -> uses(node, all[node.data.id], all) end)

    order |> Enum.reverse() |> Enum.group_by(&branches[&1.data.id])
  end

  # Users come before what they use in the list that it gives.
  defp visit(%{data: %{id: id}} = node, {order, seen}) do
    if is_map_key(seen, id) do
      {order, seen}
    else
      {order, seen} = Enum.reduce(children(node), {order, Map.put(seen, id, true)}, &visit/2)
      {[node | order], seen}
    end
  end

  defp uses(%{data: %{op: :cond, id: id, args: [clauses, last]}}, path, branches) do
    {path, branches} =
      clauses
      |> Enum.with_index()
      |> Enum.reduce({path, branches}, fn {{predicate, body}, i}, {path, branches} ->
        branches = used(predicate, path, branches)
        {path ++ [{id, {i, false}}], used_all(body, path ++ [{id, {i, true}}], branches)}
      end)

    used_all(last, path, branches)
  end

  defp uses(node, path, branches), do: Enum.reduce(children(node), branches, &used(&1, path, &2))

  defp used_all(container, path, branches),
    do: container |> leaves() |> Enum.reduce(branches, &used(&1, path, &2))

  defp used(%{data: %{id: id}}, path, branches),
    do: Map.update(branches, id, path, &common(&1, path))

  defp common([same | left], [same | right]), do: [same | common(left, right)]
  defp common(_left, _right), do: []

  @doc "The nodes that a node of the same scope uses; a loop's body and such have their own."
  def children(%{data: %{op: op, args: args}}), do: children(op, args)

  defp children(:fun, _), do: []
  defp children(:parameter, _), do: []
  defp children(:tensor, _), do: []
  defp children(:while, [initial | _]), do: leaves(initial)
  defp children(:block, [_, arguments | _]), do: nodes(arguments)
  defp children(:optional, [call | _]), do: children(call)
  defp children(op, [tensors | _]) when op in [:io_call, :runtime_call], do: leaves(tensors)
  defp children(:metadata, [container, _]), do: leaves(container)
  defp children(:token, [%{hooks: hooks}]), do: Enum.flat_map(hooks, &leaves(&1.expr))

  defp children(:cond, [clauses, last]),
    do:
      Enum.flat_map(clauses, fn {predicate, body} -> [predicate | leaves(body)] end) ++
        leaves(last)

  defp children(_op, args), do: nodes(args)

  defp nodes(list) when is_list(list), do: Enum.flat_map(list, &nodes/1)
  defp nodes(%{data: %{id: _}} = node), do: [node]
  defp nodes(_other), do: []

  @doc "The tensors of a container, in its order."
  def leaves(%{data: _} = tensor), do: [tensor]
  def leaves(tuple) when is_tuple(tuple), do: tuple |> Tuple.to_list() |> Enum.flat_map(&leaves/1)
  def leaves(list) when is_list(list), do: Enum.flat_map(list, &leaves/1)
  # Structures are containers as Nx says.
  def leaves(%_{} = container), do: apply(Nx.Defn.Composite, :flatten_list, [[container]])

  def leaves(map) when is_map(map),
    do: map |> Enum.sort() |> Enum.flat_map(fn {_, value} -> leaves(value) end)

  def leaves(_other), do: []

  @doc """
  Whether anything in these expressions, loops' bodies and blocks included, is one of which `what`
  is true.
  """
  def any?(roots, what), do: roots |> Enum.reduce_while(%{}, &search(&1, what, &2)) == :found

  defp search(%{data: %{id: id}} = node, what, seen) do
    cond do
      is_map_key(seen, id) ->
        {:cont, seen}

      what.(node) ->
        {:halt, :found}

      true ->
        found = Enum.reduce_while(all(node), Map.put(seen, id, true), &search(&1, what, &2))
        if found == :found, do: {:halt, :found}, else: {:cont, found}
    end
  end

  @doc "What a node uses, and what is inside of it."
  def all(%{data: %{op: :while, args: [initial, _, condition, body]}}),
    do: leaves(initial) ++ [condition | leaves(body)]

  def all(%{data: %{op: :block, args: [_, arguments, body | _]}}),
    do: nodes(arguments) ++ leaves(body)

  def all(%{data: %{op: :optional, args: [call, body | _]}}), do: children(call) ++ leaves(body)
  def all(%{data: %{op: :fun, args: [_, body | _]}}), do: leaves(body)
  def all(node), do: children(node)
end
