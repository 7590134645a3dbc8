defmodule Fit.MixProject do
  use Mix.Project

  def project do
    [app: :fit, version: "0.1.0", elixir: "~> 1.17", deps: [{:nx, "~> 0.13"}]]
  end

  # Postern is installed: see docs/elixir.md.
  def application, do: [extra_applications: [:logger, :postern]]
end
