# Records expressions of Nx, with inputs and what Nx.BinaryBackend makes of them, for tests that
# have no Nx: run by scripts/golden_nx. Terms are plain; a node of an expression is written once.
for application <- [:nx], do: {:ok, _} = Application.ensure_all_started(application)

defmodule Golden.Encode do
  alias Nx.Defn.{Composite, Expr}

  # {nodes, roots}: nodes are {id, node}, each behind those that it uses.
  def expression(container) do
    start = %{nodes: [], ids: %{}, refs: %{}}
    {roots, state} = Enum.map_reduce(Composite.flatten_list([container]), start, &node/2)
    # Ids are numbers in the order in which the nodes were made.
    order = state.refs |> Map.keys() |> Enum.sort() |> Enum.with_index() |> Map.new()
    rename = Map.new(state.ids, fn {ref, i} -> {i, order[ref]} end)
    {renamed(Enum.reverse(state.nodes), rename), renamed(roots, rename)}
  end

  defp renamed({:"$node", i}, rename), do: {:"$node", rename[i]}
  defp renamed(list, rename) when is_list(list), do: Enum.map(list, &renamed(&1, rename))

  defp renamed({:"$id", i, node}, rename), do: {rename[i], renamed(node, rename)}

  defp renamed(tuple, rename) when is_tuple(tuple),
    do: tuple |> Tuple.to_list() |> renamed(rename) |> List.to_tuple()

  defp renamed(map, rename) when is_map(map),
    do: Map.new(map, fn {key, value} -> {key, renamed(value, rename)} end)

  defp renamed(other, _), do: other

  defp node(%Nx.Tensor{data: %Expr{id: ref, op: op, args: args}} = tensor, state) do
    case state.ids do
      %{^ref => i} ->
        {{:"$node", i}, state}

      %{} ->
        {args, state} = arguments(op, args, state)
        i = map_size(state.ids)
        node = Map.merge(type(tensor), %{op: op, args: args})
        nodes = [{:"$id", i, node} | state.nodes]
        ids = Map.put(state.ids, ref, i)
        {{:"$node", i}, %{state | nodes: nodes, ids: ids, refs: Map.put(state.refs, ref, i)}}
    end
  end

  defp type(tensor) do
    tensor = Nx.devectorize(tensor)
    %{type: tensor.type, shape: tensor.shape}
  end

  # Of a node that is a parameter nothing but its position counts.
  defp arguments(:while, [initial, _arg, condition, body], state) do
    {list, state} = Enum.map_reduce([initial, condition, body], state, &encode/2)
    [initial, condition, body] = list
    {[initial, nil, condition, body], state}
  end

  defp arguments(:fun, [_args, body, _mfa], state) do
    {body, state} = encode(body, state)
    {[nil, body, nil], state}
  end

  defp arguments(:block, [struct, arguments, body, _fun], state) do
    {arguments, state} = encode(arguments, state)
    {body, state} = encode(body, state)
    {[Map.to_list(struct), arguments, body, nil], state}
  end

  defp arguments(:io_call, [tensors, spec, _template, _ref], state) do
    {tensors, state} = encode(leaves(tensors), state)
    {[tensors, plain(spec), nil, nil], state}
  end

  defp arguments(:runtime_call, [tensors, fun, template, options], state) do
    {tensors, state} = encode(leaves(tensors), state)
    {[tensors, plain(fun), Enum.map(leaves(template), &hole/1), options], state}
  end

  defp arguments(:metadata, [container, _], state) do
    {container, state} = encode(container, state)
    {[container, nil], state}
  end

  defp arguments(_op, args, state), do: encode(args, state)

  defp leaves(container), do: Composite.flatten_list([container])
  defp hole(tensor), do: Map.put(type(Nx.to_tensor(tensor)), :data, nil)

  defp encode(%Nx.Tensor{data: %Expr{}} = node, state), do: node(node, state)

  defp encode(%Nx.Tensor{data: %Nx.BinaryBackend{state: bits}} = tensor, state),
    do: {Map.put(type(tensor), :data, %{state: bits}), state}

  defp encode(list, state) when is_list(list), do: Enum.map_reduce(list, state, &encode/2)

  defp encode(%Complex{re: re, im: im}, state), do: {%{re: re, im: im}, state}
  defp encode(number, state) when is_number(number) or is_atom(number), do: {number, state}

  defp encode(tuple, state) when is_tuple(tuple) do
    {list, state} = encode(Tuple.to_list(tuple), state)
    {List.to_tuple(list), state}
  end

  # Functions by their names in Golden.Calls.
  defp plain({:fn, fun}), do: {:fn, plain(fun)}
  defp plain({:named, name, fun}), do: {:named, name, fun && plain(fun)}
  defp plain(fun), do: fun |> Function.info(:name) |> elem(1)
