# Nx's own examples, with tensors of Postern.Backend: scripts/try_nx runs it.
ExUnit.start(timeout: 120_000)
for application <- [:nx, :postern], do: {:ok, _} = Application.ensure_all_started(application)

defmodule Postern.NxDoctests do
  use ExUnit.Case, async: true
  import Nx, only: :sigils

  setup do
    Nx.default_backend(Postern.Backend)
    Nx.Defn.default_options(compiler: Postern.Defn)
    :ok
  end

  # What these show has the last digits of Nx.BinaryBackend; EXLA's tests leave them out too.
  @rounded [asin: 1, atan: 1, tan: 1, acos: 1, cosh: 1, erf_inv: 1, erfc: 1, sinh: 1, atanh: 1] ++
             [asinh: 1, logsumexp: 2, exp: 1, expm1: 1, rsqrt: 1]

  doctest Nx, except: [:moduledoc] ++ @rounded
  doctest Nx.Random, except: [:moduledoc, normal: 4, multivariate_normal: 4]
end
