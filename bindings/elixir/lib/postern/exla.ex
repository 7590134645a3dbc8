defmodule Postern.Exla do
  @moduledoc """
  Programs that EXLA wrote, as text: what they call back gets names here.

      {:ok, program} = Postern.Exla.load(text, ["scale", "log"])
      functions = Postern.Exla.functions(%{"scale" => &scale/1, "log" => &log/1})
      Postern.run(program, arguments, functions: functions)

  EXLA calls all by one target, `exla_runtime_callback` or `exla_io_callback`, and tells them apart
  by a term of the VM that traced them; the argument that named its process is left out.
  """

  @target ~r/@exla_(?:runtime|io)_callback\(%\w+(?:, )?/
  @identity ~r/callback_id = array<i64: ([^>]*)>/
  @aliases ~r/, output_operand_aliases = \[(?:#[^>]*>(?:, )?)*\]/
  @process ~r/: \(tensor<\d+xui8>(?:, )?/
  @argument ~r/(@main\()%arg0: tensor<\d+xui8>(?:, )?/

  @doc "`names` are those of what is called, in the order in which the text names them first."
  @spec load(binary, [String.t()]) :: {:ok, Postern.Program.t()} | {:error, Postern.Error.t()}
  def load(text, names) do
    {lines, seen} = text |> String.split("\n") |> Enum.map_reduce(%{}, &line(&1, &2, names))

    if map_size(seen) == 0 do
      Postern.load_text(text)
    else
      lines |> Enum.join("\n") |> String.replace(@argument, "\\1") |> Postern.load_text()
    end
  end

  defp line(line, seen, names) do
    if line =~ @target do
      [_, identity] = Regex.run(@identity, line)
      seen = Map.put_new(seen, identity, map_size(seen))
      i = seen[identity]

      name =
        Enum.at(names, i) ||
          raise ArgumentError, "the text calls more than #{i} functions: name them all"

      line =
        line
        |> String.replace(@target, "@\"#{name}\"(")
        |> String.replace(@aliases, "")
        |> String.replace(@process, ": (")

      {line, seen}
    else
      {line, seen}
    end
  end

  @doc """
  Functions by those names, of the operands, for a run or `Postern.serve/3`. What shows values
  (`io_call`) gives them on, whatever its function gives.
  """
  def functions(functions), do: Map.new(functions, fn {name, fun} -> {name, function(fun)} end)

  defp function(fun) do
    fn operands, request ->
      given = fun.(operands)
      {:ok, wanted} = Postern.Request.results(request)

      case Postern.Request.info(request) do
        %{attributes: %{"num_aliased_data_outputs" => n}} when n > 0 and length(wanted) == n ->
          operands |> Enum.take(n) |> List.to_tuple()

        _ ->
          given
      end
    end
  end
end
