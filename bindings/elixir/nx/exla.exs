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
end

defmodule EXLA.Client do
  def default_name, do: :host
  def fetch!(:host), do: %{platform: :host, device_count: 2, default_device_id: 0, name: :host}
  def fetch!(name), do: raise("no client #{inspect(name)}")
  def get_supported_platforms, do: %{host: 2}
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
