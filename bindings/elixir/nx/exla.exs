# What EXLA's tests use of EXLA, by Postern: for scripts/try_nx.
for application <- [:nx, :postern], do: {:ok, _} = Application.ensure_all_started(application)

defmodule EXLA do
  @options [compiler: Postern.Defn, on_conflict: :force]
  def jit(fun, options \\ []), do: Nx.Defn.jit(fun, Keyword.merge(options, @options))
  def jit_apply(fun, list, options \\ []), do: apply(jit(fun, options), list)

  def compile(fun, list, options \\ []),
    do: Nx.Defn.compile(fun, list, Keyword.merge(options, @options))

  def shard_jit(fun, mesh, options \\ []),
    do: Nx.Defn.shard_jit(fun, mesh, Keyword.merge(options, @options))

  def to_mlir_module(fun, list, options \\ []) do
    {_, program} = Postern.Defn.expression(fun, list, options)
    %{mlir_module: program.text, used_inputs: MapSet.new(program.inputs)}
  end

  @doc "Checks that both have the same mesh, and arguments and results of @main that lie alike."
  def check(text, %{mlir_module: module}) do
    import ExUnit.Assertions
    assert lie(text) == lie(module)
  end

  defp lie(text) do
    [mesh] = Regex.run(~r/sdy\.mesh .*/, text)
    [_, arguments, results] = Regex.run(~r/@main\((.*)\) -> (.*) {$/m, text)
    # EXLA's first argument is the process that answers callbacks.
    arguments = String.replace(arguments, ~r/%arg0: tensor<8xui8>, /, "")

    {mesh, String.replace(arguments, ~r/%\w+: /, ""),
     String.trim(results, "(") |> String.trim(")")}
  end
end

defmodule EXLA.Executable do
  def callback_server_pid_size, do: 8
end

defmodule EXLA.Client do
  def default_name, do: :host
  def fetch!(:host), do: %{platform: :host, device_count: 4, default_device_id: 0, name: :host}
  def fetch!(name), do: raise("no client #{inspect(name)}")
  def get_supported_platforms, do: %{host: 4}
end

defmodule EXLAHelpers do
  def client, do: EXLA.Client.fetch!(:host)
  def test_peer_nodes, do: []
end

Application.put_env(:exla, :is_mac_arm, false)
Nx.Defn.global_default_options(compiler: Postern.Defn)

ExUnit.start(
  exclude: [:platform, :integration, :cuda_required, :distributed, :conditional_inside_map_reduce],
  include: [platform: :host],
  assert_receive_timeout: 1000,
  timeout: 120_000
)