end

defmodule Golden.Calls do
  def double(x, _options), do: Nx.multiply(x, 2)
  def offset(x, options), do: Nx.add(x, options[:by])
  def both({x, y}, _options), do: {Nx.add(x, y), Nx.subtract(x, y)}
  def named(%{a: a, b: b}, _options), do: %{s: Nx.add(a, b), d: a}
  def widen(x, _options), do: Nx.as_type(x, :f64)
  def note(_tensors), do: :ok
end

defmodule Golden.Programs do
  import Nx.Defn
  alias Golden.Calls

  defn(newton(x), do: newton_steps(x))

  defnp newton_steps(x) do
    {y, _} =
      while {y = x, i = 0}, Nx.less(i, 6) do
        {(y + 2 / y) / 2, i + 1}
      end

    y
  end

  defn nested(x) do
    {x, _} =
      while {x, i = 0}, i < 3 do
        {x, _} =
          while {x, j = 0}, j < 2 do
            {x * 1.5, j + 1}
          end

        {x - 1, i + 1}
      end

    x
  end

  defn ranged(x) do
    while acc = x, i <- 0..4, unroll: 2 do
      acc + i
    end
  end

  defn over(x) do
    while acc = Nx.tensor(0.0), row <- x do
      acc + Nx.sum(row)
    end
  end

  defn branches(x) do
    cond do
      Nx.sum(x) > 10 -> x + 1
      Nx.sum(x) > 5 -> x * Nx.sin(x)
      Nx.sum(x) > 0 -> Nx.exp(x) - x
      true -> -x
    end
  end

  defn shared(x) do
    y = Nx.exp(x)
    if Nx.all(x > 0), do: {y, Nx.sin(y)}, else: {x, Nx.cos(y) + y}
  end

  defn inner(x) do
    if Nx.sum(x) > 0 do
      while x, Nx.sum(x) < 50 do
        x * 2
      end
    else
      if Nx.sum(x) < -3, do: x + 1, else: x - 1
    end
  end

  defn(slope(x), do: grad(x, fn x -> Nx.sum(Nx.sin(x) * Nx.exp(x)) end))
  defn(slope_of_loop(x), do: grad(x, fn x -> Nx.sum(newton_steps(x)) end))
  defn(slope_of_branch(x), do: grad(x, fn x -> Nx.sum(branches(x)) end))
  defn(both(x), do: value_and_grad(x, fn x -> Nx.mean(Nx.tanh(x) * x) end))

  defn layer(x, w, b) do
    {loss, {dw, db}} =
      value_and_grad({w, b}, fn {w, b} ->
        y = Nx.dot(x, w) + b
        Nx.mean(-Nx.log(Nx.sigmoid(y)))
      end)

    {loss, w - 0.1 * dw, b - 0.1 * db}
  end

  defn(stopped(x), do: grad(x, fn x -> Nx.sum(stop_grad(x) * x) end))
  defn(uniform(key), do: Nx.Random.uniform_split(key, 0.0, 1.0, shape: {5}))
  defn(normal(key), do: Nx.Random.normal_split(key, 0.0, 1.0, shape: {2, 3}))
  defn(randint(key), do: Nx.Random.randint_split(key, 0, 100, shape: {6}))
  defn(split(key), do: Nx.Random.split(key, parts: 3))
  defn(folded(key), do: Nx.Random.fold_in(key, 7))
  defn(shuffled(key, x), do: Nx.Random.shuffle(key, x))

  defn(call(x), do: Nx.runtime_call(x, x, &Calls.double/2) + 1)
  defn(call_options(x), do: Nx.runtime_call(x, x, [by: 3], &Calls.offset/2) * 2)
  defn(call_pair(x, y), do: Nx.runtime_call({x, x}, {x, y}, [], &Calls.both/2))

  defn(call_map(x, y),
    do: Nx.runtime_call(%{s: x, d: x}, %{a: x, b: y}, [], &Calls.named/2)
  )

  defn(call_twice(x), do: call(call(x)))

  defn call_in_loop(x) do
    while x, Nx.sum(x) < 100 do
      Nx.runtime_call(x, x, &Calls.double/2)
    end
  end

  defn call_in_branch(x) do
    if Nx.sum(x) > 0, do: Nx.runtime_call(x, x, &Calls.double/2), else: x - 1
  end

  defn(io(x), do: io_call(x + 1, &Calls.note/1) * 2)
  defn(io_named(x), do: io_call(x * 2, :value, &Calls.note/1))
  defn(io_unheard(x), do: io_call(x * 2, :unheard) + 1)

  defn io_many(x) do
    a = io_call(x + 1, :a, &Calls.note/1)
    b = io_call({x * 2, x}, :b, &Calls.note/1)
    c = io_call(x * 3, :c, &Calls.note/1)
    c + elem(b, 0) + a
  end

  defn io_in_loop(x) do
    {x, _} =
      while {x, i = 0}, i < 3 do
        {io_call(x * 2, :step, &Calls.note/1), i + 1}
      end

    x
  end

  defn io_in_branch(x) do
    if Nx.sum(x) > 0,
      do: io_call(x, :positive, &Calls.note/1),
      else: io_call(-x, :negative, &Calls.note/1)
  end

  defn io_around(x) do
    x = io_call(x, :before, &Calls.note/1)

    x =
      while x, Nx.sum(x) < 20 do
        if Nx.sum(x) > 10, do: io_call(x * 2, :high, &Calls.note/1), else: x * 2
      end

    io_call(x, :behind, &Calls.note/1)
  end
