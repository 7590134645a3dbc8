# What a `defn` calls, with Nx: scripts/try_nx runs it.
Code.ensure_loaded?(ExUnit) && ExUnit.start(timeout: 120_000)
for application <- [:nx, :postern], do: {:ok, _} = Application.ensure_all_started(application)

defmodule Postern.NxCallsTest do
  use ExUnit.Case, async: true
  import ExUnit.CaptureIO
  import Nx.Defn
  alias Postern.Error

  @moduletag :tmp_dir

  setup do
    Nx.Defn.default_options(compiler: Postern.Defn)
    :ok
  end

  defmodule Pair do
    @derive {Nx.Container, containers: [:left, :right], keep: [:name]}
    defstruct [:left, :right, :name]
  end

  def answer(x, options), do: options[:fun].(x)
  defn(call(x, options \\ []), do: Nx.runtime_call(x, x, options, &answer/2) * 2)

  defp code(fun) do
    fun.()
    :none
  rescue
    error in Error -> {error.code, error.cause}
  end

  @x Nx.tensor([1.0, 2.0, 3.0], names: [:i])

  defmodule Theirs do
    defstruct [:n]
  end

  describe "runtime_call" do
    test "gives a kind, a reason and a stacktrace, and the next run works" do
      for {fun, kind, reason} <- [
            {fn _ -> raise "oh" end, :error, %RuntimeError{message: "oh"}},
            {fn _ -> exit({:gone, 1}) end, :exit, {:gone, 1}},
            {fn _ -> throw(:ball) end, :throw, :ball}
          ] do
        assert {:threw, {^kind, ^reason, [_ | _]}} = code(fn -> call(@x, fun: fun) end)
        assert Nx.to_list(call(@x, fun: & &1)) == [2.0, 4.0, 6.0]
      end
    end

    test "compares what comes with the template, each leaf's shape, type and names" do
      for {fun, says} <- [
            {fn x -> Nx.slice(x, [0], [2]) end, "its leaf 0 is f32{2}"},
            {fn x -> Nx.as_type(x, :f64) end, "its leaf 0 is f64{3}"},
            {fn x -> Nx.rename(x, [:j]) end, "its leaf 0 is f32{3}[j]"},
            {fn x -> {x, x} end, "2 of them"},
            {fn _ -> :nonsense end, ":nonsense"}
          ] do
        error = assert_raise Error, fn -> call(@x, fun: fun) end
        assert error.code == :bad_result
        assert error.message =~ "match the given output template"
        assert error.message =~ says
        assert error.message =~ "Postern.NxCallsTest.answer/2"
      end
    end

    test "gives names, containers and vectorised axes to the function" do
      me = self()
      call(@x, fun: fn x -> send(me, {:names, x.names}) && x end)
      assert_received {:names, [:i]}

      both = fn %Pair{} = pair, _ ->
        send(me, {:pair, pair.name})
        %{pair | left: Nx.add(pair.left, pair.right)}
      end

      pair = %Pair{left: @x, right: Nx.multiply(@x, 2), name: "it"}
      run = Nx.Defn.jit(&Nx.runtime_call(&1, &1, [], both))
      assert Nx.to_list(run.(pair).left) == [3.0, 6.0, 9.0]
      assert_received {:pair, "it"}

      rows = Nx.vectorize(Nx.iota({2, 3}, type: :f32), :row)
      seen = fn x, _ -> send(me, {:axes, x.vectorized_axes, x.shape}) && x end
      out = Nx.Defn.jit(&Nx.runtime_call(&1, &1, [], seen)).(rows)
      assert out.vectorized_axes == [row: 2]
      assert_received {:axes, [row: 2], {3}}
    end

    test "may compute on the same device, and call in turn" do
      inner = fn x -> call(x, fun: &Nx.add(&1, 1)) end
      assert Nx.to_list(call(@x, fun: inner)) == [8.0, 12.0, 16.0]
    end

    test "ends with the time that it has" do
      slow = fn x -> Process.sleep(2000) && x end
      run = fn options -> Nx.Defn.jit(&call/2, options).(@x, fun: slow) end
      assert {:timeout, _} = code(fn -> run.(timeout: 100) end)
      assert {:timeout, _} = code(fn -> run.(deadline: 100) end)
    end

    test "whose process is killed is an error" do
      assert {:closed, _} = code(fn -> call(@x, fun: fn _ -> Process.exit(self(), :kill) end) end)
    end

    test "of many runs at once answers each its own" do
      run = fn i -> Nx.to_number(call(Nx.tensor(i), fun: &Nx.add(&1, 1))) end
      results = Task.async_stream(1..50, run, max_concurrency: 16, timeout: 60_000)
      assert Enum.map(results, &elem(&1, 1)) == for(i <- 1..50, do: 2 * (i + 1))
    end

    test "in a loop of 10000 steps" do
      step = fn x, _ -> Nx.add(x, 1) end

      run = fn x ->
        {x, _} = while_steps(x, step)
        x
      end

      assert Nx.to_number(Nx.Defn.jit(run).(Nx.tensor(0))) == 10_000
    end

    deftransformp(step(x, fun), do: Nx.runtime_call(x, x, [], fun))

    defn while_steps(x, fun) do
      while {x, i = 0}, i < 10_000 do
        {step(x, fun), i + 1}
      end
    end

    test "may give a large operand back, or a part of it" do
      x = Nx.iota({100_000}, type: :f32)
      assert Nx.to_number(call(x, fun: & &1)[3]) == 6.0
      assert Nx.to_number(call(x, fun: &Nx.reverse/1)[0]) == 2 * 99_999.0
      half = fn x, _ -> Nx.slice(x, [50_000], [2]) end
      run = Nx.Defn.jit(&Nx.runtime_call(Nx.template({2}, :f32), &1, [], half))
      assert Nx.to_list(run.(x)) == [50_000.0, 50_001.0]
    end

    test "shows a large operand without a copy, and may keep it by :copied" do
      x = Nx.iota({100_000}, type: :f32)
      me = self()
      keep = fn x -> send(me, {:kept, x}) && Nx.tensor(0.0) end

      look =
        Nx.Defn.jit(
          &Nx.runtime_call(Nx.template({}, :f32), &1, [fun: &2], fn x, o -> o[:fun].(x) end),
          operands: :copied
        )

      look.(x, keep)
      assert_received {:kept, kept}
      assert Nx.to_number(kept[99_999]) == 99_999.0
    end
  end

  describe "runtime_call under grad" do
    def cube(x, _), do: Nx.pow(x, 3)
    def both({x, y}, _), do: %{sum: Nx.add(x, y), product: Nx.multiply(x, y)}
    def slope(x, g), do: [Nx.multiply(g, Nx.multiply(3, Nx.pow(x, 2)))]

    defn(unruled(x), do: grad(x, &Nx.sum(&1 * Postern.Defn.runtime_call(&1, &1, cube()))))

    defn(zero(x),
      do: grad(x, &Nx.sum(&1 * Postern.Defn.runtime_call(&1, &1, zero_grad(), cube())))
    )

    deftransformp(cube(), do: &__MODULE__.cube/2)
    deftransformp(zero_grad(), do: [grad: :zero])

    defp slope_of(options, x \\ @x, fun \\ &__MODULE__.cube/2) do
      loss = fn x -> Nx.sum(Postern.Defn.runtime_call(x, x, options, fun)) end
      Nx.to_list(Nx.Defn.jit(&Nx.Defn.grad(&1, loss)).(x))
    end

    test "is an error that names the function, without a rule" do
      for run <- [fn -> slope_of([]) end, fn -> unruled(@x) end] do
        error = assert_raise Error, run
        assert error.code == :unimplemented
        assert error.message =~ "Postern.NxCallsTest.cube/2"
        assert error.message =~ "grad: :zero"
      end
    end

    test "is zero where that is asked for, or follows a rule" do
      assert slope_of(grad: :zero) == [0.0, 0.0, 0.0]
      assert Nx.to_list(zero(@x)) == [1.0, 8.0, 27.0]
      assert slope_of(grad: &slope/2) == [3.0, 12.0, 27.0]
      assert Nx.to_list(Postern.Defn.runtime_call(@x, @x, &cube/2)) == [1.0, 8.0, 27.0]
    end

    test "of several results is told the gradient of each" do
      rule = fn {x, y}, {product, sum} ->
        [Nx.add(sum, Nx.multiply(product, y)), Nx.add(sum, Nx.multiply(product, x))]
      end

      loss = fn x, y ->
        out = %{sum: x, product: x}
        both = Postern.Defn.runtime_call(out, {x, y}, [grad: rule], &both/2)
        Nx.add(both.sum, Nx.multiply(2, both.product))
      end

      run = Nx.Defn.jit(fn x, y -> Nx.Defn.grad({x, y}, fn {x, y} -> loss.(x, y) end) end)
      {dx, dy} = run.(3.0, 5.0)
      assert {11.0, 7.0} == {Nx.to_number(dx), Nx.to_number(dy)}
    end

    test "of what is not differentiated needs no rule" do
      loss = fn x, y -> Nx.sum(Nx.multiply(x, Postern.Defn.runtime_call(y, y, &cube/2))) end
      run = Nx.Defn.jit(fn x, y -> Nx.Defn.grad(x, &loss.(&1, y)) end)
      assert Nx.to_list(run.(@x, @x)) == [1.0, 8.0, 27.0]
    end
  end

  describe "io_call" do
    defn(shown(x), do: io_call(x + 1, :shown, &Function.identity/1) * 2)
    defn(printed(x), do: print_value(x, label: "x"))

    test "of a name is answered by the run's own function, or a module's" do
      me = self()
      run = fn hook -> Nx.Defn.jit(&shown/1, hooks: %{shown: hook}).(@x) end
      run.(&send(me, {:one, Nx.to_list(&1)}))
      run.({__MODULE__, :heard, [me]})
      assert_received {:one, [2.0, 3.0, 4.0]}
      assert_received {:heard, [2.0, 3.0, 4.0]}
    end

    def heard(x, to), do: send(to, {:heard, Nx.to_list(x)})

    test "prints in the process that runs" do
      assert capture_io(fn -> printed(@x) end) =~ "x: #Nx.Tensor"
    end

    test "keeps what it shows, however large" do
      me = self()
      x = Nx.iota({100_000}, type: :f32)
      Nx.Defn.jit(&shown/1, hooks: %{shown: &send(me, {:kept, &1})}).(x)
      assert_received {:kept, kept}
      assert Nx.to_number(kept[0]) == 1.0
    end
  end

  describe "blocks" do
    defmodule Scale do
      defstruct [:by]
    end

    defmodule Mine do
      defstruct []
    end

    deftransform(scaled(x, by),
      do: Nx.block(%Scale{by: by}, [x], x, fn s, x -> Nx.multiply(x, s.by) end)
    )

    defn(scale(x), do: scaled(x, 3) + 1)

    test "are answered by another defn, by the host, or by themselves" do
      assert Nx.to_list(scale(@x)) == [4.0, 7.0, 10.0]
      Postern.override_block(Scale, defn: fn s, x -> Nx.subtract(x, s.by) end)
      assert Nx.to_list(scale(@x)) == [-1.0, 0.0, 1.0]

      Postern.override_block(Scale,
        host: fn s, x -> Nx.divide(x, s.by) end,
        when: fn s, _, _ -> s.by == 3 end
      )

      assert_in_delta Nx.to_number(scale(@x)[0]), 4 / 3, 1.0e-6

      Postern.override_block(Scale,
        host: fn _, _ -> raise "never" end,
        when: fn s, _, _ -> s.by == 4 end
      )

      assert_in_delta Nx.to_number(scale(@x)[0]), 4 / 3, 1.0e-6
      Postern.restore_block(Scale)
      assert Nx.to_list(scale(@x)) == [4.0, 7.0, 10.0]
    after
      Postern.restore_block(Scale)
    end

    test "are kernels by their names" do
      Postern.override_block(Mine,
        kernel: "lapack_spotrf_ffi",
        attributes: [{"uplo", "76 : ui8"}]
      )

      text = Postern.Defn.inspect(&mine/1, [Nx.eye(3, type: :f32)])
      assert text =~ "@\"lapack_spotrf_ffi\""
      assert text =~ "uplo = 76 : ui8"
    after
      Postern.restore_block(Mine)
    end

    deftransform(mine(x),
      do:
        Nx.block(%Mine{}, [x], {x, Nx.template({}, :s32)}, fn _, x ->
          {x, Nx.tensor(0, type: :s32)}
        end)
    )
  end

  test "a stream shows hooks of one run, and then its result" do
    counted = fn x -> while_shown(x) end
    events = Enum.to_list(Postern.Defn.stream(counted, [Nx.tensor(0)], [:step]))
    assert [{:step, one}, {:step, _}, {:step, three}, {:ok, last}] = events
    assert {1, 3, 3} == {Nx.to_number(one), Nx.to_number(three), Nx.to_number(last)}

    failing = fn x -> Nx.runtime_call(x, x, fn _, _ -> raise "no" end) end
    assert [{:error, %Error{code: :threw}}] = Enum.to_list(Postern.Defn.stream(failing, [1], []))
  end

  test "a stream calls the hooks that it does not show, and has no time of its own" do
    me = self()
    hooks = [hooks: %{other: &send(me, {:other, Nx.to_number(&1)})}]
    stream = Postern.Defn.stream(&both_shown/1, [Nx.tensor(1)], [:one], hooks)
    assert [{:one, _}, {:ok, _}] = Enum.to_list(stream)
    assert_received {:other, 2}

    assert_raise ArgumentError, ~r/no option :timeout.*deadline/, fn ->
      Postern.Defn.stream(&both_shown/1, [Nx.tensor(1)], [:one], timeout: 1000)
    end
  end

  defn(both_shown(x), do: io_call(io_call(x, :one) + 1, :other))

  defn while_shown(x) do
    while x, x < 3 do
      io_call(x + 1, :step)
    end
  end

  # POSTERN_SOAK: how many calls.
  @tag timeout: :infinity
  test "calls leave no memory behind, of the VM and of the process" do
    calls = String.to_integer(System.get_env("POSTERN_SOAK", "100000"))
    run = Nx.Defn.jit(&while_steps(&1, fn x, _ -> Nx.add(x, 1) end))

    used = fn rounds ->
      for _ <- 1..rounds, do: run.(Nx.tensor(0))
      for pid <- Process.list(), do: :erlang.garbage_collect(pid)
      [_, resident] = Regex.run(~r/VmRSS:\s+(\d+) kB/, File.read!("/proc/self/status"))
      {:erlang.memory(:total), String.to_integer(resident)}
    end

    # What the allocators keep they have taken in the first half.
    half = max(div(calls, 20_000), 1)
    [middle, stop] = [used.(half), used.(half)]
    text = "bytes of the VM, KiB of the process: #{inspect([middle, stop])}"
    assert elem(stop, 0) - elem(middle, 0) < 1_000_000, text
    assert elem(stop, 1) - elem(middle, 1) < 8_000, text
    if calls > 100_000, do: IO.puts("after #{half * 10_000} and twice as many calls: " <> text)
  end

  test "a program in a file is traced once", %{tmp_dir: folder} do
    path = Path.join(folder, "sum.postern")
    me = self()
    traced = fn x -> send(me, :traced) && Nx.runtime_call(x, x, [by: 2], &__MODULE__.by/2) end

    for _ <- 1..2,
        do: assert(Nx.to_list(Nx.Defn.jit(traced, cache: path).(@x)) == [2.0, 4.0, 6.0])

    assert_received :traced
    refute_received :traced
    # As when the system has started anew.
    Postern.Defn.Cache.clear()
    assert Nx.to_list(Nx.Defn.jit(traced, cache: path).(@x)) == [2.0, 4.0, 6.0]
    refute_received :traced
    Postern.Defn.Cache.clear()
    File.write!(path, "damaged")
    assert Nx.to_list(Nx.Defn.jit(traced, cache: path).(@x)) == [2.0, 4.0, 6.0]
    assert_received :traced
  end

  def by(x, options), do: Nx.multiply(x, options[:by])

  defmodule Kept do
    defstruct []
  end

  test "a program in a file is another one where a block was overridden", %{tmp_dir: folder} do
    me = self()
    doubled = fn x -> Nx.block(%Kept{}, [x], x, fn _, x -> Nx.multiply(x, 2) end) end
    traced = fn x -> send(me, :traced) && doubled.(x) end
    run = Nx.Defn.jit(traced, cache: Path.join(folder, "block.postern"))

    again = fn ->
      Postern.Defn.Cache.clear()
      Nx.to_list(run.(@x))
    end

    assert Nx.to_list(run.(@x)) == [2.0, 4.0, 6.0]
    assert_received :traced

    for by <- [3, 4] do
      Postern.override_block(Kept, defn: fn _, x -> Nx.multiply(x, by) end)
      assert Nx.to_list(run.(@x)) == [1.0 * by, 2.0 * by, 3.0 * by]
      assert_received :traced
      assert again.() == [1.0 * by, 2.0 * by, 3.0 * by]
      refute_received :traced
    end

    # The file has the program of the last override.
    Postern.restore_block(Kept)
    assert again.() == [2.0, 4.0, 6.0]
    assert_received :traced
  after
    Postern.restore_block(Kept)
  end

  test "a program in a file is compiled once while the system goes on", %{tmp_dir: folder} do
    path = Path.join(folder, "once.postern")
    run = Nx.Defn.jit(&Nx.add(&1, 1), cache: path)
    assert Nx.to_list(run.(@x)) == [2.0, 3.0, 4.0]
    File.rm!(path)
    assert Nx.to_list(run.(@x)) == [2.0, 3.0, 4.0]
    refute File.exists?(path)
  end

  test "stages of a graph run one by one" do
    graph = fn x, y -> x |> Nx.negate() |> Nx.sin() |> Nx.cos() |> Nx.add(y) end
    expr = Nx.Defn.debug_expr(graph).(@x, 2)
    split = fn node -> if node.data.op == :cos, do: :before, else: :none end
    stages = Nx.Defn.Graph.split(expr, split)
    assert length(stages) == 2
    result = Nx.Defn.Graph.run(stages, [@x, Nx.tensor(2)], compiler: Postern.Defn)
    Nx.Testing.assert_all_close(result, Nx.Defn.jit(graph, compiler: Nx.Defn.Evaluator).(@x, 2))
  end

  test "inspect lists what calls back" do
    text = Postern.Defn.inspect(&shown/1, [@x])
    assert text =~ "// shown #0 shows f32{3}[i]"
    assert text =~ "func.func @main"
  end

  test "the backend has every callback" do
    callbacks = Nx.Backend.behaviour_info(:callbacks) -- [optional: 3]
    assert callbacks -- Postern.Backend.__info__(:functions) == []
    callbacks = Nx.Defn.Compiler.behaviour_info(:callbacks)
    assert callbacks -- Postern.Defn.__info__(:functions) == []
  end

  # As EXLA has it.
  defprotocol Elixir.EXLA.CustomCall do
    @fallback_to_any true
    def call(struct, out, args, client)
  end

  defimpl EXLA.CustomCall, for: Any do
    def call(_, _, _, _), do: :skip
  end

  defimpl EXLA.CustomCall, for: Postern.NxCallsTest.Theirs do
    def call(%{n: n}, {%{type: {:f, 32}}, _}, [_], %{platform: :host}) do
      attributes = [{"uplo", "76 : ui8"}, {"n", "#{n} : i64"}]

      {:ok,
       %{
         __struct__: EXLA.CustomCall.Spec,
         call_target_name: "lapack_dpotrf_ffi",
         attributes: attributes,
         operand_element_types: [{:f, 64}]
       }}
    end

    def call(_, _, _, _), do: :skip
  end

  test "what implements EXLA.CustomCall is taken as it is" do
    text = Postern.Defn.inspect(&theirs/1, [Nx.eye(3, type: :f32)])
    assert text =~ "@\"lapack_dpotrf_ffi\""
    assert text =~ "uplo = 76 : ui8, n = 7 : i64"
    assert text =~ ": (tensor<3x3xf64>) -> (tensor<3x3xf32>"
    assert Postern.Defn.inspect(&theirs/1, [Nx.eye(3, type: :f64)]) =~ "stablehlo.add"
  end

  deftransform theirs(x) do
    out = {x, Nx.template({}, :s32)}
    Nx.block(%Theirs{n: 7}, [x], out, fn _, x -> {Nx.add(x, x), Nx.tensor(0, type: :s32)} end)
  end

  test "backend tensors come and go" do
    x = Nx.backend_transfer(@x, {Postern.Backend, device: 1})
    y = Nx.multiply(x, 2)
    assert %Postern.Backend{device: 1} = y.data
    assert %Nx.BinaryBackend{} = Nx.backend_transfer(y).data
    assert Nx.to_list(y) == [2.0, 4.0, 6.0]
    assert inspect(y) =~ "[2.0, 4.0, 6.0]"

    for type <- [:u2, :s4, :f8, :bf16, :c64] do
      x = Nx.tensor([0, 1], type: type, backend: Nx.BinaryBackend)
      assert Nx.to_binary(Nx.backend_transfer(x, Postern.Backend)) == Nx.to_binary(x)
    end
  end
end
