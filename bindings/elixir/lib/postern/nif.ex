defmodule Postern.Nif do
  @moduledoc false
  # The functions that bindings/elixir/src defines; programs.h and serving.h say what they take.
  @on_load :load

  def load do
    path = System.get_env("POSTERN_NIF") || Path.join(:code.priv_dir(:postern), "postern_nif")

    :erlang.load_nif(String.to_charlist(path), 0)
  end

  def configure(_cpu_devices, _plugin, _cache_dir), do: missing()
  def device_count, do: missing()
  def load_file(_path), do: missing()
  def load_text(_text), do: missing()
  def program_info(_program), do: missing()
  def start(_program, _tensors, _ref, _device, _deadline_ns, _printer), do: missing()
  def result(_run), do: missing()
  def cancel(_run), do: missing()

  defp missing, do: :erlang.nif_error(:nif_not_loaded)
end
