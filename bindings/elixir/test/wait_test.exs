defmodule Postern.WaitTest do
  @moduledoc "Waits for oneself and for everything, and events, whose program waits."
  use Postern.Case, async: false

  @x [1, 2, 3]

  test "a server that would wait for itself is told so" do
    test = self()
    called = program("called")

    waits = [
      run: fn -> Postern.run(called, [@x]) end,
      await: fn ->
        {:ok, run} = Postern.start(called, [@x])
        result = Postern.await(run)
        Postern.cancel(run)
        result
      end,
      stream: fn -> hd(Enum.to_list(Postern.stream("demo.log", called, [@x]))) end
    ]

    for {_, wait} <- waits do
      server = serve!("demo.scale", fn [x] -> send(test, {:inner, wait.()}) && x end)
      assert {:ok, [_]} = Postern.run(called, [@x])
      assert_received {:inner, {:error, %Error{code: :reentry, message: text}}}
      assert text =~ ~s("demo.scale")
      Postern.unserve(server)
    end

    # With a limit, with a process for each call, or when somebody else has the name, it may run.
    inner = fn options ->
      fn [x] ->
        if Tensor.to_list(x) == [1.0, 2.0, 3.0],
          do: send(test, {:inner, Postern.run(called, [[0, 0, 0]], options)})

        x
      end
    end

    server = serve!("demo.scale", inner.(timeout: 100))
    assert {:ok, [_]} = Postern.run(called, [@x])
    assert_received {:inner, {:error, %Error{code: :timeout}}}
    Postern.unserve(server)
    server = serve!("demo.scale", inner.([]), processes: :each)
    assert {:ok, [_]} = Postern.run(called, [@x])
    assert_received {:inner, {:ok, [_]}}
    Postern.unserve(server)

    serve!("demo.log", fn _ ->
      {:ok, _} = Postern.serve("demo.scale", scale(1.0), replace: true, owner: test)
      send(test, {:inner, Postern.run(called, [@x])})
    end)

    serve!("demo.scale", scale(1.0))
    assert {:ok, [_]} = Postern.run(program("calls"), [@x])
    assert_received {:inner, {:ok, [_]}}
  end

  test "a barrier inside a served function or an event is told that it would wait for itself" do
    test = self()
    called = program("called")

    for options <- [[], [processes: :each]] do
      server = serve!("demo.scale", fn [x] -> send(test, Postern.barrier()) && x end, options)
      assert {:ok, [_]} = Postern.run(called, [@x])
      assert_received {:error, %Error{code: :reentry}}
      Postern.unserve(server)
    end

    serve!("demo.scale", scale(1.0))
    stream = Postern.stream("demo.log", program("calls"), [@x])

    assert {:error, %Error{code: :reentry}} =
             Enum.find_value(stream, fn _ -> Postern.barrier() end)

    assert :ok = Postern.barrier()
  end

  test "a run whose print raises is over with that" do
    raises = fn _ -> raise "no paper" end

    for options <- [[], [timeout: 600_000]] do
      assert_raise RuntimeError, "no paper", fn ->
        Postern.run(program("prints_often"), [@x], [print: raises] ++ options)
      end
    end

    # Else it would print until the barrier.
    assert :ok = Postern.barrier()
    refute_received _
  end

  test "barriers occupy no scheduler" do
    test = self()
    serve!("demo.scale", spawn_link(fn -> forward(test) end))
    {:ok, run} = Postern.start(program("called"), [@x])
    assert_receive {:postern_call, request}

    for limit <- [20, 0, -1],
        do: assert({:error, %Error{code: :timeout}} = Postern.barrier(limit))

    waiting = for _ <- 1..40, do: Task.async(fn -> Postern.barrier() end)
    # On a dirty scheduler, of which there are ten.
    assert {:ok, _} = Task.yield(Task.async(fn -> File.read!(__ENV__.file) end), 5000)
    assert Enum.all?(waiting, &(Task.yield(&1, 0) == nil))
    assert :ok = Postern.reply(request, @x)
    assert {:ok, [_]} = Postern.await(run)
    assert Enum.all?(Task.await_many(waiting), &(&1 == :ok))
  end

  test "a failure is not told to a barrier whose process has ended" do
    test = self()
    serve!("demo.scale", spawn_link(fn -> forward(test) end))
    ref = start_alone(program("called"))
    assert_receive {:postern_call, request}
    waiting = for _ <- 1..4, do: spawn(fn -> Postern.barrier() end)
    at = {:current_function, {Postern, :barrier, 1}}
    for pid <- waiting, do: eventually(fn -> Process.info(pid, :current_function) == at end)

    for pid <- waiting do
      monitor = Process.monitor(pid)
      Process.exit(pid, :kill)
      assert_receive {:DOWN, ^monitor, _, _, _}
    end

    :erlang.garbage_collect()
    assert :ok = Postern.fail(request, :shut)
    assert_receive {:postern_ended, ^ref}
    eventually(fn -> match?({:error, %Error{code: :threw}}, Postern.barrier()) end)
    assert :ok = Postern.barrier()
  end

  # A run that no term knows.
  defp start_alone(program) do
    {:ok, run} = Postern.start(program, [@x])
    run.ref
  end

  test "events as a stream, at the pace of who takes them" do
    serve!("demo.scale", scale(3.0))
    stream = Postern.stream("demo.log", program("taps"), [@x])
    assert [{:ok, [y]} | events] = Enum.reverse(Enum.to_list(stream))
    assert first(y) == 100.0
    shown = for %{operands: [i]} <- Enum.reverse(events), do: Tensor.to_list(i)
    assert shown == Enum.to_list(0..99)

    # The program is no more than one event ahead: it waits while nobody takes.
    test = self()
    counted = serve!("demo.count", fn [_] -> send(test, :counted) end)

    taken =
      Postern.stream("demo.log", program("counted_taps"), [@x])
      |> Stream.map(fn event -> Process.sleep(20) && event end)
      |> Enum.take(3)

    assert length(taken) == 3
    Postern.unserve(counted)
    assert mailbox_count(:counted) in 3..4
    refute_received {:postern_ended, _}
  end

  test "a stream shows asynchronous taps to the last, also to who is slow" do
    serve!("demo.scale", fn [x] -> x end)
    x = Tensor.from_binary(:binary.copy(<<1.0::float-32-native>>, 20_000), :f32, {20_000})

    # The run has ended, and its events wait, before the second one is asked for.
    {count, ended} =
      Postern.stream("demo.log", program("async_loop"), [x])
      |> Enum.reduce({0, nil}, fn
        %{function: "demo.log"}, {count, nil} ->
          if count == 0, do: Process.sleep(500)
          {count + 1, nil}

        result, {count, nil} ->
          {count, result}
      end)

    assert {400, {:ok, [_]}} = {count, ended}
    refute_received {:postern_ready, _}
  end

  test "a stream ends while runs of others go on" do
    test = self()
    serve!("demo.pair", spawn_link(fn -> forward(test) end))
    {:ok, other} = Postern.start(program("while_taps"), [@x], device: 1)
    assert_receive {:postern_call, _}
    taps = Enum.to_list(Postern.stream("demo.log", program("two_taps"), [@x]))
    assert [%{site: "a"}, %{site: "b"}, {:ok, [_]}] = taps
    assert {:error, %Error{code: :timeout}} = Postern.await(other, 0)
    Postern.cancel(other)
  end

  test "a stream of the name of a call fails it" do
    stream = Postern.stream("demo.scale", program("called"), [@x])
    assert [{:error, %Error{code: :bad_result, message: text}}] = Enum.to_list(stream)
    assert text =~ "a stream shows taps and hooks"
    assert text =~ "demo.scale"
  end

  test "a stream of a name that is taken says so" do
    serve!("demo.log", fn _ -> :ok end)
    assert_raise Error, ~r/demo.log/, fn -> Enum.take(Postern.stream("demo.log"), 1) end
  end

  test "a stream that does not begin leaves its names free" do
    taps = program("taps")

    for {x, options} <- [{[1, "x", 3], []}, {@x, [speed: 3]}] do
      stream = Postern.stream("demo.log", taps, [x], options)
      assert_raise ArgumentError, fn -> Enum.take(stream, 1) end
    end

    serve!("demo.log", fn _ -> :ok end)
  end

  defp mailbox_count(message, count \\ 0) do
    receive do
      ^message -> mailbox_count(message, count + 1)
    after
      50 -> count
    end
  end
end
