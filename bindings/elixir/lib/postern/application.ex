defmodule Postern.Application do
  @moduledoc false
  use Application

  @impl true
  def start(_type, _arguments) do
    Postern.Telemetry.start()
    Postern.Defn.Cache.start()
    servers = {DynamicSupervisor, name: Postern.Servers, strategy: :one_for_one}
    Supervisor.start_link([servers], strategy: :one_for_one, name: Postern.Supervisor)
  end
end
