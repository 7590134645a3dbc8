defmodule Postern.Lower do
  @moduledoc false
  # Expressions of Nx as StableHLO text. Nothing here needs Nx: a node is a map with `type`, `shape`
  # and, in `data`, `id`, `op` and `args`, be it Nx's structure or one that was recorded.
  #
  # What calls back becomes a custom call by a name of its own, and is noted as a site.
  import Postern.Lower.Text
  alias Postern.Lower.{Elementwise, Linalg, Operations, Plan, Products, Reducing, Shaping, Types}

  @doc """
  The program of what `container` holds: its text, the positions of the arguments that it takes, and
  its sites, maps of `kind` (:runtime_call, :io_call or :block) and what the node says.

    * `:hooks` - of named io_calls those that somebody listens to; the others are left out.
      All, unless given
    * `:block` - what stands for a block: a function of its structure, its operands and what it
      is itself, which gives :default; `{:call, target, attributes, types or :default, options}`;
      `{:container, container}`, in which operands are parameters; `{:host, function}`
    * `:precision` - of products: :default, :high or :highest
    * `:mesh` - the name and the sizes of a mesh that it runs on, and by argument, of each its
      dimensions, the mesh's axes that cut it: it is written in the text
  """
  def program(container, options \\ []) do
    options = validated(options)
    precision = options[:precision]

    if precision not in [:default, :high, :highest] do
      raise ArgumentError,
            "expected precision configuration to be one of :default, :high, or :highest, got: " <>
              inspect(precision)
    end

    roots = Plan.leaves(container)
    inputs = inputs(roots)
    positions = Enum.map(inputs, &elem(&1, 0))
    types = for {_, node} <- inputs, do: {node.type, shape(node)}

    context = %{hooks: options[:hooks], block: options[:block] || fn _, _, _ -> :default end}

    mesh =
      with {name, sizes, cuts} <- options[:mesh],
           do: {name, sizes, Enum.map(positions, &Enum.at(cuts, &1))}

    {text, sites} =
      module(types, precision, mesh, fn arguments ->
        scope(roots, Map.put(context, :parameters, Map.new(Enum.zip(positions, arguments))))
      end)

    %{text: text, inputs: positions, sites: sites}
  end

  @options [hooks: :all, block: nil, precision: :default, mesh: nil]
  defp validated(options),
    do: Postern.Options.validate!(options, @options, "Postern.Lower")

  # By position.
  defp inputs(roots) do
    roots
    |> Plan.of()
    |> Map.values()
    |> List.flatten()
    |> Enum.filter(&(&1.data.op == :parameter))
    |> Map.new(fn %{data: %{args: [position]}} = node -> {position, node} end)
    |> Enum.sort()
  end

  @doc false
  # Vectorised axes come first.
  def shape(%{shape: shape} = node) do
    axes = for {_, size} <- Map.get(node, :vectorized_axes, []), do: size
    List.to_tuple(axes ++ Tuple.to_list(shape))
  end

  defp out(node), do: %{type: node.type, shape: shape(node)}

  ## Scopes

  # The values of expressions that use nothing from outside but parameters.
  defp scope(roots, context) do
    plan = Plan.of(roots)
    values = branch([], plan, %{}, context)
    Enum.map(roots, &Map.fetch!(values, &1.data.id))
  end

  defp branch(path, plan, values, context) do
    plan
    |> Map.get(path, [])
    |> Enum.reduce(values, fn node, values ->
      Map.put(values, node.data.id, write(node, values, {plan, path, context}))
    end)
  end

  defp value(%{data: %{id: id}}, values), do: Map.fetch!(values, id)

  defp values_of(container, values),
    do: for(leaf <- Plan.leaves(container), do: value(leaf, values))

  ## Nodes: a value, or a list of the values of a tuple

  defp write(%{data: %{op: :parameter, args: [position]}}, _values, {_, _, context}),
    do: Map.fetch!(context.parameters, position)

  defp write(%{data: %{op: :elem, args: [tuple, i]}}, values, _),
    do: tuple |> value(values) |> Enum.at(i)

  defp write(%{data: %{op: :metadata, args: [container, _]}} = node, values, _),
    do: shaped(values_of(container, values), node)

  # A function of values, for the bodies of others.
  defp write(%{data: %{op: :fun, args: [_, body | _]}} = node, _values, {_, _, context}) do
    fn arguments ->
      parameters = arguments |> Enum.with_index() |> Map.new(fn {value, i} -> {i, value} end)
      results = scope(Plan.leaves(body), %{context | parameters: parameters})

      if match?({:tuple, _}, node.type),
        do: results,
        else: Enum.map(results, &convert(&1, node.type))
    end
  end

  defp write(%{data: %{op: :tensor, args: [tensor]}} = node, _values, _),
    do: Operations.write(:tensor, [tensor.data.state], out(node))

  defp write(%{data: %{op: :while, args: [initial, _, condition, body]}} = node, values, at),
    do: while(values_of(initial, values), condition, body, node, at)

  defp write(
         %{data: %{op: :cond, id: id, args: [clauses, last]}} = node,
         values,
         {_, path, _} = at
       ) do
    effects = effects?(Plan.children(node), at)
    clauses = Enum.with_index(clauses)
    shaped(choose(clauses, last, {id, path, effects}, values, at), node)
  end

  defp write(%{data: %{op: :block, args: [struct, arguments, body | _]}} = node, values, at),
    do: block(struct, arguments, body, node, values, at)

  # Of Nx 0.9 to 0.12.
  defp write(%{data: %{op: :optional, args: [call, body | _]}} = node, values, {_, _, context}) do
    operands = for child <- Plan.children(call), do: value(child, values)
    shaped(inside(body, operands, context), node)
  end

  defp write(%{data: %{op: :token, args: [token]}}, values, at) do
    for %{expr: expr, name: name, callback: fun} <- token.hooks do
      io_call(expr, {:named, name, fun}, values, at)
    end

    []
  end

  defp write(%{data: %{op: :attach_token, args: [_token, expr]}}, values, _),
    do: value(expr, values)

  defp write(%{data: %{op: :io_call, args: [tensors, spec | _]}} = node, values, at) do
    shaped(io_call(tensors, spec, values, at), node)
  end

  defp write(%{data: %{op: :runtime_call, args: args}} = node, values, _) do
    [tensors, fun, template | options] = args
    # Of Nx 0.11 the function has them itself.
    options = List.first(options)
    results = for leaf <- Plan.leaves(template), do: {leaf.type, shape(leaf)}

    site = %{
      kind: :runtime_call,
      tensors: tensors,
      fun: fun,
      template: template,
      options: options
    }

    shaped(site(site, values_of(tensors, values), results), node)
  end

  defp write(%{data: %{op: op, args: args}} = node, values, _),
    do: Operations.write(op, resolved(args, values), out(node))

  # The values of the nodes among arguments.
  defp resolved(list, values) when is_list(list), do: Enum.map(list, &resolved(&1, values))
  defp resolved(%{data: %{id: _}} = node, values), do: value(node, values)
  defp resolved(other, _values), do: other

  defp shaped(values, %{type: {:tuple, _}}), do: values
  defp shaped([value], _node), do: value

  ## What calls back

  # Its token orders it behind all that came before.
  defp io_call(tensors, spec, values, {_, _, context}) do
    operands = values_of(tensors, values)

    if active?(spec, context) do
      site = %{kind: :io_call, tensors: tensors, spec: spec}
      [token] = site(site, [token() | operands], [{:token, {}}])
      token(token)
    end

    operands
  end

  defp site(site, operands, results) do
    name = site_name(site, note(site))
    custom_call(name, operands, results, [], has_side_effect: "true")
  end

  @doc "The name by which the i-th site is called: what it enters, as far as that has a name."
  def site_name(site, i), do: String.replace("#{called(site)} ##{i}", ["\"", "\\"], "_")

  @doc "What a site enters: a hook's name, or a function's with its module."
  def called(%{kind: :block, struct: struct}), do: inspect(struct.__struct__)
  def called(%{kind: :io_call, spec: {:named, name, _}}), do: to_string(name)
  def called(%{kind: :io_call, spec: {_, fun}}), do: function_name(fun)
  def called(%{fun: fun}), do: function_name(fun)

  defp function_name(fun) when is_function(fun) do
    info = Function.info(fun)
    "#{inspect(info[:module])}.#{info[:name]}/#{info[:arity]}"
  end

  defp function_name(other), do: inspect(other)

  # With a function of its own, or one that the run brings.
  defp active?({:named, name, nil}, %{hooks: hooks}) when is_list(hooks), do: name in hooks
  defp active?(_spec, _context), do: true

  defp effects?(roots, {_, _, context}) do
    Plan.any?(roots, fn
      %{data: %{op: :io_call, args: [_, spec | _]}} -> active?(spec, context)
      %{data: %{op: :token}} -> true
      _ -> false
    end)
  end

  ## Control flow; where effects are inside, the order of effects goes through it

  defp while(initial, condition, body, node, {_, _, context} = at) do
    effects = effects?([condition | Plan.leaves(body)], at)
    carried = if effects, do: [token() | initial], else: initial
    types = for {_, type, shape} <- carried, do: {type, shape}

    inside = fn roots, arguments ->
      arguments = ordered(arguments, effects)
      parameters = arguments |> Enum.with_index() |> Map.new(fn {value, i} -> {i, value} end)
      scope(roots, %{context | parameters: parameters})
    end

    condition =
      region(types, fn arguments ->
        [value] = inside.([condition], arguments)
        [Elementwise.truth(value)]
      end)

    body =
      region(types, fn arguments ->
        values = inside.(Plan.leaves(body), arguments)
        values = for {value, {_, type, _}} <- Enum.zip(values, initial), do: convert(value, type)
        if effects, do: [token() | values], else: values
      end)

    results = ops("stablehlo.while", carried, types, [], [condition, body])
    shaped(ordered(results, effects), node)
  end

  # From now on what comes is behind the token that stands first.
  defp ordered(values, false), do: values

  defp ordered([token | values], true) do
    token(token)
    values
  end

  defp choose(
         [{{predicate, on_true}, i} | clauses],
         last,
         {id, path, effects} = where,
         values,
         at
       ) do
    {plan, _, context} = at
    predicate = Elementwise.truth(value(predicate, values))
    if effects, do: token(token())
    on_false_path = path ++ [{id, {i, false}}]

    on_true =
      region([], fn [] ->
        results = branch(path ++ [{id, {i, true}}], plan, values, context)
        with_token(values_of(on_true, results), effects)
      end)

    types = types_of(last)

    on_false =
      region([], fn [] ->
        inner = branch(on_false_path, plan, values, context)

        results =
          if clauses == [],
            do: values_of(last, inner),
            else: choose(clauses, last, put_elem(where, 1, on_false_path), inner, at)

        with_token(results, effects)
      end)

    types = if effects, do: [{:token, {}} | types], else: types
    ordered(ops("stablehlo.if", [predicate], types, [], [on_true, on_false]), effects)
  end

  defp types_of(container), do: for(leaf <- Plan.leaves(container), do: {leaf.type, shape(leaf)})

  defp with_token(values, true), do: [token() | values]
  defp with_token(values, false), do: values

  ## Blocks: a kernel, an operation, or what the block says itself

  defp block(struct, arguments, body, node, values, {_, _, context}) do
    operands = for %{data: _} = argument <- arguments, do: argument
    given = Enum.map(operands, &value(&1, values))

    case context.block.(struct, operands, body) do
      :default ->
        shaped(native(struct, given, Plan.leaves(body)) || inside(body, given, context), node)

      {:call, target, attributes, types, options} ->
        types = if types == :default, do: Enum.map(given, &elem(&1, 1)), else: types
        given = for {value, type} <- Enum.zip(given, types), do: convert(value, type)
        shaped(custom_call(target, given, types_of(body), attributes, options), node)

      {:container, container} ->
        shaped(inside(container, given, context), node)

      {:host, fun} ->
        results = Plan.leaves(body)
        # A tuple of its operands, as it is called with it.
        site = %{kind: :block, struct: struct, tensors: operands, fun: fun, template: results}
        shaped(site(site, given, types_of(body)), node)
    end
  end

  defp inside(body, operands, context) do
    parameters = operands |> Enum.with_index() |> Map.new(fn {value, i} -> {i, value} end)
    scope(Plan.leaves(body), %{context | parameters: parameters})
  end

  # What XLA has an operation for; nil for others.
  defp native(struct, operands, [_ | _] = results) do
    [out | _] = outs = Enum.map(results, &out/1)

    case {Map.get(struct, :__struct__), operands} do
      {Nx.Block.Take, [x, index]} -> [Shaping.take([x, index], out, struct.axis)]
      {Nx.Block.TopK, [x]} -> top_k(x, outs, struct.k)
      {Nx.Block.FFT2, [x]} -> [Products.fft2([x, Map.to_list(struct)], out, "FFT")]
      {Nx.Block.IFFT2, [x]} -> [Products.fft2([x, Map.to_list(struct)], out, "IFFT")]
      {Nx.Block.RFFT, [x]} -> [Products.fft([x, Map.to_list(struct)], out, "RFFT")]
      {Nx.Block.IRFFT, [x]} -> [Products.fft([x, Map.to_list(struct)], out, "IRFFT")]
      {Nx.Block.LinAlg.Cholesky, [a]} -> Linalg.cholesky(a, outs)
      {Nx.Block.LinAlg.QR, [a]} -> Linalg.qr(a, outs, struct.mode)
      {Nx.Block.LinAlg.Eigh, [a]} -> Linalg.eigh(a, outs)
      {Nx.Block.LinAlg.SVD, [a]} -> Linalg.svd(a, outs, struct.full_matrices?)
      _ -> nil
    end
  end

  defp native(_struct, _operands, []), do: nil

  defp top_k({_, type, _} = x, outs, k) do
    if Types.integer?(type) or Types.float?(type), do: Reducing.top_k([x], outs, k)
  end
end
