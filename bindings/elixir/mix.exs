defmodule Postern.MixProject do
  use Mix.Project

  # The library's version, so that it stands once.
  @version Regex.run(~r/VERSION (\d+\.\d+\.\d+)/, File.read!("../../CMakeLists.txt"))
           |> List.last()

  def project do
    [
      app: :postern,
      version: @version,
      elixir: "~> 1.14",
      deps: [],
      start_permanent: Mix.env() == :prod
    ]
  end

  def application, do: [mod: {Postern.Application, []}, extra_applications: [:logger]]
end
