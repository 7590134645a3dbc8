defmodule Postern.ServeTest do
  use Postern.Case, async: false

  @x [1, 2, 3]

  test "a function answers calls, and sees who calls" do
    test = self()

    serve!("demo.scale", fn [x], request ->
      info = Postern.Request.info(request)
      send(test, {info, Postern.Request.results(request)})
      for n <- Tensor.to_list(x), do: info.attributes["factor"] * n
    end)

    serve!("demo.log", fn [x] -> send(test, {:tap, Tensor.to_list(x)}) end)
    assert {:ok, [sum]} = Postern.run(program("calls"), [@x])
    assert Tensor.to_list(sum) == 18.0
    assert_received {:tap, [3.0, 6.0, 9.0]}
    assert_received {info, {:ok, [{:f32, {3}}]}}

    assert %{function: "demo.scale", site: "scale", device: 0, element: -1, coordinates: []} =
             info

    assert info.attributes == %{"factor" => 3.0}
  end

  test "several results of several types" do
    serve!("demo.mixed", fn [x, n], request ->
      assert %{"name" => "mixed", "axes" => [0, 1]} = Postern.Request.info(request).attributes
      both = for _ <- 1..2, do: Tensor.to_list(x)
      {both, round(first(n)), <<>>}
    end)

    assert {:ok, [both, count, none]} = Postern.run(program("mixed"), [@x, 2.0])
    assert Tensor.to_list(both) == [[2.0, 3.0, 4.0], [2.0, 3.0, 4.0]]
    assert Tensor.to_list(count) == 3
    assert none.shape == {0, 2}
  end

  test "a loop of calls, and many programs at once" do
    serve!("demo.scale", scale(3.0))
    loop = program("loop")

    answers =
      1..4
      |> Task.async_stream(fn i -> first(hd(Postern.run!(loop, [[i, i, i]]))) end, timeout: 60_000)
      |> Enum.map(fn {:ok, y} -> y end)

    assert answers == [1.0, 2.0, 3.0, 4.0]
  end

  test "exceptions, exits and throws end the run, in words and as the terms themselves" do
    limited = program("called")

    for {act, kind, reason, words} <- [
          {fn _ -> raise ArgumentError, "the door is shut" end, :error,
           %ArgumentError{message: "the door is shut"}, "the door is shut"},
          {fn _ -> throw({:ball, 7}) end, :throw, {:ball, 7}, "(throw) {:ball, 7}"},
          {fn _ -> exit(:tired) end, :exit, :tired, "(exit) :tired"},
          {fn [x] -> [apply(:lists, :nth, [9, Tensor.to_list(x)])] end, :error, :function_clause,
           "no function clause"}
        ] do
      server = serve!("demo.scale", act)
      assert {:error, %Error{code: :threw} = error} = Postern.run(limited, [@x])
      assert error.message =~ words
      assert error.message =~ "serve_test.exs"
      assert {^kind, ^reason, stacktrace} = error.cause
      assert Enum.any?(stacktrace, &match?({_, _, _, _}, &1))
      assert Process.alive?(server), "the server goes on"
      Postern.unserve(server)
    end

    serve!("demo.scale", scale(2.0))
    assert {:ok, [y]} = Postern.run(limited, [@x])
    assert Tensor.to_list(y) == [2.0, 4.0, 6.0]
  end

  test "results that do not fit are refused in words" do
    limited = program("called")

    for {result, words} <- [
          {[1, 2], "is f32[3], the reply has f32[2]"},
          {Tensor.new([1, 2, 3], :s32), "is f32[3], the reply has s32[3]"},
          {{@x, @x}, "has 1 results, the reply has 2"},
          {{}, "has 1 results, the reply has 0"},
          {"abc", "12 bytes, 3 were given"}
        ] do
      server = serve!("demo.scale", fn _ -> result end)
      assert {:error, %Error{code: :bad_result, message: text}} = Postern.run(limited, [@x])
      assert text =~ words
      Postern.unserve(server)
    end

    serve!("demo.scale", fn _ -> :nonsense end)
    assert {:error, %Error{code: :threw, message: text}} = Postern.run(limited, [@x])
    assert text =~ ":nonsense is no number of f32"
  end

  test "a name is one server's, unless it is replaced, and free when the owner ends" do
    limited = program("called")
    server = serve!("demo.scale", scale(2.0))
    assert {:error, %Error{code: :already_exists}} = Postern.serve("demo.scale", scale(1.0))
    second = serve!("demo.scale", scale(5.0), replace: true)
    assert first(hd(Postern.run!(limited, [@x]))) == 5.0
    # The one that was replaced does not take the name along.
    Postern.unserve(server)
    assert first(hd(Postern.run!(limited, [@x]))) == 5.0
    Postern.unserve(second)
    assert {:error, %Error{code: :unregistered}} = Postern.run(limited, [@x])
    Task.await(Task.async(fn -> Postern.serve("demo.scale", scale(1.0)) end))

    eventually(fn -> match?({:error, %Error{code: :unregistered}}, Postern.run(limited, [@x])) end)
  end

  test "a process answers, late, twice, and in place" do
    answerer =
      spawn_link(fn ->
        receive do
          {:postern_call, request} ->
            assert :ok = Postern.Request.put(request, 0, 4, [<<7.0::float-32-native>>, ""])
            assert :ok = Postern.Request.put(request, 0, 0, <<6.0::float-32-native>>)

            assert {:error, %Error{code: :bad_result}} =
                     Postern.Request.put(request, 0, 9, "long")

            assert {:error, %Error{code: :bad_result}} = Postern.Request.put(request, 1, 0, "x")
            assert {:error, %Error{code: :bad_result}} = Postern.reply(request, [1, 2])
            assert :ok = Postern.Request.put(request, 0, 8, <<8.0::float-32-native>>)
            refute Postern.Request.stopped?(request)
            assert :ok = Postern.reply(request, :filled)
            assert {:error, %Error{code: :not_found}} = Postern.reply(request, @x)
            assert {:error, %Error{code: :not_found}} = Postern.fail(request, :late)
            assert {:error, %Error{code: :not_found}} = Postern.Request.put(request, 0, 0, "")
            assert {:error, %Error{code: :not_found}} = Postern.Request.info(request)
            assert Postern.Request.stopped?(request)
        end

        receive do: (:never -> :ok)
      end)

    serve!("demo.scale", answerer)
    assert {:ok, [y]} = Postern.run(program("called"), [@x])
    assert Tensor.to_list(y) == [6.0, 7.0, 8.0]
  end

  test "a process that answers has a limit" do
    test = self()
    server = serve!("demo.scale", spawn_link(fn -> forward(test) end), timeout: 50)
    task = Task.async(fn -> Postern.run(program("called"), [@x]) end)
    assert_receive {:postern_call, request}
    assert {:error, %Error{code: :timeout, message: text}} = Task.await(task, 60_000)
    assert text =~ "within 50 ms"
    assert {:error, %Error{code: :not_found}} = Postern.reply(request, @x)

    # In time it is none.
    Postern.unserve(server)
    serve!("demo.scale", spawn_link(fn -> forward(test) end), timeout: 60_000)
    task = Task.async(fn -> Postern.run(program("called"), [@x]) end)
    assert_receive {:postern_call, request}
    assert :ok = Postern.reply(request, @x)
    assert {:ok, [_]} = Task.await(task, 60_000)
  end

  test "the deadline of a run" do
    test = self()
    serve!("demo.scale", spawn_link(fn -> forward(test) end))
    called = program("called")
    assert {:error, %Error{code: :timeout}} = Postern.run(called, [@x], deadline: 100)
    {:ok, run} = Postern.start(called, [@x], deadline: 100)
    assert {:error, %Error{code: :timeout}} = Postern.await(run, 10_000)
    serve!("demo.scale", scale(2.0), replace: true)
    assert {:ok, [_]} = Postern.run(called, [@x], deadline: 60_000)
  end

  test "what has a limit is not kept when it was answered" do
    serve!("demo.scale", scale(3.0), processes: :each, timeout: 600_000)
    Postern.run!(program("loop"), [@x])
    eventually(fn -> alive(:postern_request) < 100 end)
  end

  test "a process that is killed, or lets the request go, is a typed error" do
    free = program("called")
    test = self()

    pid =
      spawn(fn ->
        receive do: ({:postern_call, _} -> send(test, :in))
        Process.sleep(:infinity)
      end)

    serve!("demo.scale", pid)
    task = Task.async(fn -> Postern.run(free, [@x]) end)
    assert_receive :in
    assert Task.yield(task, 0) == nil
    Process.exit(pid, :kill)
    assert {:error, %Error{code: :closed, message: text}} = Task.await(task, 60_000)
    assert text =~ "has ended"

    forgetful =
      spawn_link(fn ->
        receive do: ({:postern_call, _} -> :ok)
        :erlang.garbage_collect()
        receive do: (:never -> :ok)
      end)

    eventually(fn -> match?({:ok, _}, Postern.serve("demo.scale", forgetful)) end)
    assert {:error, %Error{code: :closed, message: text}} = Postern.run(free, [@x])
    assert text =~ "without an answer"
  end

  test "a server that is killed in the middle of a call is a typed error" do
    free = program("called")
    test = self()
    server = serve!("demo.scale", fn _ -> send(test, :in) && Process.sleep(:infinity) end)
    task = Task.async(fn -> Postern.run(free, [@x]) end)
    waiting = Task.async(fn -> Postern.run(free, [@x]) end)
    assert_receive :in
    Process.sleep(500)
    Process.exit(server, :kill)
    assert {:error, %Error{code: :closed}} = Task.await(task, 60_000)
    assert {:error, %Error{code: :closed}} = Task.await(waiting, 60_000)
  end

  test "a server whose function does not return is ended all the same" do
    test = self()
    free = program("called")
    server = serve!("demo.scale", fn _ -> send(test, :in) && Process.sleep(:infinity) end)
    task = Task.async(fn -> Postern.run(free, [@x]) end)
    assert_receive :in
    assert :ok = Postern.unserve(server)
    refute Process.alive?(server)
    assert {:error, %Error{code: :closed}} = Task.await(task, 60_000)
    assert :ok = Postern.unserve(server)
  end

  test "a limit is in whole milliseconds" do
    for timeout <- [-1, 1.5, "1", :never], pid_or_fun <- [self(), fn [x] -> x end] do
      options = if is_pid(pid_or_fun), do: [], else: [processes: :each]

      assert_raise ArgumentError, ~r/timeout is in whole milliseconds/, fn ->
        Postern.serve("demo.scale", pid_or_fun, [timeout: timeout] ++ options)
      end
    end

    serve!("demo.scale", scale(1.0), processes: :each, timeout: :infinity)
    assert {:ok, [_]} = Postern.run(program("called"), [@x])
  end

  test "a server that ends before a process has its request leaves none behind" do
    others = Process.list()
    request = %Postern.Request{handle: make_ref(), operands: []}

    # With such a limit it ends in between.
    {server, monitor} =
      spawn_monitor(fn ->
        Postern.Serving.handle_call([], request, {:each, fn [x] -> x end, -1, %{}})
      end)

    assert_receive {:DOWN, ^monitor, :process, ^server, {_, _}}
    eventually(fn -> Process.list() -- others == [] end)
  end

  test "limits of the call and of the server" do
    # The call's own: 50 ms.
    server = serve!("demo.scale", fn _ -> Process.sleep(3000) && @x end)
    assert {:error, %Error{code: :timeout}} = Postern.run(program("limited"), [@x])
    Postern.unserve(server)

    test = self()
    late = serve!("demo.scale", spawn_link(fn -> forward(test) end))
    assert {:error, %Error{code: :timeout}} = Postern.run(program("limited"), [@x])
    assert_receive {:postern_call, request}
    assert {:error, %Error{code: :cancelled, message: text}} = Postern.reply(request, @x)
    assert text =~ "before the answer came"
    assert {:error, %Error{code: :not_found}} = Postern.reply(request, @x)
    Postern.unserve(late)

    serve!("demo.scale", fn _ -> send(test, self()) && Process.sleep(:infinity) end,
      processes: :each,
      timeout: 1000
    )

    assert {:error, %Error{code: :timeout, message: text}} = Postern.run(program("called"), [@x])

    assert text =~ "within 1000 ms"
    assert_received worker when is_pid(worker)
    eventually(fn -> not Process.alive?(worker) end)
  end

  test "calls are answered at the same time by a process for each" do
    free = program("called")
    test = self()

    serve!(
      "demo.scale",
      fn [x] ->
        send(test, {:in, self()})
        receive do: (:go -> x)
      end,
      processes: :each
    )

    tasks = for _ <- 1..3, do: Task.async(fn -> Postern.run(free, [@x]) end)
    inside = for _ <- 1..3, do: assert_receive({:in, pid}, 5000) && pid
    for pid <- inside, do: send(pid, :go)
    for task <- tasks, do: assert({:ok, [_]} = Task.await(task, 60_000))
  end

  @tag :no_stages
  test "a thousand calls are open at once, and other processes go on" do
    test = self()

    holder =
      spawn_link(fn ->
        open = for _ <- 1..1024, do: receive(do: ({:postern_call, request} -> request))
        send(test, {:open, length(open)})
        receive do: (:answer -> :ok)
        for request <- open, do: :ok = Postern.reply(request, @x)
      end)

    serve!("demo.scale", holder)
    program = program("started")
    tasks = for _ <- 1..16, do: Task.async(fn -> Postern.run(program, [@x]) end)
    assert_receive {:open, 1024}, 60_000
    # A program of another name runs, and messages pass, while nobody answers.
    assert {:ok, [_]} = Postern.run(program("plain"), [@x])
    send(holder, :answer)
    for {:ok, [y]} <- Task.await_many(tasks, 60_000), do: assert(first(y) == 65.0)
    assert :ok = Postern.barrier()
  end

  test "large operands are looked at in place, and keep the request open while somebody has one" do
    test = self()
    big = program("called_large")
    x = Tensor.from_binary(:binary.copy(<<1.0::float-32-native>>, 262_144), :f32, {262_144})
    copied = serve!("demo.scale", fn [x] -> send(test, {:kept, x}) && x end, operands: :copied)
    assert {:ok, [y]} = Postern.run(big, [x])
    assert y.data == x.data
    assert_received {:kept, %Tensor{data: data}}
    assert data == x.data
    Postern.unserve(copied)

    keeper = spawn_link(fn -> keep(nil) end)

    serve!("demo.scale", fn [x] ->
      part = binary_part(x.data, 8, 100)
      send(keeper, {:keep, part, self()})
      receive do: (:kept -> x)
    end)

    task = Task.async(fn -> Postern.run(big, [x]) end)
    assert Task.yield(task, 300) == nil, "a process has a part of the operand"
    send(keeper, {:drop, self()})
    assert_receive {:was, part}
    assert part == binary_part(x.data, 8, 100)
    assert {:ok, [y]} = Task.await(task, 60_000)
    assert y.data == x.data

    # Nobody keeps anything: nothing waits for a collection that does not come.
    {microseconds, _} =
      :timer.tc(fn ->
        for _ <- 1..20 do
          task = Task.async(fn -> Postern.run(big, [x]) end)
          receive do: ({:never, _} -> :ok), after: (0 -> :ok)
          send(keeper, {:drop, self()})
          assert_receive {:was, _}
          send(keeper, {:drop, self()})
          drop_until(keeper, task)
        end
      end)

    assert microseconds < 20_000_000
  end

  defp drop_until(keeper, task) do
    case Task.yield(task, 20) do
      {:ok, result} -> assert {:ok, [_]} = result
      nil -> send(keeper, {:drop, self()}) && drop_until(keeper, task)
    end
  end

  defp keep(part) do
    receive do
      {:keep, part, from} ->
        send(from, :kept)
        keep(part)

      {:drop, to} ->
        send(to, {:was, part && :binary.copy(part)})
        :erlang.garbage_collect()
        dropped()
    end
  end

  defp dropped do
    :erlang.garbage_collect()
    keep(nil)
  end

  test "an operand that the failure's terms hold does not hold the run" do
    x = Tensor.from_binary(:binary.copy(<<1.0::float-32-native>>, 262_144), :f32, {262_144})
    serve!("demo.scale", fn [x] -> throw({:operand, x}) end)

    assert {:error, %Error{cause: {:throw, {:operand, same}, _}}} =
             Postern.run(program("called_large"), [x])

    assert same == x
  end

  test "a cancelled run, and one whose owner ends, let their calls go" do
    free = program("called")
    test = self()
    pid = spawn_link(fn -> forward(test) end)
    serve!("demo.scale", pid)
    {:ok, run} = Postern.start(free, [@x])
    assert_receive {:postern_call, request}
    assert Postern.cancel(run) == :ok
    assert {:error, %Error{code: :cancelled}} = Postern.await(run, 5000)
    assert Postern.Request.stopped?(request)
    assert {:error, %Error{code: :cancelled}} = Postern.reply(request, @x)
    assert {:error, %Error{code: :not_found}} = Postern.reply(request, @x)

    owner = spawn(fn -> Postern.start(free, [@x]) && Process.sleep(:infinity) end)
    assert_receive {:postern_call, request}
    refute Postern.Request.stopped?(request)
    Process.exit(owner, :kill)
    eventually(fn -> Postern.Request.stopped?(request) end)
  end

  test "a run that no term knows any more is cancelled too when its owner ends, and only then" do
    test = self()
    called = program("called")
    pid = spawn_link(fn -> forward(test) end)
    serve!("demo.scale", pid)

    owner =
      spawn(fn ->
        start_alone(called)
        :erlang.garbage_collect()
        send(test, :collected)
        Process.sleep(:infinity)
      end)

    assert_receive {:postern_call, request}
    assert_receive :collected
    Process.sleep(100)
    refute Postern.Request.stopped?(request)
    Process.exit(owner, :kill)
    eventually(fn -> Postern.Request.stopped?(request) end)
    assert {:error, %Error{code: :cancelled}} = Postern.fail(request, :late)

    # Its failure is still the barrier's when nobody can see it any more.
    Postern.barrier()
    start_alone(called)
    :erlang.garbage_collect()
    assert_receive {:postern_call, request}
    Process.sleep(100)
    Postern.fail(request, :shut)
    assert {:error, %Error{code: :threw}} = Postern.barrier()
  end

  defp start_alone(program), do: {:ok, _} = Postern.start(program, [@x])

  test "large operands are copied where no scheduler waits" do
    x = Tensor.from_binary(:binary.copy(<<1.0::float-32-native>>, 262_144), :f32, {262_144})
    copied = serve!("demo.scale", fn [x] -> x end, operands: :copied)
    large = program("called_large")
    assert :bridge_next in dirty(copied, fn -> assert Postern.run!(large, [x]) == [x] end)
    small = program("called")
    assert dirty(copied, fn -> Postern.run!(small, [@x]) end) == []
  end

  test "large results and causes are copied where no scheduler waits" do
    x = Tensor.from_binary(:binary.copy(<<1.0::float-32-native>>, 262_144), :f32, {262_144})
    large = program("called_large")

    for {answer, calls} <- [
          {fn x -> x.data end, [:request_reply]},
          {fn x -> {x.data} end, [:request_reply]},
          {fn x -> throw({:operand, x}) end, [:request_fail]}
        ] do
      server = serve!("demo.scale", fn [x] -> answer.(x) end)
      assert dirty(server, fn -> Postern.run(large, [x]) end) == calls
      Postern.unserve(server)
    end
  end

  test "operands are not copied" do
    test = self()
    x = Tensor.from_binary(:binary.copy(<<1.0::float-32-native>>, 524_288), :f32, {512, 1024})
    # Memory of the library, which is aligned.
    [%Tensor{data: <<part::binary-1_048_576, _::binary>>}] = Postern.run!(program("large"), [x])
    aligned = Tensor.from_binary(part, :f32, {262_144})

    for {operands, same} <- [shared: true, copied: false] do
      answer = fn [x] -> send(test, {:at, Postern.Nif.address(x.data)}) && x end
      server = serve!("demo.scale", answer, operands: operands)
      Postern.run!(program("called_large"), [aligned])
      assert_received {:at, address}
      assert same == (address == Postern.Nif.address(part))
      Postern.unserve(server)
    end
  end
end
