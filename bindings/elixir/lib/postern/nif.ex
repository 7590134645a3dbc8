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
  def load_library(_path), do: missing()
  def load_file(_path), do: missing()
  def load_text(_text), do: missing()
  def program_info(_program), do: missing()
  def start(_program, _tensors, _ref, _device, _deadline_ns, _printer, _given), do: missing()
  def result(_run, _shards), do: missing()
  def cancel(_run), do: missing()
  def barrier(_limit_ns, _ref), do: missing()
  def alive, do: missing()
  def address(_binary), do: missing()
  def bridge_new(_ref), do: missing()
  def bridge_serve(_bridge, _name, _replace), do: missing()
  def bridge_serves(_bridge, _name), do: missing()
  def bridge_next(_bridge, _copy_below), do: missing()
  def bridge_end(_bridge), do: missing()
  def request_info(_request), do: missing()
  def request_results(_request), do: missing()
  def request_assign(_request, _pid), do: missing()
  def request_put(_request, _result, _offset, _iodata), do: missing()
  def request_reply(_request, _results), do: missing()
  def request_fail(_request, _code, _text, _cause), do: missing()
  def request_held(_request), do: missing()
  def request_stopped(_request), do: missing()

  defp missing, do: :erlang.nif_error(:nif_not_loaded)
end
