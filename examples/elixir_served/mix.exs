defmodule Served.MixProject do
  use Mix.Project

  def project do
    [app: :served, version: "0.1.0", elixir: "~> 1.14", deps: deps()]
  end

  def application, do: [extra_applications: [:logger]]

  # Beside this project; where Postern is installed, `extra_applications: [:postern]` in its place.
  defp deps, do: [{:postern, path: "../../bindings/elixir"}]
end
