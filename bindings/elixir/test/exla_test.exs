defmodule Postern.ExlaTest do
  use Postern.Case, async: true

  @alias "#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 1, " <>
           "operand_tuple_indices = []>"

  defp call(result, operand, id, aliased) do
    aliases = if aliased > 0, do: ", output_operand_aliases = [#{@alias}]", else: ""

    "    #{result} = stablehlo.custom_call @exla_runtime_callback(%arg0, #{operand}) " <>
      "{api_version = 4 : i32, backend_config = {callback_id = array<i64: #{id}, 12>, " <>
      "callback_id_size = 12 : ui64, num_aliased_data_outputs = #{aliased} : ui64}, " <>
      "has_side_effect = true#{aliases}} : (tensor<16xui8>, tensor<3xf32>) -> tensor<3xf32>\n"
  end

  # As EXLA prints a module in which one function is called twice, and another one is shown a value.
  defp text do
    "module @m {\n  func.func public @main(%arg0: tensor<16xui8>, %arg1: tensor<3xf32>) -> " <>
      "(tensor<3xf32>) {\n" <>
      call("%0", "%arg1", 7, 0) <>
      call("%1", "%0", 8, 1) <>
      call("%2", "%1", 7, 0) <> "    return %2 : tensor<3xf32>\n  }\n}\n"
  end

  test "modules of EXLA load, and call functions by the names that they get" do
    {:ok, program} = Postern.Exla.load(text(), ["scale", "log"])
    assert program.functions == ["log", "scale"]
    assert program.inputs == [f32: {3}]
    test = self()

    functions =
      Postern.Exla.functions(%{
        "scale" => fn [x] -> for n <- Tensor.to_list(x), do: 2 * n end,
        "log" => fn [x] -> send(test, {:logged, Tensor.to_list(x)}) end
      })

    assert {:ok, [y]} = Postern.run(program, [[1, 2, 3]], functions: functions)
    assert Tensor.to_list(y) == [4.0, 8.0, 12.0]
    assert_received {:logged, [2.0, 4.0, 6.0]}
  end

  test "modules that call more than was named are refused" do
    assert_raise ArgumentError, ~r/more than 1 functions/, fn ->
      Postern.Exla.load(text(), ["scale"])
    end
  end
end
