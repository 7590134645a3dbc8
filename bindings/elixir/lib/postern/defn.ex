defmodule Postern.Defn do
  @moduledoc """
  Compiles `defn` of Nx by Postern:

      Nx.Defn.jit(&step/2, compiler: Postern.Defn).(parameters, batch)
      Nx.Defn.default_options(compiler: Postern.Defn)

  What a `defn` calls is answered by a process of the run: `Nx.runtime_call` and `Nx.io_call`,
  hooks and `print_value`. An exception, exit or throw of theirs ends the run with
  `Postern.Error`, whose `cause` is `{kind, reason, stacktrace}`.

  Options:

    * `:hooks` - a map of names to functions, in place of those of named io_calls
    * `:timeout` - milliseconds; then the run is cancelled
    * `:deadline` - milliseconds over all that it calls
    * `:device` - which device it runs on, 0 unless given; not of `shard_jit`, whose mesh says it
    * `:operands` - `:shared`: large operands of what it calls are the program's own memory, and
      the program goes on when nobody has them any more; `:copied`: they may be kept. Unless given
      runtime_call shares and io_call copies
    * `:precision` - of products: `:default`, `:high` or `:highest`
    * `:cache` - false compiles anew each time; a path keeps the program in that file, so that it
      need not be traced again when the system next starts

    * `:print` - who gets what the program prints, as of `Postern.start/3`
    * `:max_concurrency` - so many partitions has an `Nx.Serving`, one to a device
    * `:debug` - whether the log tells of the file of `:cache`
    * `:mesh`, `:input_shardings` - of `Nx.Defn.shard_jit`, see there
    * `:compare_copies` - of the same: whether partitions that hold the same part of an argument
      must be given the same; unless so each device computes with its own, as in EXLA

  Those of EXLA, of Nx's evaluator and of `Nx.Serving`, `:client` and such, are not looked at; any
  other is an ArgumentError.
  Programs are kept by function, types and options, the last #{512} of them;
  `Postern.configure(cache_dir: folder)` keeps what XLA compiles for the next start.
  """
  # Nx is optional: what is Nx's is looked for when a `defn` is compiled.
  @compile {:no_warn_undefined,
            [Nx, Nx.Defn, Nx.Defn.Composite, Nx.Defn.Expr, Nx.Defn.Kernel, Nx.Shared]}
  alias Nx.Defn.Composite
  alias Postern.{Blocks, Error, Lower, Options, Telemetry}
  alias Postern.Defn.{Cache, Calls, Disk, Sharding, Values}

  defstruct [:program, :inputs, :outputs, :sites]

  @options [:hooks, :timeout, :deadline, :device, :operands, :precision, :cache, :print] ++
             [:max_concurrency, :debug, :mesh, :input_shardings, :compare_copies]
  # Of Nx itself, Nx.Serving, Nx's evaluator and EXLA.
  @of_others [:compiler, :on_conflict, :batch_keys, :garbage_collect, :debug_options] ++
               [:client, :device_id, :lazy_transfers, :run_options]

  defp validate(options) do
    if not Enum.all?(options, fn {name, _} -> name in @options or name in @of_others end),
      do: Options.refuse_others(Keyword.drop(options, @of_others), @options, "Postern.Defn")

    if Keyword.get(options, :operands, :shared) not in [:shared, :copied] do
      raise ArgumentError, "operands are :shared or :copied, got: #{inspect(options[:operands])}"
    end
  end

  @doc false
  def validate_alone(options) do
    validate(options)

    if options[:input_shardings] || options[:mesh] do
      raise ArgumentError,
            "input sharding configuration provided but no device mesh was provided: " <>
              "Nx.Defn.shard_jit takes one"
    end
  end

  @doc false
  def __partitions_options__(options) do
    validate_alone(options)
    {:ok, count} = Postern.device_count()
    count = Keyword.get(options, :max_concurrency, count)
    for i <- 0..(count - 1)//1, do: Keyword.put(options, :device, i)
  end

  @doc false
  def __to_backend__(options), do: {Postern.Backend, Keyword.take(options, [:device])}

  @doc false
  def __jit__(key, vars, fun, args_list, options),
    do: __compile__(key, vars, fun, options).(args_list)

  @doc false
  def __shard_jit__(key, mesh, vars, fun, lists, options) do
    {inputs, wholes, options} = sharded(mesh, vars, options)

    if length(lists) != Sharding.count(mesh) do
      raise ArgumentError,
            "expected arguments of #{Sharding.count(mesh)} partitions, got #{length(lists)}"
    end

    Sharding.require_devices(mesh)
    compiled = compiled(key, wholes, fun, options)
    arguments = [Enum.zip_with(lists, & &1), vars, inputs] |> Enum.zip() |> taken(compiled)

    compare = Keyword.get(options, :compare_copies, false)

    arguments =
      for {shards, var, axes} <- arguments,
          do: Sharding.together(mesh, var, axes, shards, compare)

    case Postern.run(
           compiled.program,
           arguments,
           run_options(compiled, options, shards: true, device: 0)
         ) do
      {:ok, results} -> Sharding.results(mesh, compiled.outputs, everywhere(results, mesh))
      {:error, error} -> raise error
    end
  end

  # What no argument leads to was computed on one device, for all.
  defp everywhere(results, mesh) do
    for result <- results do
      with [{0, tensor}] <- result,
           do: for(device <- 0..(Sharding.count(mesh) - 1)//1, do: {device, tensor})
    end
  end

  # The arguments as wholes, and the options of who compiles for them.
  defp sharded(mesh, vars, options) do
    validate(options)
    inputs = Sharding.axes(mesh, options[:input_shardings], vars)
    wholes = Enum.zip_with(vars, inputs, &Sharding.whole(mesh, &1, &2))
    {inputs, wholes, Keyword.put(options, :mesh, Sharding.written(mesh, vars, inputs))}
  end

  @doc false
  def __compile__(key, vars, fun, options) do
    validate_alone(options)
    compiled = compiled(key, vars, fun, options)
    fn [arguments] -> [run(compiled, arguments, options)] end
  end

  @doc """
  `Nx.runtime_call` that says what its derivative is, also inside of `defn`:

      Postern.Defn.runtime_call(x, x, [grad: :zero], &Mine.count/2)

  Of the options `:grad` is taken out, the others are the function's. With `grad: :zero` no gradient
  goes through the call, as is so with `Nx.runtime_call`; `grad: rule` calls `rule.(container, g)`
  where the program is traced, which gives a list of gradients, one for each tensor of the
  container, of the result's gradient (a tuple of them, for several). Unless given, a gradient that
  goes through the call is an error that names the function.
  """
  def runtime_call(output, container, options \\ [], fun) do
    {rule, options} = Keyword.pop(options, :grad)
    result = Nx.runtime_call(output, container, options, fun)
    inputs = Composite.flatten_list([container])

    if rule == :zero or not Enum.any?(inputs, &is_struct(&1.data, Nx.Defn.Expr)),
      do: result,
      else: differentiated(result, inputs, fn g -> gradients(rule, fun, container, g) end)
  end

  # By this name Nx enters what another module has for use inside of `defn`.
  @doc false
  def unquote(:"__defn:runtime_call__")(output, container, options \\ [], fun),
    do: runtime_call(output, container, options, fun)

  # Rules stand at a tensor or a tuple.
  defp differentiated(result, inputs, rule) do
    marked =
      case Composite.flatten_list([result]) do
        [one] -> [Nx.Defn.Kernel.custom_grad(one, inputs, rule)]
        several -> Tuple.to_list(Nx.Defn.Kernel.custom_grad(List.to_tuple(several), inputs, rule))
      end

    {result, []} = Composite.traverse(result, marked, fn _, [leaf | rest] -> {leaf, rest} end)
    result
  end

  defp gradients(nil, fun, _container, _g) do
    raise Error,
      code: :unimplemented,
      message:
        "runtime_call of #{Lower.called(%{fun: fun})} has no derivative: grad: :zero lets none " <>
          "through, grad: rule gives the gradients of its operands"
  end

  defp gradients(rule, _fun, container, g), do: rule.(container, g)

  @doc """
  The hooks of these names in one run, as a stream of `{name, value}`; its last element is how the
  run ended, `{:ok, result}` or `{:error, error}`. The program waits in each until the stream is
  asked for the next; who stops before cancels the run. Options as for `jit`, but for `:timeout`:
  the program's time is also that of who takes of the stream. Of `:hooks`, those that are not
  streamed are called.
  """
  def stream(fun, arguments, names, options \\ []) do
    if Keyword.get(options, :timeout, :infinity) != :infinity do
      raise ArgumentError,
            "Postern.Defn.stream has no option :timeout, since its program waits for who takes " <>
              "of it: deadline: limits the run"
    end

    hooks = Map.merge(Keyword.get(options, :hooks, %{}), Map.new(names, &{&1, &1}))
    options = Keyword.put(options, :hooks, hooks)

    {compiled, tensors} =
      Nx.Defn.jit(fun, [compiler: __MODULE__.Streamer] ++ options) |> traced(arguments)

    sites =
      Map.new(Enum.with_index(compiled.sites), fn {site, i} ->
        {Lower.site_name(site, i), site}
      end)

    shown = for {name, %{kind: :io_call} = site} <- sites, hooked?(site, names), do: name
    functions = Map.drop(Calls.functions(compiled.sites, options), shown)

    run =
      options |> Keyword.take([:deadline, :device, :print]) |> Keyword.put(:functions, functions)

    shown
    |> Postern.stream(compiled.program, tensors, run)
    |> Stream.map(fn
      {:ok, results} ->
        {:ok, results(compiled.outputs, results, Keyword.get(options, :device, 0))}

      {:error, error} ->
        {:error, error}

      event ->
        Calls.event(sites[event.function], event.operands)
    end)
  end

  defp hooked?(%{spec: {:named, name, _}}, names), do: name in names
  defp hooked?(_site, _names), do: false

  # What a compiler of ours throws, which compiles and does not run.
  defp traced(fun, arguments) do
    apply(fun, arguments)
  catch
    {:postern_traced, one, other} -> {one, other}
  end

  @doc """
  The program of a function for these arguments, as StableHLO text: what calls back stands as a
  custom call, and above them all are listed with what they are given and give. With `mesh:` and
  `input_shardings:` it is that of `Nx.Defn.shard_jit`, and `arguments` has a list for each
  partition.
  """
  def inspect(fun, arguments, options \\ []) do
    {_, program} = expression(fun, arguments, options)

    sites =
      for {site, i} <- Enum.with_index(program.sites),
          do: ["// ", Lower.site_name(site, i), " ", Calls.describe(site), "\n"]

    IO.iodata_to_binary([sites, program.text])
  end

  @doc false
  def expression(fun, arguments, options) do
    {mesh, options} = Keyword.pop(options, :mesh)
    options = [compiler: __MODULE__.Tracer] ++ options

    if mesh,
      do: Nx.Defn.shard_jit(fun, mesh, options) |> traced([arguments]),
      else: Nx.Defn.jit(fun, options) |> traced(arguments)
  end

  @doc false
  def trace(fun, vars, options) do
    validate(options)
    traced = fun.(vars)
    throw({:postern_traced, traced, lower(traced, options)})
  end

  @doc false
  def trace_sharded(fun, mesh, vars, options) do
    {_, wholes, options} = sharded(mesh, vars, options)
    trace(fun, wholes, options)
  end

  defmodule Tracer do
    @moduledoc false
    def __jit__(_key, vars, fun, _args_list, options) do
      Postern.Defn.validate_alone(options)
      Postern.Defn.trace(fun, vars, options)
    end

    def __shard_jit__(_key, mesh, vars, fun, _lists, options),
      do: Postern.Defn.trace_sharded(fun, mesh, vars, options)
  end

  defmodule Streamer do
    @moduledoc false
    def __jit__(key, vars, fun, [arguments], options) do
      Postern.Defn.validate_alone(options)
      compiled = Postern.Defn.compiled(key, vars, fun, options)
      throw({:postern_traced, compiled, Postern.Defn.tensors(compiled, arguments)})
    end
  end

  ## Compiling

  @doc false
  def compiled(key, vars, fun, options) do
    types =
      for tensor <- Composite.flatten_list(vars) do
        {tensor.type, tensor.shape, tensor.names, tensor.vectorized_axes}
      end

    # A hook that nobody listens to is left out.
    given = options |> Keyword.get(:hooks, %{}) |> Map.keys() |> Enum.sort()
    of = {types, structure(vars), given, options[:precision], options[:mesh]}
    make = fn -> lowered(vars, fun, options) end

    case Keyword.get(options, :cache, true) do
      true -> Cache.fetch({key, of, Blocks.all()}, fn -> load(make.(), key) end)
      false -> load(make.(), key)
      path -> kept(path, {key, of, Blocks.all()}, options[:debug], make)
    end
  end

  # In a file for the system's next start, and in memory until then.
  defp kept(path, {key, _, _} = of, debug, make) do
    id = Disk.identity(of)
    read = fn -> load(Disk.fetch(path, id, debug, make), key) end
    Cache.fetch({path, id}, read, fn -> Disk.found(path, debug) end)
  end

  # What of the arguments is no tensor.
  defp structure(vars),
    do: Enum.map(vars, fn var -> Composite.traverse(var, fn _ -> nil end) end)

  # What a program is before it is loaded.
  defp lowered(vars, fun, options) do
    {time, {traced, lowered}} =
      :timer.tc(fn ->
        traced = fun.(vars)
        {traced, lower(traced, options)}
      end)

    lowered
    |> Map.put(:outputs, Composite.traverse(traced, &template/1))
    |> Map.put(:sites, Enum.map(lowered.sites, &Calls.prepare/1))
    |> Map.put(:time, time)
  end

  defp load(lowered, key) do
    {time, loaded} = :timer.tc(fn -> Postern.load_text(lowered.text) end)

    case loaded do
      {:ok, program} ->
        times = %{eval_time: lowered.time, compile_time: time, total_time: lowered.time + time}
        Telemetry.execute([:postern, :compilation], times, %{key: key})
        told = [[:postern, :compilation], times, %{key: key}]
        if Code.ensure_loaded?(:telemetry), do: apply(:telemetry, :execute, told)
        parts = Map.take(lowered, [:inputs, :outputs, :sites])
        struct!(__MODULE__, Map.put(parts, :program, program))

      {:error, error} ->
        raise error
    end
  end

  defp template(tensor) do
    case Nx.to_template(tensor) do
      # A parameter that is given back is nothing to donate again.
      %{donatable?: true} = template -> %{template | donatable?: false}
      template -> template
    end
  end

  @doc false
  def lower(traced, options) do
    hooks = options |> Keyword.get(:hooks, %{}) |> Map.keys()
    written = Keyword.take(options, [:precision, :mesh])
    Lower.program(traced, [hooks: hooks, block: &block/3] ++ written)
  end

  # A `defn` for a block is traced with parameters in the operands' place.
  defp block(struct, operands, body) do
    with {:body, fun, operands} <- Blocks.choose(struct, operands, body) do
      parameters =
        for {operand, i} <- Enum.with_index(operands),
            do: Nx.Defn.Expr.parameter(Nx.devectorize(operand), :root, i)

      {:container, in_defn(fn -> apply(fun, [struct | parameters]) end)}
    end
  end

  # As `defn` is entered while another one is traced.
  defp in_defn(fun) do
    key = Nx.Shared.backend_pdict_key()
    previous = Process.put(key, {Nx.Defn.Expr, []})
    compiler = Process.put(Nx.Defn.Compiler, __MODULE__)

    try do
      fun.()
    after
      restore(key, previous)
      restore(Nx.Defn.Compiler, compiler)
    end
  end

  defp restore(key, nil), do: Process.delete(key)
  defp restore(key, value), do: Process.put(key, value)

  ## Running

  defp run(%__MODULE__{} = compiled, arguments, options) do
    tensors = tensors(compiled, arguments)

    case Postern.run(compiled.program, tensors, run_options(compiled, options, [])) do
      {:ok, results} -> results(compiled.outputs, results, Keyword.get(options, :device, 0))
      {:error, error} -> raise error
    end
  end

  defp run_options(compiled, options, more) do
    options
    |> Keyword.take([:timeout, :deadline, :device, :print])
    |> Keyword.put(:functions, Calls.functions(compiled.sites, options))
    |> Keyword.merge(more)
  end

  @doc false
  def tensors(compiled, arguments) do
    for argument <- taken(arguments, compiled), do: Values.from_nx(argument.())
  end

  # Those that the program takes; the others are not asked for.
  defp taken(arguments, compiled),
    do: for({argument, i} <- Enum.with_index(arguments), i in compiled.inputs, do: argument)

  defp results(outputs, results, device) do
    {container, []} =
      Composite.traverse(outputs, results, fn out, [tensor | rest] ->
        {Values.to_nx(tensor, out, device), rest}
      end)

    container
  end
end
