defmodule Postern.ServerTest do
  use Postern.Case, async: false

  defmodule Counter do
    use Postern.Server

    def init(:no), do: {:stop, :not_today}
    def init(start), do: {:ok, start}

    def handle_call([x], _request, count) do
      if Tensor.to_list(x) == [0.0, 0.0, 0.0], do: exit(:zeros)
      if Tensor.to_list(x) == [9.0, 9.0, 9.0], do: throw(:nines)
      {:reply, List.duplicate(count, 3), count + 1}
    end

    def handle_info({:count, to}, count) do
      send(to, {:count, count})
      {:noreply, count}
    end
  end

  defp count(server) do
    send(server, {:count, self()})
    assert_receive {:count, count}
    count
  end

  test "a supervised server keeps its state, and starts again when it is killed" do
    options = [names: ["demo.scale"], name: __MODULE__.Counting]
    start_supervised!({Counter, {5, options}})
    called = program("called")
    for want <- [5, 6], do: assert(answer(called, [1, 2, 3]) == want)
    # What a callback throws or exits with is the run's end, not the server's.
    assert {:error, %Error{cause: {:exit, :zeros, _}}} = Postern.run(called, [[0, 0, 0]])
    assert {:error, %Error{cause: {:throw, :nines, _}}} = Postern.run(called, [[9, 9, 9]])
    server = Process.whereis(__MODULE__.Counting)
    assert count(server) == 7
    Process.exit(server, :kill)
    eventually(fn -> Process.whereis(__MODULE__.Counting) not in [nil, server] end)
    eventually(fn -> match?({:ok, _}, Postern.run(called, [[1, 2, 3]])) end)
    assert count(__MODULE__.Counting) == 6
  end

  test "a supervisor knows the modules whose upgrade concerns a server" do
    {:ok, supervisor} =
      Supervisor.start_link([{Counter, {0, names: ["demo.scale"]}}], strategy: :one_for_one)

    assert [{Counter, _, :worker, modules}] = :supervisor.which_children(supervisor)
    assert Counter in modules
    Supervisor.stop(supervisor)
  end

  test "a server that does not start says why, and leaves the name free" do
    Process.flag(:trap_exit, true)
    options = [names: ["demo.scale"]]

    for _ <- 1..50 do
      assert {:error, :not_today} = Postern.Server.start_link(Counter, :no, options)
    end

    assert {:ok, server} = Postern.Server.start_link(Counter, 0, options)

    assert {:error, %Error{code: :already_exists}} =
             Postern.Server.start_link(Counter, 0, options)

    GenServer.stop(server)
  end

  test "the code of a serving module is upgraded while programs run" do
    Code.compiler_options(ignore_module_conflict: true)
    module = Postern.ServerTest.Upgraded

    version = fn factor ->
      Code.compile_string("""
      defmodule #{inspect(module)} do
        use Postern.Server
        def init(state), do: {:ok, state}

        def handle_call([x], _request, calls) do
          {:reply, for(n <- Postern.Tensor.to_list(x), do: n * #{factor}), calls + 1}
        end

        def handle_info({:calls, to}, calls) do
          send(to, {:calls, calls})
          {:noreply, calls}
        end

        def code_change(_old, calls, more), do: {:ok, calls + more}
      end
      """)
    end

    version.(3.0)
    {:ok, server} = Postern.Server.start_link(module, 0, names: ["demo.scale"])
    loop = program("loop")
    running = Task.async(fn -> for _ <- 1..10, do: Postern.run(loop, [[1, 2, 3]]) end)
    called = program("called")
    assert answer(called, [1, 2, 3]) == 3.0
    assert Enum.all?(Task.await(running, 60_000), &match?({:ok, _}, &1))
    :sys.suspend(server)
    waiting = Task.async(fn -> answer(called, [1, 2, 3]) end)
    version.(7.0)
    assert :ok = :sys.change_code(server, Postern.Server, "1", 100)
    :sys.resume(server)
    assert Task.await(waiting, 60_000) == 7.0, "what waited meanwhile is answered by the new code"
    send(server, {:calls, self()})
    assert_receive {:calls, 10_102}
    :code.purge(module)
    assert answer(called, [1, 2, 3]) == 7.0
    GenServer.stop(server)
  end

  test "events tell of calls and failures, and a handler that fails is detached" do
    test = self()

    events = [
      [:postern, :call, :stop],
      [:postern, :call, :exception],
      [:postern, :server, :start]
    ]

    tell = fn event, measured, metadata, :config -> send(test, {event, measured, metadata}) end
    assert :ok = Postern.Telemetry.attach("tell", events, tell, :config)
    assert {:error, :already_exists} = Postern.Telemetry.attach("tell", events, tell)
    raising = fn _, _, _, _ -> raise "no" end
    assert :ok = Postern.Telemetry.attach("bad", [[:postern, :call, :stop]], raising)
    {:ok, server} = Postern.Server.start_link(Counter, 0, names: ["demo.scale"])
    assert_received {[:postern, :server, :start], _, %{server: ^server, names: ["demo.scale"]}}
    called = program("called")
    assert answer(called, [1, 2, 3]) == 0
    assert_receive {[:postern, :call, :stop], %{duration: duration}, %{server: ^server}}
    assert duration > 0
    assert {:error, :not_found} = Postern.Telemetry.detach("bad")
    assert {:error, _} = Postern.run(called, [[0, 0, 0]])
    assert_receive {[:postern, :call, :exception], _, %{kind: :exit, reason: :zeros}}
    assert :ok = Postern.Telemetry.detach("tell")
    assert answer(called, [1, 2, 3]) == 1
    refute_received {[:postern, _, _], _, _}
    GenServer.stop(server)
  end

  test "events tell how a call is answered, and when, wherever that is" do
    test = self()
    events = [[:postern, :call, :stop], [:postern, :call, :exception]]

    tell = fn [_, _, event], %{duration: duration}, metadata, _ ->
      send(test, {event, System.convert_time_unit(duration, :native, :millisecond), metadata})
    end

    assert :ok = Postern.Telemetry.attach("answers", events, tell)
    called = program("called")
    x = [1, 2, 3]

    serve = fn answers, options ->
      {:ok, server} = Postern.serve("demo.scale", answers, options)
      result = Postern.run(called, [x])
      told = assert_receive {_, _, %{server: ^server, names: ["demo.scale"]}}
      refute_receive {_, _, %{server: ^server}}, 50
      Postern.unserve(server)
      {result, told}
    end

    slow = fn [x] -> Process.sleep(100) && x end
    assert {{:ok, _}, {:stop, time, _}} = serve.(slow, processes: :each)
    assert time >= 100

    answerer = spawn_link(fn -> answer_late() end)
    assert {{:ok, _}, {:stop, time, _}} = serve.(answerer, [])
    assert time >= 100

    for options <- [[], [processes: :each]] do
      assert {{:error, _}, {:exception, _, %{kind: :throw, reason: :ball, stacktrace: [_ | _]}}} =
               serve.(fn _ -> throw(:ball) end, options)

      assert {{:error, _}, {:exception, _, %{reason: %Error{code: :bad_result}}}} =
               serve.(fn _ -> [1, 2] end, options)
    end

    assert {{:error, _}, {:exception, time, %{reason: %Error{code: :timeout}}}} =
             serve.(fn _ -> Process.sleep(:infinity) end, processes: :each, timeout: 50)

    assert time >= 50

    assert {{:error, _}, {:exception, _, %{kind: :exit, reason: :killed}}} =
             serve.(fn _ -> Process.exit(self(), :kill) end, processes: :each)

    assert :ok = Postern.Telemetry.detach("answers")
  end

  defp answer_late do
    receive do:
              ({:postern_call, request} ->
                 Process.sleep(100) && Postern.reply(request, [1, 2, 3]))

    receive do: (:never -> :ok)
  end

  test "a node that shuts down, or is halted, in the middle of a call does not wait" do
    paths = for path <- :code.get_path(), String.contains?("#{path}", "postern"), do: "#{path}"
    file = Path.join(Application.fetch_env!(:postern, :test_programs), "called.mlir")

    for stop <- ["System.stop(7)", "System.halt(7)", "Application.stop(:postern); exit_now.()"] do
      script = """
      {:ok, _} = Application.ensure_all_started(:postern)
      test = self()
      exit_now = fn ->
        receive do: ({:ended, result} -> IO.inspect(result))
        System.halt(7)
      end
      {:ok, _} = Postern.serve("demo.scale", fn _ ->
        send(test, :in)
        Process.sleep(:infinity)
      end)
      {:ok, program} = Postern.load(#{inspect(file)})
      spawn(fn -> send(test, {:ended, Postern.run(program, [[1, 2, 3]])}) end)
      receive do: (:in -> :ok)
      _ = exit_now
      #{stop}
      Process.sleep(:infinity)
      """

      began = System.monotonic_time(:millisecond)
      paths = Enum.flat_map(paths, &["-pa", &1])
      {out, code} = System.cmd("elixir", paths ++ ["-e", script], stderr_to_stdout: true)
      assert code == 7, out
      assert System.monotonic_time(:millisecond) - began < 120_000
      if stop =~ "exit_now", do: assert(out =~ "code: :closed")
    end
  end

  @tag timeout: :infinity, memory: true
  test "memory stays what it is on both sides" do
    calls = String.to_integer(System.get_env("POSTERN_SOAK", "40000"))
    before = Postern.Nif.alive()
    {:ok, server} = Postern.serve("demo.scale", fn [x] -> x end)
    {:ok, log} = Postern.serve("demo.log", fn _ -> :ok end)
    loop = program("loop")
    large = program("called_large")
    x = Tensor.from_binary(:binary.copy(<<1.0::float-32-native>>, 262_144), :f32, {262_144})

    round = fn ->
      Postern.run!(loop, [[1, 2, 3]])
      Postern.run!(large, [x])
      {:error, _} = Postern.run(loop, [[1, 2]])
    end

    rounds = div(calls, 1000)
    for _ <- 1..10, do: round.()

    # What the allocators keep they have taken in the first half.
    [start, middle, later, stop] =
      for n <- [0, div(rounds, 2), div(rounds, 2), div(rounds, 2)] do
        for _ <- 1..n//1, do: round.()
        memory()
      end

    text = "bytes of the VM, KiB of the process: #{inspect([start, middle, later, stop])}"
    grown = fn i -> min(elem(stop, i) - elem(later, i), elem(later, i) - elem(middle, i)) end
    assert grown.(0) < 1_000_000, text
    # An operand that leaked would be 1 MiB each time.
    assert grown.(1) < 4_000, text
    for s <- [server, log], do: Postern.unserve(s)

    eventually(fn ->
      kinds = [:postern_request, :postern_lease, :postern_run, :postern_listener, :postern_result]
      alive = alive()
      Enum.all?(kinds, &(Keyword.get(alive, &1, 0) <= Keyword.get(before, &1, 0)))
    end)
  end

  # Bytes of the VM, KiB of the process.
  defp memory do
    for pid <- Process.list(), do: :erlang.garbage_collect(pid)
    [_, resident] = Regex.run(~r/VmRSS:\s+(\d+) kB/, File.read!("/proc/self/status"))
    {:erlang.memory(:total), String.to_integer(resident)}
  end

  defp answer(program, x), do: Postern.run!(program, [x]) |> hd() |> Tensor.to_list() |> hd()
end
