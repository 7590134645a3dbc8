defmodule Postern.NxTest do
  @moduledoc """
  What programs of Nx rely on in its runtime calls and hooks, in Postern's words:
  docs/coming-from-nx.md has the names beside each other.
  """
  use Postern.Case, async: false

  @x [1, 2, 3]

  defp note(names) do
    test = self()

    for name <- names do
      serve!(name, fn [x] -> send(test, {name, Tensor.to_list(x)}) end)
    end
  end

  defp note_pairs do
    test = self()
    serve!("demo.pair", fn leaves -> send(test, {:pair, Enum.map(leaves, &Tensor.to_list/1)}) end)
  end

  defp noted(list \\ []) do
    receive do
      {name, values} when is_binary(name) -> noted([{name, values} | list])
    after
      0 -> Enum.reverse(list)
    end
  end

  describe "runtime_call" do
    test "gives a tensor of the declared type, which the program computes on with" do
      serve!("demo.scale", fn [x] -> for n <- Tensor.to_list(x), do: n + 10 end)
      serve!("demo.log", fn _ -> :ok end)
      assert [sum] = Postern.run!(program("calls"), [@x])
      assert Tensor.to_list(sum) == 36.0
    end

    test "gives several tensors as a tuple" do
      serve!("demo.mixed", fn [_x, _n] -> {[[1, 2, 3], [4, 5, 6]], 7, <<>>} end)
      assert [both, count, _] = Postern.run!(program("mixed"), [@x, 2.0])
      assert {Tensor.to_list(both), Tensor.to_list(count)} == {[[2, 3, 4], [5, 6, 7]], 8}
    end

    test "has options that the program brings along" do
      serve!("demo.scale", fn [x], request ->
        %{attributes: %{"factor" => factor}} = Postern.Request.info(request)
        for n <- Tensor.to_list(x), do: n * factor
      end)

      assert [y] = Postern.run!(program("called"), [@x])
      assert Tensor.to_list(y) == [3.0, 6.0, 9.0]
    end

    test "is called in each step of a loop, in order" do
      {:ok, steps} = Agent.start_link(fn -> [] end)

      serve!("demo.scale", fn [x] ->
        Agent.update(steps, &[Tensor.to_list(x) | &1])
        for n <- Tensor.to_list(x), do: 3 * (n + 1)
      end)

      assert [y] = Postern.run!(program("loop"), [@x])
      assert Tensor.to_list(y) == [1001.0, 1002.0, 1003.0]
      seen = Enum.reverse(Agent.get(steps, & &1))
      assert seen == for(i <- 0..999, do: [i + 1.0, i + 2.0, i + 3.0])
    end

    test "is called in a loop until what it gives ends that" do
      serve!("demo.scale", fn [x] -> for n <- Tensor.to_list(x), do: 2 * n end)
      while_calls = program("while_calls")
      # Sums of 6, 12, ..., 96, 192; of 200 there is no step.
      assert Tensor.to_list(hd(Postern.run!(while_calls, [@x]))) == [32.0, 64.0, 96.0]
      assert Tensor.to_list(hd(Postern.run!(while_calls, [[0, 0, 200]]))) == [0.0, 0.0, 200.0]
    end

    test "with ordered effects keeps the order of the source, and what nobody uses" do
      test = self()

      for name <- ["demo.first", "demo.second"] do
        serve!(name, fn [x] -> send(test, {name, Tensor.to_list(x)}) && x end)
      end

      note(["demo.log"])
      assert [y] = Postern.run!(program("effects"), [@x])
      assert Tensor.to_list(y) == [2.0, 3.0, 4.0]
      calls = noted()
      # The tap has no place in the order.
      assert {"demo.log", [2.0, 4.0, 6.0]} in calls

      assert List.keydelete(calls, "demo.log", 0) ==
               [{"demo.first", [1.0, 2.0, 3.0]}, {"demo.second", [2.0, 3.0, 4.0]}]
    end

    test "that raises ends the program with the exception, and the next run works" do
      {:ok, agent} = Agent.start_link(fn -> 0 end)

      serve!("demo.scale", fn [x] ->
        if Agent.get_and_update(agent, &{&1, &1 + 1}) == 0, do: raise("first time"), else: x
      end)

      assert_raise Error, ~r/first time/, fn -> Postern.run!(program("called"), [@x]) end
      assert [_] = Postern.run!(program("called"), [@x])
    end

    test "with a result of the wrong shape or type is an error that says both" do
      serve!("demo.scale", fn _ -> Tensor.new([1, 2], :s64) end)
      assert_raise Error, ~r/f32\[3\].*s64\[2\]/, fn -> Postern.run!(program("called"), [@x]) end
    end

    test "may run programs itself, on the device whose program calls it" do
      plain = program("plain")
      serve!("demo.scale", fn [x] -> hd(Postern.run!(plain, [x])) end)
      assert [y] = Postern.run!(program("called"), [@x])
      assert Tensor.to_list(y) == [3.0, 5.0, 7.0]
    end

    test "whose program is run by many processes answers each its own" do
      serve!("demo.scale", fn [x] -> x end)
      called = program("called")
      run = fn i -> Postern.run!(called, [[i, i, i]]) |> hd() |> Tensor.to_list() end
      runs = Task.async_stream(1..50, run, max_concurrency: 16, timeout: 60_000)
      assert Enum.map(runs, &elem(&1, 1)) == for(i <- 1..50, do: [1.0 * i, 1.0 * i, 1.0 * i])
    end
  end

  describe "hooks and io_call" do
    test "fire in the branch that is taken, in the order of the source, used or not" do
      note(["demo.positive", "demo.negative", "demo.first", "demo.second"])
      branches = program("branches")
      Postern.run!(branches, [@x])

      assert noted() == [
               {"demo.positive", [2.0, 4.0, 6.0]},
               {"demo.first", [3.0, 5.0, 7.0]},
               {"demo.second", [4.0, 6.0, 8.0]}
             ]

      Postern.run!(branches, [[-1, -2, -3]])
      assert [{"demo.negative", _}, {"demo.first", _}, {"demo.second", _}] = noted()
    end

    test "fire in each step of a loop" do
      note(["demo.log"])
      Postern.run!(program("taps"), [@x])
      assert noted() == for(i <- 0..99, do: {"demo.log", i})
    end

    test "show a container as its leaves" do
      note_pairs()
      Postern.run!(program("pair"), [@x])
      assert_received {:pair, [[1.0, 2.0, 3.0], 6.0]}
    end

    test "fire in each step of a while whose carry is a tuple" do
      note_pairs()
      assert [y] = Postern.run!(program("while_taps"), [@x])
      assert Tensor.to_list(y) == [16.0, 32.0, 48.0]

      for {i, factor} <- [{0, 1.0}, {1, 2.0}, {2, 4.0}, {3, 8.0}] do
        assert {:messages, [{:pair, [^i, values]} | _]} = Process.info(self(), :messages)
        assert values == [factor, 2 * factor, 3 * factor]
        assert_received {:pair, _}
      end

      refute_received {:pair, _}
    end

    test "that give something give it to nobody, whatever it is" do
      scale = fn [x] -> for n <- Tensor.to_list(x), do: n + 10 end
      serve!("demo.scale", scale)

      for given <- [fn x -> x end, fn x -> {x, x} end, fn x -> x.data end, fn _ -> :filled end] do
        log = serve!("demo.log", fn [x] -> given.(x) end)
        assert Tensor.to_list(hd(Postern.run!(program("calls"), [@x]))) == 36.0
        Postern.unserve(log)
      end
    end

    test "that nobody serves are an error before anything runs" do
      note(["demo.positive", "demo.negative", "demo.first"])
      assert {:error, %Error{code: :unregistered}} = Postern.run(program("branches"), [@x])
      assert noted() == []
    end

    test "that fail end the program" do
      note(["demo.positive", "demo.negative", "demo.second"])
      serve!("demo.first", fn _ -> raise "no listener" end)
      assert {:error, %Error{code: :threw}} = Postern.run(program("branches"), [@x])
      assert [{"demo.positive", _}] = noted()
    end

    test "beside the program are all delivered by the barrier" do
      test = self()
      serve!("demo.log", fn [x] -> send(test, {"demo.log", byte_size(x.data)}) end)
      x = Tensor.from_binary(:binary.copy(<<1.0::float-32-native>>, 100_000), :f32, {100_000})
      Postern.run!(program("async"), [x])
      assert :ok = Postern.barrier()
      assert noted() == [{"demo.log", 400_000}]
    end
  end

  test "print_value prints in the process that runs, where it can be captured" do
    print = fn -> Postern.run!(program("prints"), [@x]) end
    assert ExUnit.CaptureIO.capture_io(print) =~ "sum 6.0"
  end
end
