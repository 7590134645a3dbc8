defmodule Postern.TensorTest do
  use Postern.Case, async: true
  doctest Postern.Tensor

  test "numbers of every kind come back" do
    for {numbers, type} <- [
          {[1, -2], :s8},
          {[40_000, 1], :u16},
          {[-1, 2], :s64},
          {[1.5, -0.25], :f16},
          {[1.5, -3.0], :bf16},
          {[0.1, 2.0], :f64},
          {[true, false], :pred},
          {[{1.0, -2.0}, {0.0, 3.5}], :c64},
          {[:nan, :infinity, :neg_infinity, 1.0], :f32}
        ] do
      assert Tensor.to_list(Tensor.new(numbers, type)) == numbers
    end
  end

  test "shapes nest, also without elements" do
    assert Tensor.to_list(Tensor.new([[1, 2, 3], [4, 5, 6]])) == [[1, 2, 3], [4, 5, 6]]
    assert Tensor.to_list(Tensor.from_binary("", :f32, {2, 0})) == [[], []]
    assert Tensor.to_list(Tensor.new(3.0, :f64)) == 3.0
  end

  test "what does not fit is refused" do
    # Also where there are as many numbers as the first lists promise.
    for ragged <- [[[1, 2], [3]], [[1, 2], [3], [4, 5, 6]], [[1], 2], [[[1], [2]], [[3, 4]]]] do
      assert_raise ArgumentError, ~r/equal lengths/, fn -> Tensor.new(ragged) end
    end

    assert_raise ArgumentError, ~r/300 is no number of u8/, fn -> Tensor.new([300], :u8) end

    assert_raise ArgumentError, ~r/has 12 bytes, got 3/, fn ->
      Tensor.from_binary("abc", :f32, {3})
    end
  end
end
