defmodule Postern.HooksTest do
  @moduledoc """
  Hooks and functions that one run is given, by what Nx and EXLA test of `hooks:`; and streams of
  one run, which are the same.
  """
  use Postern.Case, async: false

  @x [1, 2, 3]

  # What was shown by each of the names, in its order.
  defp noting(names), do: noting(names, self())

  defp noting(names, to) do
    for name <- names, into: %{} do
      {name, fn leaves -> send(to, {:noted, name, Enum.map(leaves, &Tensor.to_list/1)}) end}
    end
  end

  defp noted(list \\ []) do
    receive do
      {:noted, name, values} -> noted([{name, values} | list])
    after
      0 -> Enum.reverse(list)
    end
  end

  defp servers, do: DynamicSupervisor.count_children(Postern.Servers).active

  describe "hooks" do
    test "that may have no listener show nothing, and to the run's own what passes" do
      serve!("demo.log", fn _ -> :ok end)
      hooks = program("hooks")
      assert hooks.hooks == ["product", "sum"]
      assert [y] = Postern.run!(hooks, [@x])
      assert Tensor.to_list(y) == [4.0, 6.0, 8.0]
      assert Postern.run!(hooks, [@x], hooks: noting(["sum"])) == [y]
      assert noted() == [{"sum", [[2.0, 3.0, 4.0]]}]
      # And not to the next run.
      assert Postern.run!(hooks, [@x]) == [y]
      assert noted() == []
    end

    test "have a default, which a run's own takes the place of" do
      hooks = program("hooks")
      own = noting(["product"])
      # So that nobody need serve it.
      assert {:error, %Error{code: :unregistered}} = Postern.run(hooks, [@x])
      assert {:ok, [_]} = Postern.run(hooks, [@x], hooks: own)
      assert noted() == [{"product", [[4.0, 6.0, 8.0]]}]
      test = self()
      serve!("demo.log", fn [x] -> send(test, {:noted, "default", [Tensor.to_list(x)]}) end)
      Postern.run!(hooks, [@x])
      assert noted() == [{"default", [[4.0, 6.0, 8.0]]}]
      Postern.run!(hooks, [@x], hooks: own)
      assert noted() == [{"product", [[4.0, 6.0, 8.0]]}]
      Postern.run!(hooks, [@x], functions: noting(["demo.log"]))
      assert noted() == [{"demo.log", [[4.0, 6.0, 8.0]]}]
      # Nx has atoms for names.
      {:ok, run} = Postern.start(hooks, [@x], hooks: [product: own["product"]])
      assert {:ok, [_]} = Postern.await(run)
      assert [{"product", _}] = noted()
    end

    test "of runs at once do not mix" do
      hooks = program("hooks")

      run = fn i ->
        Postern.run!(hooks, [[i, i, i]], hooks: noting(["sum", "product"]))
        noted()
      end

      seen = Task.async_stream(1..50, run, max_concurrency: 16, timeout: 60_000)

      for {i, {:ok, shown}} <- Enum.zip(1..50, seen) do
        [a, b] = [i + 1.0, 2 * i + 2.0]
        assert shown == [{"sum", [[a, a, a]]}, {"product", [[b, b, b]]}]
      end
    end

    test "fire in branches and loops inside each other, where they are passed" do
      nested = program("hooks_nested")
      own = noting(["step", "small", "large", "negative"])
      Postern.run!(nested, [@x], hooks: own)
      {steps, others} = Enum.split_with(noted(), &match?({"step", _}, &1))
      assert steps == for(i <- 0..3, do: {"step", [i]})

      assert others == [
               {"small", [[2.0, 4.0, 6.0]]},
               {"small", [[4.0, 8.0, 12.0]]},
               {"large", [[5.0, 9.0, 13.0]]},
               {"large", [[6.0, 10.0, 14.0]]}
             ]

      Postern.run!(nested, [[-1, -2, -3]], hooks: own)
      assert noted() == [{"negative", [[-1.0, -2.0, -3.0]]}]
      Postern.run!(nested, [@x], hooks: Map.take(own, ["large"]))
      assert [{"large", _}, {"large", _}] = noted()
    end

    test "show a container as its leaves" do
      assert [y] = Postern.run!(program("hooks_pair"), [@x], hooks: noting(["pair"]))
      assert Tensor.to_list(y) == [6.0, 12.0, 18.0]
      assert noted() == [{"pair", [[1.0, 2.0, 3.0], 6.0]}]
    end

    test "fire under transformations" do
      own = noting(["square", "gradient"])
      assert [y] = Postern.run!(program("hooks_grad"), [@x], hooks: own)
      assert Tensor.to_list(y) == [2.0, 4.0, 6.0]

      assert Enum.sort(noted()) == [
               {"gradient", [[2.0, 4.0, 6.0]]},
               {"square", [[1.0, 4.0, 9.0]]}
             ]

      Postern.run!(program("hooks_vmap"), [@x], hooks: noting(["element"]))
      assert noted() == [{"element", [[2.0, 4.0, 6.0]]}]
    end

    test "tell who fires, and may be answered by a process" do
      test = self()
      hooks = program("hooks")

      told = fn [_], request ->
        send(test, {:info, Postern.Request.info(request)})
      end

      Postern.run!(hooks, [@x], hooks: %{"product" => told})
      assert_received {:info, %{function: "product", site: "product", asynchronous: false}}
      pid = spawn_link(fn -> forward(test) end)
      {:ok, run} = Postern.start(hooks, [@x], hooks: %{"product" => pid})
      assert_receive {:postern_call, request}
      assert [%Tensor{shape: {3}}] = request.operands
      assert :ok = Postern.reply(request, :filled)
      assert {:ok, [_]} = Postern.await(run)
    end

    test "that fail end the run with what they raised" do
      hooks = program("hooks")
      fails = fn _ -> raise ArithmeticError end
      assert {:error, error} = Postern.run(hooks, [@x], hooks: %{"product" => fails})
      assert %Error{code: :threw, cause: {:error, %ArithmeticError{}, _}} = error
      gone = spawn(fn -> :ok end)

      assert {:error, %Error{code: :closed}} =
               Postern.run(hooks, [@x], hooks: %{"product" => gone})

      ends = fn _ -> Process.exit(self(), :kill) end

      assert {:error, %Error{code: :closed}} =
               Postern.run(hooks, [@x], hooks: %{"product" => ends})

      assert {:ok, [_]} = Postern.run(hooks, [@x], hooks: noting(["product"]))
      eventually(fn -> servers() == 0 end)
    end

    test "that the program does not have are an error which lists those that it has" do
      hooks = program("hooks")

      for {options, parts} <- [
            {[hooks: noting(["nope"])], ["no hook 'nope'", "[product, sum]"]},
            {[functions: noting(["nope"])], ["no function 'nope'", "[demo.log]"]},
            {[hooks: noting(["product", "demo.log"])], ["no hook 'demo.log'"]}
          ] do
        assert {:error, %Error{code: :invalid_argument, message: text}} =
                 Postern.run(hooks, [@x], options)

        for part <- parts, do: assert(text =~ part)
      end

      for own <- [%{"sum" => 3}, %{"sum" => fn -> :ok end}, [:sum]] do
        assert_raise ArgumentError, ~r/hooks takes a map/, fn ->
          Postern.run(hooks, [@x], hooks: own)
        end
      end

      both = [hooks: noting(["product"]), functions: noting(["product"])]

      assert_raise ArgumentError, ~r/hooks and in functions/, fn ->
        Postern.start(hooks, [@x], both)
      end

      assert_raise ArgumentError, fn ->
        Postern.run(hooks, [@x], hooks: noting(["sum"]), device: :first)
      end

      # Nothing is left of a run that did not begin.
      eventually(fn -> servers() == 0 end)
    end

    test "of asynchronous taps are shown to the last, also when the run and its owner have ended" do
      test = self()

      seen = fn [x] ->
        if first(x) == 2.0, do: Process.sleep(200)
        send(test, {:seen, first(x)})
      end

      {:ok, [_]} =
        Task.await(
          Task.async(fn ->
            Postern.run(program("hooks_async"), [@x], hooks: %{"seen" => seen})
          end),
          60_000
        )

      assert :ok = Postern.barrier()
      shown = for _ <- 1..400, do: receive(do: ({:seen, value} -> value))
      assert shown == for(i <- 1..400, do: i + 1.0)
      eventually(fn -> servers() == 0 end)
    end
  end

  describe "functions" do
    test "of a run stand for served ones in this run alone" do
      called = program("called")
      result = fn options -> Tensor.to_list(hd(Postern.run!(called, [@x], options))) end
      own = [functions: %{"demo.scale" => scale(2.0)}]
      assert result.(own) == [2.0, 4.0, 6.0]
      serve!("demo.scale", scale(3.0))
      assert result.(own) == [2.0, 4.0, 6.0]
      assert result.([]) == [3.0, 6.0, 9.0]

      # A function may run the same program with functions of its own.
      inner = fn [_] -> result.(own) end
      assert result.(functions: %{"demo.scale" => inner}) == [2.0, 4.0, 6.0]
    end

    test "that the waiting process would answer itself are told so" do
      own = [functions: %{"demo.scale" => self()}]
      called = program("called")
      assert {:error, %Error{code: :reentry}} = Postern.run(called, [@x], own)
      {:ok, run} = Postern.start(called, [@x], own)
      assert {:error, %Error{code: :reentry, message: text}} = Postern.await(run)
      assert text =~ ~s("demo.scale")
      assert_receive {:postern_call, request}
      assert :ok = Postern.reply(request, @x)
      assert {:ok, [_]} = Postern.await(run, 5000)
    end
  end

  describe "a stream of one run" do
    test "shows that run alone, whoever serves the name" do
      test = self()
      serve!("demo.log", fn _ -> send(test, :served) end)
      taps = program("two_taps")

      show = fn i ->
        for %{operands: [x]} <- Postern.stream("demo.log", taps, [[i, i, i]]), do: first(x)
      end

      seen = Task.async_stream(1..20, show, max_concurrency: 8, timeout: 60_000)
      assert Enum.map(seen, &elem(&1, 1)) == for(i <- 1..20, do: [1.0 * i, 1.0 * i])
      refute_received :served
      Postern.run!(taps, [@x])
      assert_received :served
    end

    test "shows hooks, beside the run's own" do
      own = [hooks: noting(["product"])]
      events = Enum.to_list(Postern.stream(["sum"], program("hooks"), [@x], own))
      assert [%{function: "sum", operands: [x]}, {:ok, [_]}] = events
      assert Tensor.to_list(x) == [2.0, 3.0, 4.0]
      assert [{"product", _}] = noted()
    end

    test "of a name that the program does not have says so" do
      assert [{:error, %Error{code: :invalid_argument, message: text}}] =
               Enum.to_list(Postern.stream("nope", program("hooks"), [@x]))

      assert text =~ ~s("nope") and text =~ "product" and text =~ "demo.log"
    end

    test "ends with that run, also while others go on" do
      test = self()
      serve!("demo.pair", spawn_link(fn -> forward(test) end))
      {:ok, other} = Postern.start(program("while_taps"), [@x], device: 1)
      assert_receive {:postern_call, _}
      assert Enum.count(Postern.stream("seen", program("hooks_async"), [@x])) == 401
      own = [hooks: noting(["product"])]
      hooks = program("hooks")

      stream = fn ->
        assert [_, {:ok, _}] = Enum.to_list(Postern.stream("sum", hooks, [@x], own))
      end

      # No wait of a fixed time is among what each takes.
      times = for _ <- 1..20, do: elem(:timer.tc(stream), 0)
      assert Enum.min(times) < 200_000 and Enum.max(times) < 4_500_000
      Postern.cancel(other)
      refute_received {:postern_ready, _}
    end

    test "whose print raises leaves nothing behind that waits for it" do
      test = self()
      raises = [print: fn _ -> raise "no paper" end]

      stream = fn ->
        stream = Postern.stream(["seen", "told"], program("hooks_print"), [@x], raises)
        assert_raise RuntimeError, "no paper", fn -> Enum.to_list(stream) end
      end

      stream.()
      # What asynchronous taps had still to show has failed: the first barrier says so.
      Postern.barrier()
      assert :ok = Postern.barrier()
      refute_received _

      # A function that has such a stream is still what a program waits for.
      inside = fn [x] -> stream.() && send(test, {:inside, Postern.barrier()}) && x end
      Postern.run!(program("called"), [@x], functions: %{"demo.scale" => inside})
      assert_received {:inside, {:error, %Error{code: :reentry}}}
      Postern.barrier()
    end

    test "inside of an asynchronous tap does not wait for the queue that waits for it" do
      test = self()
      hooks = program("hooks_async")

      seen = fn [x] ->
        if first(x) == 2.0 do
          send(test, {:inner, List.last(Enum.to_list(Postern.stream("seen", hooks, [@x])))})
        end
      end

      assert {:ok, [_]} = Postern.run(hooks, [@x], hooks: %{"seen" => seen})
      assert_receive {:inner, {:ok, [_]}}, 20_000
      # What the stream let go of has failed, as nobody could be shown it any more.
      Postern.barrier()
    end
  end
end
