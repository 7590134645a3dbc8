defmodule Postern.Defn.Disk do
  @moduledoc false
  # A program in a file, for `cache: path`: its text and what is to be known of it, so that it need
  # not be traced again. What is of something else is made anew.
  require Logger

  @head "postern defn 1\n"

  def fetch(path, key, debug, make) do
    key = :erlang.term_to_binary(key)

    case read(path, key) do
      {:ok, made} ->
        found(path, debug)
        made

      why ->
        tell(why, path, debug)
        made = make.()
        write(path, key, made)
        made
    end
  end

  @doc "Tells of it, also where the program is in memory still."
  def found(path, debug),
    do: debug && Logger.debug("Postern disk cache found at #{inspect(path)}")

  defp read(path, key) do
    with {:ok, @head <> blob} <- File.read(path) do
      case :erlang.binary_to_term(blob) do
        {^key, made} -> {:ok, made}
        _ -> :other
      end
    else
      {:ok, _} -> :other
      {:error, _} -> :none
    end
  rescue
    # A damaged one is no other than one of something else.
    ArgumentError -> :other
  end

  # Whole or not at all, also where others write: in this system, or in others.
  defp write(path, key, made) do
    File.mkdir_p!(Path.dirname(path))
    mine = "#{System.pid()}.#{System.os_time()}.#{:erlang.unique_integer([:positive])}"
    partial = "#{path}.#{mine}.partial"
    File.write!(partial, [@head, :erlang.term_to_binary({key, made})])
    File.rename!(partial, path)
  end

  defp tell(:none, path, debug),
    do: debug && Logger.debug("Postern disk cache not found at #{inspect(path)}")

  defp tell(:other, path, _debug) do
    Logger.warning(
      "Postern disk cache does not match configuration: #{inspect(path)} is of another " <>
        "function, other types or options, and is written anew"
    )
  end

  @doc """
  A term with what each of its functions is in the function's place: another version of its module
  is another one. Maps are lists, whose order is the same whenever the system starts.
  """
  def identity(fun) when is_function(fun) do
    info = Function.info(fun)

    case info[:type] do
      :external -> {info[:module], info[:name], info[:arity], md5(info[:module])}
      :local -> {info[:module], info[:new_uniq], info[:new_index], identity(info[:env])}
    end
  end

  def identity(map) when is_map(map), do: map |> Map.to_list() |> identity() |> Enum.sort()
  def identity([first | rest]), do: [identity(first) | identity(rest)]

  def identity(tuple) when is_tuple(tuple),
    do: tuple |> Tuple.to_list() |> identity() |> List.to_tuple()

  def identity(other), do: other

  defp md5(module) do
    if Code.ensure_loaded?(module), do: module.module_info(:md5)
  end
end