end

defmodule Golden do
  alias Golden.{Encode, Programs}

  @floats [f: 16, bf: 16, f: 32, f: 64]
  @integers [s: 8, s: 16, s: 32, s: 64, u: 8, u: 16, u: 32, u: 64]
  @small [{:s, 2}, {:s, 4}, {:u, 2}, {:u, 4}, {:f, 8}, {:f8_e4m3fn, 8}]
  @complex [c: 64, c: 128]

  def run(path) do
    cases =
      for {name, fun, arguments} <- all() do
        container = apply(Nx.Defn.debug_expr(fun), arguments)
        {nodes, roots} = Encode.expression(container)
        values = apply(Nx.Defn.jit(fun, compiler: Nx.Defn.Evaluator), arguments)
        inputs = for x <- Nx.Defn.Composite.flatten_list(arguments), do: tensor(x)
        outputs = for x <- Nx.Defn.Composite.flatten_list([values]), do: tensor(x)
        %{name: name, nodes: nodes, roots: roots, inputs: inputs, outputs: outputs}
      end

    names = Enum.map(cases, & &1.name)
    [] = names -- Enum.uniq(names)
    binary = :erlang.term_to_binary(cases, compressed: 9)
    File.write!(path, binary)
    IO.puts("#{length(cases)} expressions, #{byte_size(binary)} bytes")
  end

  defp tensor(tensor) do
    tensor = tensor |> Nx.to_tensor() |> Nx.devectorize()
    {tensor.type, tensor.shape, Nx.to_binary(tensor)}
  end

  # Numbers that a type has, some of them negative unless `positive`.
  defp numbers(shape, type, options \\ []) do
    size = Nx.size(shape)
    low = options[:low] || -2.0
    high = options[:high] || 2.5
    seed = options[:seed] || 1
    at = fn i -> low + (high - low) * :math.fmod(0.37 * (i + 1) * seed + 0.11, 1.0) end

    list =
      for i <- 0..(size - 1)//1 do
        case type do
          {:c, _} -> Complex.new(at.(i), at.(i + 7))
          {:u, _} -> abs(trunc(at.(i) * 3)) |> min(3)
          {:s, 2} -> rem(trunc(at.(i) * 2), 2)
          {:s, _} -> trunc(at.(i) * 3)
          _ -> at.(i)
        end
      end

    list |> Nx.tensor(type: type, backend: Nx.BinaryBackend) |> Nx.reshape(shape)
  end

  defp text({kind, bits}), do: "#{kind}#{bits}"

  defp all do
    unary() ++
      binary() ++
      creation() ++
      shaping() ++
      indexing() ++
      reductions() ++
      products() ++ blocks() ++ programs() ++ small()
  end

  defp case_of(name, type, fun, arguments), do: {"#{name} #{text(type)}", fun, arguments}

  defp unary do
    wide =
      [:exp, :expm1, :sigmoid, :cos, :sin, :tan, :cosh, :sinh, :tanh, :atan, :asinh] ++
        [:cbrt, :erf, :erfc, :floor, :ceil, :round, :negate, :abs, :sign, :is_nan, :is_infinity]

    positive = [:log, :log1p, :sqrt, :rsqrt]
    unit = [:acos, :asin, :atanh, :erf_inv]
    reals = @floats

    complex =
      [:exp, :log, :sin, :cos, :tanh, :sqrt, :negate, :abs, :real, :imag, :conjugate] ++
        [:is_nan, :is_infinity, :sigmoid, :rsqrt]

    for(op <- wide, type <- reals, do: unary(op, type, [])) ++
      for(op <- positive, type <- reals, do: unary(op, type, low: 0.1)) ++
      for(op <- unit, type <- reals, do: unary(op, type, low: -0.9, high: 0.9)) ++
      for(type <- reals, do: unary(:acosh, type, low: 1.1, high: 4.0)) ++
      for(op <- complex, type <- @complex, do: unary(op, type, [])) ++
      for(
        op <- [:bitwise_not, :population_count, :count_leading_zeros],
        type <- @integers,
        do: unary(op, type, [])
      ) ++
      for(op <- [:negate, :abs, :sign], type <- [s: 8, s: 64], do: unary(op, type, [])) ++
      for(op <- [:exp, :sqrt, :sin], type <- [s: 32, u: 8], do: unary(op, type, low: 1.0)) ++
      [{"sign u32", &Nx.sign/1, [numbers({4}, {:u, 32})]}] ++
      [{"logical_not f32", &Nx.logical_not/1, [Nx.tensor([0.0, 1.0, -2.0])]}] ++
      [
        {"is_nan of nan", &Nx.is_nan/1, [Nx.tensor([:nan, 1.0, :infinity, :neg_infinity])]},
        {"is_infinity of infinity", &Nx.is_infinity/1,
         [Nx.tensor([:nan, 1.0, :infinity, :neg_infinity])]}
      ]
  end

  defp unary(op, type, options) do
    case_of(op, type, &apply(Nx, op, [&1]), [numbers({6}, type, options)])
  end

  defp binary do
    arithmetic = [:add, :subtract, :multiply, :divide, :min, :max, :remainder, :atan2]
    compared = [:equal, :not_equal, :less, :less_equal, :greater, :greater_equal]
    logical = [:logical_and, :logical_or, :logical_xor]
    bits = [:bitwise_and, :bitwise_or, :bitwise_xor, :quotient]

    for(
      op <- arithmetic ++ compared,
      type <- [f: 32, f: 64, bf: 16, s: 32, u: 8],
      do: binary(op, type, [])
    ) ++
      for(op <- [:add, :subtract, :multiply, :divide, :equal, :not_equal], type <- @complex) do
        binary(op, type, [])
      end ++
      for(op <- logical, type <- [f: 32, u: 8, s: 64], do: binary(op, type, [])) ++
      for(op <- bits, type <- @integers, do: binary(op, type, low: 1.0)) ++
      for(
        op <- [:left_shift, :right_shift],
        type <- [s: 32, u: 8, s: 64],
        do: binary(op, type, low: 0.4, high: 1.4)
      ) ++
      for(type <- [f: 32, f: 64, s: 32], do: binary(:pow, type, low: 0.5)) ++
      [
        {"add mixed types", &Nx.add/2, [numbers({3}, {:s, 32}), numbers({2, 3}, {:f, 32})]},
        {"add u8 s8", &Nx.add/2, [numbers({3}, {:u, 8}), numbers({3}, {:s, 8})]},
        {"less u64 s64", &Nx.less/2, [numbers({3}, {:u, 64}), numbers({3}, {:s, 64})]},
        {"multiply f16 bf16", &Nx.multiply/2, [numbers({3}, {:f, 16}), numbers({3}, {:bf, 16})]},
        {"add number", &Nx.add(&1, 3), [numbers({3}, {:bf, 16})]},
        {"subtract rows", &Nx.subtract/2, [numbers({2, 1}, {:f, 32}), numbers({1, 3}, {:f, 32})]},
        {"select", &Nx.select/3,
         [Nx.tensor([1, 0, 1], type: :u8), numbers({3}, {:f, 32}), numbers({3}, {:s, 32})]},
        {"select scalar", &Nx.select/3,
         [Nx.tensor(0), numbers({3}, {:f, 32}), numbers({2, 3}, {:f, 32})]},
        {"clip", &Nx.clip(&1, -1, 1), [numbers({6}, {:f, 32})]},
        {"clip s32", &Nx.clip(&1, 0, 2), [numbers({6}, {:s, 32})]}
      ]
  end

  defp binary(op, type, options) do
    right = numbers({2, 3}, type, [low: 0.6, seed: 3] ++ Keyword.take(options, [:high]))
    case_of(op, type, &apply(Nx, op, [&1, &2]), [numbers({3}, type, options), right])
  end

  defp creation do
    types = @floats ++ @integers ++ @complex

    for(type <- types, do: case_of("iota", type, fn -> Nx.iota({2, 3}, type: type) end, [])) ++
      for(type <- types, do: case_of("eye", type, fn -> Nx.eye({2, 3}, type: type) end, [])) ++
      for type <- types do
        case_of(
          "constant",
          type,
          fn -> Nx.add(Nx.tensor(1, type: type), numbers({2}, type)) end,
          []
        )
      end ++
      for(from <- types, to <- [{:f, 32}, {:s, 32}, {:u, 8}], from != to) do
        if elem(from, 0) == :c and elem(to, 0) != :c,
          do:
            {"as_type #{text(from)} #{text(to)}", &Nx.as_type(Nx.real(&1), to),
             [numbers({4}, from, low: 0.0)]},
          else:
            {"as_type #{text(from)} #{text(to)}", &Nx.as_type(&1, to),
             [numbers({4}, from, low: 0.0)]}
      end ++
      [
        {"iota axis", fn -> Nx.iota({2, 3}, axis: 1) end, []},
        {"eye batch", fn -> Nx.eye({2, 2, 2}) end, []},
        {"bitcast f32", &Nx.bitcast(&1, :s32), [numbers({3}, {:f, 32})]},
        {"bitcast f64", &Nx.bitcast(&1, :u64), [numbers({3}, {:f, 64})]},
        {"complex", &Nx.complex/2, [numbers({3}, {:f, 32}), numbers({3}, {:f, 32}, seed: 2)]}
      ]
  end

  defp shaping do
    x = numbers({2, 3}, {:f, 32})
    y = numbers({2, 3}, {:s, 32}, seed: 2)

    [
      {"reshape", &Nx.reshape(&1, {3, 2}), [x]},
      {"flatten", &Nx.flatten/1, [x]},
      {"squeeze", &Nx.squeeze(Nx.new_axis(&1, 1)), [x]},
      {"new_axis", &Nx.new_axis(&1, -1), [x]},
      {"broadcast", &Nx.broadcast(&1, {4, 2, 3}), [x]},
      {"broadcast axes", &Nx.broadcast(&1, {2, 3, 4}, axes: [0, 1]), [x]},
      {"transpose", &Nx.transpose/1, [x]},
      {"transpose axes", &Nx.transpose(&1, axes: [2, 0, 1]), [numbers({2, 3, 4}, {:f, 32})]},
      {"reverse", &Nx.reverse(&1, axes: [1]), [x]},
      {"pad", &Nx.pad(&1, 9, [{1, 0, 0}, {0, 2, 1}]), [x]},
      {"pad less", &Nx.pad(&1, 0, [{0, 0, 0}, {-1, 1, 0}]), [x]},
      {"concatenate", &Nx.concatenate([&1, &2]), [x, y]},
      {"concatenate axis", &Nx.concatenate([&1, &2], axis: 1), [x, x]},
      {"stack", &Nx.stack([&1, &2], axis: 1), [x, y]},
      {"slice", &Nx.slice(&1, [0, 1], [2, 2]), [x]},
      {"slice strides", &Nx.slice(&1, [0, 0], [2, 3], strides: [1, 2]), [x]},
      {"slice dynamic", &Nx.slice(&1, [&2, 0], [1, 2]), [x, Nx.tensor(1)]},
      {"slice dynamic strides", &Nx.slice(&1, [&2, 0], [1, 3], strides: [1, 2]),
       [x, Nx.tensor(1)]},
      {"slice along axis", &Nx.slice_along_axis(&1, 1, 2, axis: 1), [x]},
      {"put_slice", &Nx.put_slice(&1, [0, 1], &2), [x, numbers({2, 2}, {:s, 32})]},
      {"put_slice dynamic", &Nx.put_slice(&1, [&2, 0], &3),
       [x, Nx.tensor(1), numbers({1, 2}, {:f, 32})]},
      {"tile", &Nx.tile(&1, [2, 1]), [x]},
      {"access", & &1[1][0..1], [x]},
      {"access dynamic", & &1[&2], [x, Nx.tensor(1)]},
      {"tri", fn -> Nx.tri(3, 4) end, []},
      {"tril", &Nx.tril/1, [numbers({3, 3}, {:f, 32})]},
      {"diff", &Nx.diff/1, [x]},
      {"names", &Nx.sum(Nx.rename(&1, [:a, :b]), axes: [:b]), [x]},
      {"vectorized", &Nx.devectorize(Nx.add(Nx.vectorize(&1, :v), Nx.tensor([1, 2, 3]))), [x]},
      {"vectorized dot", &Nx.devectorize(Nx.dot(Nx.vectorize(&1, :v), Nx.tensor([1, 2, 3]))), [x]}
    ]
  end

  defp indexing do
    x = numbers({3, 4}, {:f, 32})

    [
      {"take", &Nx.take(&1, &2), [x, Nx.tensor([2, 0])]},
      {"take axis", &Nx.take(&1, &2, axis: 1), [x, Nx.tensor([[3, 0], [1, 1]])]},
      {"take_along_axis", &Nx.take_along_axis(&1, &2, axis: 1), [x, Nx.tensor([[0], [3], [1]])]},
      {"gather", &Nx.gather(&1, &2), [x, Nx.tensor([[0, 1], [2, 3]])]},
      {"gather axes", &Nx.gather(&1, &2, axes: [1]), [x, Nx.tensor([[0], [2]])]},
      {"indexed_add", &Nx.indexed_add(&1, &2, &3),
       [x, Nx.tensor([[0, 1], [0, 1]]), Nx.tensor([1, 2])]},
      {"indexed_add axes", &Nx.indexed_add(&1, &2, &3, axes: [1]),
       [x, Nx.tensor([[1], [2]]), numbers({2, 3}, {:f, 32})]},
      {"indexed_put", &Nx.indexed_put(&1, &2, &3),
       [x, Nx.tensor([[0, 1], [2, 2]]), Nx.tensor([1, 2])]}
    ]
  end

  defp reductions do
    types = [f: 32, f: 64, bf: 16, s: 32, u: 8]
    ops = [:sum, :product, :reduce_max, :reduce_min, :all, :any, :argmax, :argmin]
    x = numbers({2, 3, 2}, {:f, 32})

    for(op <- ops, type <- types) do
      case_of(op, type, &apply(Nx, op, [&1]), [numbers({2, 3}, type, low: 0.4)])
    end ++
      for(op <- ops -- [:argmax, :argmin]) do
        {"#{op} axes", &apply(Nx, op, [&1, [axes: [0, 2], keep_axes: true]]), [x]}
      end ++
      for(op <- [:argmax, :argmin], tie <- [:low, :high]) do
        {"#{op} axis #{tie}", &apply(Nx, op, [&1, [axis: 1, tie_break: tie]]),
         [Nx.tensor([[1, 1, 0], [0, 2, 0]])]}
      end ++
      for(
        op <- [:window_sum, :window_product, :window_max, :window_min],
        type <- [f: 32, s: 32]
      ) do
        options = [strides: [1, 2], padding: :same]
        case_of(op, type, &apply(Nx, op, [&1, {2, 2}, options]), [numbers({3, 4}, type)])
      end ++
      for(op <- [:sort, :argsort], type <- [f: 32, s: 32, u: 8, bf: 16], way <- [:asc, :desc]) do
        {"#{op} #{way} #{text(type)}",
         &apply(Nx, op, [&1, [axis: 1, direction: way, stable: true]]), [numbers({2, 5}, type)]}
      end ++
      for op <- [:cumulative_sum, :cumulative_product, :cumulative_max, :cumulative_min] do
        {"#{op}", &apply(Nx, op, [&1, [axis: 1]]), [x]}
      end ++
      [
        {"sum c64", &Nx.sum/1, [numbers({3}, {:c, 64})]},
        {"mean", &Nx.mean(&1, axes: [1]), [x]},
        {"variance", &Nx.variance/1, [x]},
        {"standard_deviation", &Nx.standard_deviation/1, [x]},
        {"median", &Nx.median/1, [numbers({5}, {:f, 32})]},
        {"logsumexp", &Nx.logsumexp/1, [x]},
        {"reduce", &Nx.reduce(&1, 0, fn a, b -> Nx.max(a, b) end), [x]},
        {"reduce axes", &Nx.reduce(&1, 1, [axes: [1]], fn a, b -> Nx.multiply(a, b) end), [x]},
        {"window_reduce",
         &Nx.window_reduce(&1, 0, {2, 2}, [padding: :valid], fn a, b -> Nx.max(a, b) end),
         [numbers({3, 3}, {:f, 32})]},
        {"window_sum dilated", &Nx.window_sum(&1, {2, 1}, window_dilations: [2, 1]),
         [numbers({4, 2}, {:f, 32})]},
        {"window_scatter_max",
         &Nx.window_scatter_max(&1, &2, 0, {2, 2}, strides: [2, 2], padding: :valid),
         [numbers({4, 4}, {:f, 32}), numbers({2, 2}, {:f, 32})]},
        {"window_scatter_min",
         &Nx.window_scatter_min(&1, &2, 0, {2, 2}, strides: [2, 2], padding: :valid),
         [numbers({4, 4}, {:f, 32}), numbers({2, 2}, {:f, 32})]},
        {"top_k", &Nx.top_k(&1, k: 2), [numbers({2, 5}, {:f, 32})]},
        {"all_close", &Nx.all_close/2, [x, Nx.add(x, 1.0e-7)]},
        {"mode", &Nx.mode/1, [Nx.tensor([1, 2, 2, 3, 1, 2])]},
        {"sort nan", &Nx.sort/1, [Nx.tensor([3.0, -0.0, 0.0, :infinity, -1.0])]}
      ]
  end

  defp products do
    a = numbers({2, 3}, {:f, 32})
    b = numbers({3, 2}, {:f, 32}, seed: 2)

    for(type <- [f: 32, f: 64, bf: 16, s: 32, u: 8, c: 64, c: 128]) do
      case_of("dot", type, &Nx.dot/2, [numbers({2, 3}, type), numbers({3, 2}, type, seed: 2)])
    end ++
      for(type <- [f: 32, f: 64, bf: 16]) do
        case_of("conv", type, &Nx.conv/2, [
          numbers({1, 2, 5, 5}, type),
          numbers({3, 2, 2, 2}, type)
        ])
      end ++
      for(type <- @complex, op <- [:fft, :ifft]) do
        case_of(op, type, &apply(Nx, op, [&1]), [numbers({2, 4}, type)])
      end ++
      [
        {"dot axes", &Nx.dot(&1, [0], &2, [1]), [a, b]},
        {"dot batch", &Nx.dot(&1, [2], [0], &2, [1], [0]),
         [numbers({2, 2, 3}, {:f, 32}), numbers({2, 3, 2}, {:f, 32})]},
        {"dot mixed", &Nx.dot/2, [numbers({3}, {:s, 32}), numbers({3}, {:f, 32})]},
        {"outer", &Nx.outer/2, [numbers({2}, {:f, 32}), numbers({3}, {:f, 32})]},
        {"conv strides", &Nx.conv(&1, &2, strides: 2, padding: :same),
         [numbers({1, 2, 5, 5}, {:f, 32}), numbers({3, 2, 2, 2}, {:f, 32})]},
        {"conv dilated",
         &Nx.conv(&1, &2,
           input_dilation: [2, 1],
           kernel_dilation: [1, 2],
           padding: [{1, 1}, {0, 2}]
         ), [numbers({1, 2, 4, 4}, {:f, 32}), numbers({3, 2, 2, 2}, {:f, 32})]},
        {"conv groups", &Nx.conv(&1, &2, feature_group_size: 2),
         [numbers({1, 4, 4}, {:f, 32}), numbers({2, 2, 2}, {:f, 32})]},
        {"conv permuted",
         &Nx.conv(&1, &2,
           input_permutation: [0, 2, 1],
           kernel_permutation: [2, 1, 0],
           output_permutation: [0, 2, 1]
         ), [numbers({1, 5, 2}, {:f, 32}), numbers({2, 2, 3}, {:f, 32})]},
        {"fft length", &Nx.fft(&1, length: 8), [numbers({4}, {:f, 32})]},
        {"fft short", &Nx.fft(&1, length: 3), [numbers({4}, {:f, 32})]},
        {"fft axis", &Nx.fft(&1, axis: 0), [numbers({4, 3}, {:f, 32})]},
        {"fft2", &Nx.fft2/1, [numbers({4, 2}, {:f, 32})]},
        {"ifft2", &Nx.ifft2/1, [numbers({4, 2}, {:c, 64})]},
        {"fft2 axes", &Nx.fft2(&1, axes: [1, 2]), [numbers({2, 3, 4}, {:f, 32})]},
        {"rfft", &Nx.rfft/1, [numbers({2, 4}, {:f, 32})]},
        {"irfft", &Nx.irfft/1, [numbers({2, 3}, {:c, 64})]}
      ]
  end

  defp square(type, seed \\ 1) do
    x = numbers({3, 3}, type, seed: seed)
    Nx.add(Nx.dot(x, Nx.transpose(x)), Nx.multiply(Nx.eye(3), 2)) |> Nx.as_type(type)
  end

  defp blocks do
    f32 = square({:f, 32})
    f64 = square({:f, 64})

    for({text, m} <- [{"f32", f32}, {"f64", f64}]) do
      lower = Nx.tril(m)

      [
        {"cholesky #{text}", &Nx.LinAlg.cholesky/1, [m]},
        {"qr #{text}",
         fn m ->
           {q, r} = Nx.LinAlg.qr(m)
           Nx.dot(q, r)
         end, [m]},
        {"lu #{text}",
         fn m ->
           {p, l, u} = Nx.LinAlg.lu(m)
           Nx.dot(p, Nx.dot(l, u))
         end, [m]},
        {"eigh #{text}",
         fn m ->
           {values, _} = Nx.LinAlg.eigh(m)
           Nx.sort(values)
         end, [m]},
        {"svd #{text}",
         fn m ->
           {_, s, _} = Nx.LinAlg.svd(m)
           s
         end, [m]},
        {"solve #{text}", &Nx.LinAlg.solve/2, [m, numbers({3}, m.type)]},
        {"determinant #{text}", &Nx.LinAlg.determinant/1, [m]},
        {"invert #{text}", &Nx.LinAlg.invert/1, [m]},
        {"triangular_solve #{text}", &Nx.LinAlg.triangular_solve/2,
         [lower, numbers({3}, m.type)]},
        {"triangular_solve transposed #{text}",
         &Nx.LinAlg.triangular_solve(&1, &2, transform_a: :transpose, lower: false),
         [lower, numbers({3, 2}, m.type)]}
      ]
    end
    |> List.flatten()
    |> Kernel.++([
      {"norm", &Nx.LinAlg.norm/1, [f32]},
      {"matrix_power", &Nx.LinAlg.matrix_power(&1, 3), [f32]},
      {"logical_not u8", &Nx.logical_not/1, [Nx.tensor([0, 1, 2], type: :u8)]},
      {"phase", &Nx.phase/1, [numbers({3}, {:c, 64})]}
    ])
  end

  defp programs do
    x = Nx.tensor([1.0, 2.0, 3.0])
    low = Nx.tensor([-1.0, -2.0, 0.5])
    key = Nx.tensor([0, 42], type: :u32)

    one =
      for name <-
            [:newton, :nested, :ranged, :branches, :shared, :inner, :slope] ++
              [:slope_of_loop, :slope_of_branch, :both, :stopped] ++
              [:call, :call_options, :call_twice, :call_in_loop, :call_in_branch] ++
              [:io, :io_named, :io_unheard, :io_many, :io_in_loop, :io_in_branch, :io_around],
          do: name

    (for(name <- one, do: {"#{name}", &apply(Programs, name, [&1]), [x]}) ++
       for(name <- [:branches, :shared, :inner, :call_in_branch, :io_in_branch]) do
         {"#{name} low", &apply(Programs, name, [&1]), [low]}
       end ++
       for(name <- [:uniform, :normal, :randint, :split, :folded]) do
         {"random #{name}", &apply(Programs, name, [&1]), [key]}
       end ++
       [
         {"random shuffle", &Programs.shuffled/2, [key, Nx.iota({7})]},
         {"over rows", &Programs.over/1, [numbers({3, 2}, {:f, 32})]},
         {"layer", &Programs.layer/3,
          [numbers({4, 3}, {:f, 32}), numbers({3, 2}, {:f, 32}), numbers({2}, {:f, 32})]},
         {"call_pair", &Programs.call_pair/2, [x, low]},
         {"call_map", &Programs.call_map/2, [x, low]},
         {"call widen",
          &Nx.runtime_call(Nx.template({3}, :f64), &1, fn y, o -> Golden.Calls.widen(y, o) end),
          [x]}
       ])
    |> Enum.reject(&(elem(&1, 0) == "call widen"))
  end

  defp small do
    for type <- @small do
      [
        case_of("identity", type, & &1, [numbers({5}, type)]),
        case_of("add", type, &Nx.add(Nx.as_type(&1, :f32), 1), [numbers({3}, type, low: 0.0)]),
        case_of("as f32", type, &Nx.as_type(&1, :f32), [numbers({5}, type)]),
        case_of("constant", type, fn -> Nx.as_type(numbers({3}, type), :f32) end, []),
        # Nx.BinaryBackend itself computes with none of less than a byte.
        case_of("stack", type, &Nx.as_type(Nx.reshape(&1, {2, 2}), :f32), [numbers({4}, type)])
      ]
    end
    |> List.flatten()
  end
end

Golden.run(hd(System.argv()))
