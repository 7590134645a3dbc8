defmodule Postern.RunTest do
  use Postern.Case, async: true

  test "a program runs, and shows what it takes" do
    plain = program("plain")
    assert plain.inputs == [{:f32, {3}}]
    assert plain.outputs == [{:f32, {3}}]
    assert plain.functions == []
    assert {:ok, [y]} = Postern.run(plain, [[1, 2, 3]])
    assert %Tensor{type: :f32, shape: {3}} = y
    assert Tensor.to_list(y) == [3.0, 5.0, 7.0]
  end

  test "a file that is not there, is none, or was cut is a typed error" do
    assert {:error, %Error{code: :not_found, message: text}} = Postern.load("/no/such/file")
    assert text =~ "/no/such/file"
    assert {:error, %Error{code: :invalid_argument}} = Postern.load_text("no program")
    folder = Application.fetch_env!(:postern, :test_programs)
    whole = File.read!(Path.join(folder, "plain.mlir"))
    cut = binary_part(whole, 0, byte_size(whole) - 20)
    assert {:error, %Error{code: :data_loss}} = Postern.load_text(cut)
  end

  test "wrong arguments are errors in words" do
    plain = program("plain")
    assert {:error, %Error{message: text}} = Postern.run(plain, [])
    assert text =~ "takes 1 arguments, 0 were given"
    assert {:error, %Error{message: text}} = Postern.run(plain, [Tensor.new([1, 2], :f32)])
    assert text =~ "f32[2]"
    wrong = %Tensor{type: :f32, shape: {3}, data: <<0, 1>>}
    assert {:error, %Error{message: text}} = Postern.run(plain, [wrong])
    assert text =~ "12 bytes, 2 were given"
    assert_raise ArgumentError, fn -> Postern.run(plain, [%{wrong | type: :f33}]) end
    assert_raise Error, ~r/12 bytes/, fn -> Postern.run!(plain, [wrong]) end
  end

  test "several types, a number, and no elements at all" do
    assert program("mixed").outputs == [{:f64, {2, 3}}, {:s32, {}}, {:pred, {0, 2}}]

    assert {:error, %Error{code: :unregistered, message: text}} =
             Postern.run(program("mixed"), [[1, 2, 3], 2.0])

    assert text =~ "demo.mixed"
  end

  test "results are used in place by the next run, and outlive everything else" do
    large = program("large")
    ones = for _ <- 1..(512 * 1024), into: <<>>, do: <<1.0::float-32-native>>
    x = Tensor.from_binary(ones, :f32, {512, 1024})
    last = Enum.reduce(1..5, x, fn _, x -> hd(Postern.run!(large, [x])) end)
    :erlang.garbage_collect()
    assert <<63.0::float-32-native, _::binary>> = last.data
    # A part keeps the whole.
    tail = binary_part(last.data, byte_size(last.data) - 4, 4)
    :erlang.garbage_collect()
    assert tail == <<63.0::float-32-native>>
  end

  test "results are not copied" do
    large = program("large")
    zeros = :binary.copy(<<0.0::float-32-native>>, 512 * 1024)
    x = Tensor.from_binary(zeros, :f32, {512, 1024})
    {:ok, run} = Postern.start(large, [x])
    {:ok, [once]} = Postern.await(run)
    {:ok, [again]} = Postern.await(run)
    assert Postern.Nif.address(once.data) == Postern.Nif.address(again.data)
    # It would be seen.
    assert Postern.Nif.address(:binary.copy(once.data)) != Postern.Nif.address(once.data)
  end

  test "many processes run one program at once" do
    plain = program("plain")

    sums =
      1..200
      |> Task.async_stream(
        fn i -> Postern.run!(plain, [[i, i, i]]) |> hd() |> Tensor.to_list() |> hd() end,
        max_concurrency: 32,
        timeout: 60_000
      )
      |> Enum.map(fn {:ok, first} -> first end)

    assert sums == for(i <- 1..200, do: 2.0 * i + 1)
  end

  test "a program whose sizes are open takes every size" do
    open = program("open")
    assert open.inputs == [{:f32, {-1, 3}}]
    assert open.outputs == [{:f32, {3}}, {:f32, {-1, 3}}]

    for n <- [2, 3] do
      rows = for i <- 1..n, do: [i, i, i]
      assert {:ok, [mean, sums]} = Postern.run(open, [rows])
      assert first(mean) == (n + 1) / 2
      assert List.last(Tensor.to_list(sums)) == List.duplicate(n * (n + 1) / 2, 3)
    end
  end

  # The native functions that a run of it was in on dirty schedulers.
  defp dirty_in(program, x) do
    test = self()

    pid =
      spawn_link(fn ->
        receive do: (:go -> send(test, {:ran, Postern.run(program, [x])}))
        Process.sleep(:infinity)
      end)

    Enum.sort(dirty(pid, fn -> send(pid, :go) && assert_receive {:ran, _}, 60_000 end))
  end

  test "no scheduler compiles, or copies what is large" do
    plain = program("plain")
    assert dirty_in(plain, [1, 2]) == [:start]
    assert dirty_in(plain, [1, 2, 3]) == [:start]
    assert dirty_in(plain, [1, 2, 3]) == []
    large = program("large")
    x = Tensor.from_binary(:binary.copy(<<1.0::float-32-native>>, 512 * 1024), :f32, {512, 1024})
    assert dirty_in(large, x) == [:result, :start]
  end

  test "no scheduler compiles for another size, or for several devices at first" do
    {:ok, unnamed} =
      Postern.load_text("""
      func.func @main(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
        %0 = stablehlo.add %x, %x : tensor<?x?xf32>
        return %0 : tensor<?x?xf32>
      }
      """)

    assert unnamed.inputs == [{:f32, {-1, -1}}]

    for program <- [program("open"), unnamed], n <- [2, 2, 3] do
      assert dirty_in(program, for(_ <- 1..n, do: [1, 2, 3])) == [:result, :start]
    end

    plain = program("plain")
    parts = for _ <- 1..2, do: Tensor.new([1, 2, 3], :f32)
    copies = %Postern.Shards{mesh: {2}, cuts: [[]], parts: parts}
    assert :start in dirty_in(plain, copies)
    assert dirty_in(plain, [1, 2, 3]) == [:start]
    assert dirty_in(plain, [1, 2, 3]) == []
  end

  test "a run is started, awaited with a limit, and only by its owner" do
    {:ok, run} = Postern.start(program("plain"), [[1, 2, 3]])
    assert {:ok, [_]} = Postern.await(run, 10_000)
    # Once more gives the same.
    assert {:ok, [_]} = Postern.await(run)
    refute_received {:postern_ended, _}

    Task.async(fn ->
      assert_raise ArgumentError, ~r/has started/, fn -> Postern.await(run) end
    end)
    |> Task.await()

    assert Postern.cancel(run) == :ok
  end

  test "what a program prints is a function's or a process's" do
    prints = program("prints")
    test = self()
    assert {:ok, _} = Postern.run(prints, [[1, 2, 3]], print: &send(test, {:line, &1}))
    assert_received {:line, "[device 0] sum 6.0\n"}
    {:ok, run} = Postern.start(prints, [[1, 2, 3]], print: test)
    assert {:ok, _} = Postern.await(run)
    ref = run.ref
    assert_received {:postern_print, ^ref, "[device 0] sum 6.0\n"}

    text = ExUnit.CaptureIO.capture_io(fn -> Postern.run!(prints, [[1, 2, 3]]) end)
    assert text == "[device 0] sum 6.0\n"
  end

  test "who prints is a function or a process of this node" do
    prints = program("prints")
    # A process of node@elsewhere.
    node = "node@elsewhere"
    atom = <<119, byte_size(node), node::binary>>
    remote = :erlang.binary_to_term(<<131, 88, atom::binary, 7::32, 0::32, 1::32>>)

    for print <- [remote, :stdio, fn -> :ok end] do
      assert_raise ArgumentError, ~r/print takes/, fn ->
        Postern.run(prints, [[1, 2, 3]], print: print)
      end
    end

    assert_raise ArgumentError, ~r/of this node/, fn -> Postern.serve("demo.scale", remote) end
  end

  test "nothing that a run prints comes after its time is over" do
    often = program("prints_often")

    for limit <- 1..20 do
      assert {:error, %Error{code: :timeout}} =
               Postern.run(often, [[1, 2, 3]], timeout: 5 * limit, print: fn _ -> :ok end)
    end

    refute_receive _, 200
  end

  test "programs run on the device that is asked for" do
    assert {:ok, 2} = Postern.device_count()
    test = self()
    run = &Postern.run(program("prints"), [[1, 2, 3]], [print: fn t -> send(test, t) end] ++ &1)
    assert {:ok, _} = run.(device: 1)
    assert_received "[device 1] sum 6.0\n"
    assert {:error, %Error{code: :invalid_argument, message: text}} = run.(device: 7)
    assert text =~ "7"
  end
end
