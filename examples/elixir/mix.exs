defmodule Fit.MixProject do
  use Mix.Project

  def project do
    [app: :fit, version: "0.1.0", elixir: "~> 1.17", deps: [postern() | nx()]]
  end

  def application, do: [extra_applications: [:logger, :nx]]

  # Beside this project; where Postern is installed, `extra_applications: [:postern]` in its place.
  defp postern, do: {:postern, path: "../../bindings/elixir"}

  # WITHOUT_HEX=1: Nx is compiled, and ERL_LIBS says where.
  defp nx, do: if(System.get_env("WITHOUT_HEX"), do: [], else: [{:nx, "~> 0.13"}])
end
