# A program whose call a supervised process answers, without Nx: `mix run -e Served.run`.
defmodule Served do
  use Postern.Server

  @program """
  func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
    %0 = stablehlo.custom_call @scale(%x) {backend_config = {factor = 3.0 : f64}}
        : (tensor<3xf32>) -> tensor<3xf32>
    return %0 : tensor<3xf32>
  }
  """

  def init(calls), do: {:ok, calls}

  def handle_call([x], request, calls) do
    %{attributes: %{"factor" => factor}} = Postern.Request.info(request)
    IO.puts("call #{calls + 1}")
    {:reply, for(n <- Postern.Tensor.to_list(x), do: factor * n), calls + 1}
  end

  def run do
    children = [{Served, {0, names: ["scale"]}}]
    {:ok, _} = Supervisor.start_link(children, strategy: :one_for_one)
    {:ok, program} = Postern.load_text(@program)

    for x <- [[1, 2, 3], [4, 5, 6]] do
      [y] = Postern.run!(program, [x])
      IO.inspect(Postern.Tensor.to_list(y))
    end
  end
end
