defmodule Postern.ShardsTest do
  @moduledoc "Arrays over two devices, as arguments and results."
  use Postern.Case, async: true
  alias Postern.Shards

  @text """
  func.func @main(%x: tensor<4xf32>, %y: tensor<f32>) -> (tensor<4xf32>, tensor<f32>) {
    %c = stablehlo.constant dense<0.0> : tensor<f32>
    %b = stablehlo.broadcast_in_dim %y, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %0 = stablehlo.add %x, %b : tensor<4xf32>
    %1 = stablehlo.reduce(%0 init: %c) applies stablehlo.add across dimensions = [0]
        : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    return %0, %1 : tensor<4xf32>, tensor<f32>
  }
  """

  defp halves(first, second) do
    %Shards{mesh: {2}, cuts: [[0]], parts: for(n <- [first, second], do: Tensor.new(n, :f32))}
  end

  defp copies(first, second, options \\ []) do
    parts = for n <- [first, second], do: Tensor.new(n, :f32)
    struct!(%Shards{mesh: {2}, cuts: [], parts: parts}, options)
  end

  defp lists(result), do: for({device, tensor} <- result, do: {device, Tensor.to_list(tensor)})

  defp load(text \\ @text) do
    {:ok, program} = Postern.load_text(text)
    program
  end

  test "a program runs where its argument's parts lie" do
    x = halves([1, 2], [3, 4])
    assert {:ok, [sums, sum]} = Postern.run(load(), [x, 10.0], shards: true)
    assert lists(sums) == [{0, [11.0, 12.0]}, {1, [13.0, 14.0]}]
    assert lists(sum) == [{0, 50.0}, {1, 50.0}]
    assert {:ok, [sums, _]} = Postern.run(load(), [x, copies(10, 10)])
    assert Tensor.to_list(sums) == [11.0, 12.0, 13.0, 14.0]
  end

  test "parts that came from a run go into the next" do
    program = load()
    {:ok, [sums, _]} = Postern.run(program, [halves([1, 2], [3, 4]), 10.0], shards: true)
    again = %{halves(0, 0) | parts: for({_, part} <- sums, do: part)}
    assert {:ok, [sums, _]} = Postern.run(program, [again, 10.0], shards: true)
    assert lists(sums) == [{0, [21.0, 22.0]}, {1, [23.0, 24.0]}]
  end

  test "what lies on one device is its own only part" do
    x = Tensor.new([1, 2, 3, 4], :f32)
    assert {:ok, [sums, _]} = Postern.run(load(), [x, 1.0], shards: true, device: 1)
    assert lists(sums) == [{1, [2.0, 3.0, 4.0, 5.0]}]
  end

  test "copies that differ are an error, unless nobody looks" do
    run = fn y -> Postern.run(load(), [halves([1, 2], [3, 4]), y], shards: true) end
    assert {:error, %Error{code: :invalid_argument, message: text}} = run.(copies(1, 2))
    assert text =~ "were given different values"
    assert {:ok, [sums, _]} = run.(copies(1, 2, compare: false))
    assert lists(sums) == [{0, [2.0, 3.0]}, {1, [5.0, 6.0]}]
  end

  test "what does not fit is an error" do
    x = halves([1, 2], [3, 4])

    for {wrong, why} <- [
          {%{x | mesh: {3}}, "a grid of 3 devices, 2 were given"},
          {%{x | mesh: {3}, parts: [hd(x.parts) | x.parts]}, "needs device 2"},
          {%{x | mesh: {}}, "a grid of 1 devices, 2 were given"},
          {%{x | mesh: {0}}, "out of range"},
          {%{x | cuts: [[1]]}, "has no axis 'axis_1'"},
          {%{x | cuts: [[0], [0]]}, "axis_0"},
          {%{x | parts: tl(x.parts)}, "2 devices, 1 were given"},
          {halves([1], [3, 4]), "part 1 is f32[2], part 0 f32[1]"},
          {halves([1], [2]), "must be f32[4], got f32[2]"}
        ] do
      assert {:error, %Error{code: :invalid_argument, message: text}} =
               Postern.run(load(), [wrong, 1.0])

      assert text =~ why
    end

    for wrong <- [%{x | mesh: 2}, %{x | cuts: [[:a]]}, %{x | cuts: [1]}, %{x | parts: [1, 2]}] do
      assert_raise ArgumentError, fn -> Postern.run(load(), [wrong, 1.0]) end
    end
  end

  test "what it calls sees the whole, once" do
    text = """
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.custom_call @shards.scale(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    """

    me = self()
    scale = fn [x] -> send(me, Tensor.to_list(x)) && for(n <- Tensor.to_list(x), do: 2 * n) end
    run = [functions: %{"shards.scale" => scale}]
    assert {:ok, [y]} = Postern.run(load(text), [halves([1, 2], [3, 4])], run)
    assert Tensor.to_list(y) == [2.0, 4.0, 6.0, 8.0]
    assert_received [1.0, 2.0, 3.0, 4.0]
    refute_received [_ | _]

    run = [functions: %{"shards.scale" => fn _ -> raise "no" end}]
    assert {:error, %Error{code: :threw}} = Postern.run(load(text), [halves([1, 2], [3, 4])], run)
  end
end
