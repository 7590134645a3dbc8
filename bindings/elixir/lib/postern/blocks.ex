defmodule Postern.Blocks do
  @moduledoc false
  # What stands for blocks of Nx: Postern.override_block/2 says it.
  @key __MODULE__
  @options [:kernel, :attributes, :types, :defn, :host, :when, :platform] ++
             [:operand_layouts, :result_layouts, :output_operand_aliases, :side_effect]

  def override(module, options) do
    Postern.Options.refuse_others(options, @options, "Postern.override_block")
    given = for key <- [:kernel, :defn, :host], options[key], do: key

    if length(given) != 1 do
      raise ArgumentError,
            "a block is overridden by one of kernel, defn and host, got #{inspect(given)}"
    end

    if Keyword.get(options, :platform, :cpu) != :cpu do
      raise ArgumentError, "blocks are overridden for :cpu, got #{inspect(options[:platform])}"
    end

    change(&Map.update(&1, module, [options], fn others -> [options | others] end))
  end

  def restore(module), do: change(&Map.delete(&1, module))

  defp change(fun) do
    :global.trans({@key, self()}, fn -> :persistent_term.put(@key, fun.(all())) end, [node()])
  end

  @doc "All that there are: programs that were compiled with others aren't theirs."
  def all, do: :persistent_term.get(@key, %{})

  @doc """
  What stands for a block: the first that its `:when` takes, of those who came last first; then what
  EXLA.CustomCall says of it; else :default.
  """
  def choose(struct, operands, body) do
    results = Postern.Lower.Plan.leaves(body)
    module = Map.get(struct, :__struct__)
    fits = fn options -> !options[:when] || options[:when].(struct, operands, results) end

    case all() |> Map.get(module, []) |> Enum.find(fits) do
      nil -> exla(struct, operands, body)
      options -> chosen(options, struct, operands)
    end
  end

  defp chosen(options, struct, operands) do
    cond do
      name = options[:kernel] ->
        attributes = of(options[:attributes] || [], struct)
        types = of(options[:types] || :default, struct)
        {:call, name, attributes, types, written(options)}

      fun = options[:defn] ->
        {:body, fun, operands}

      fun = options[:host] ->
        {:host, fun}
    end
  end

  defp of(fun, struct) when is_function(fun, 1), do: fun.(struct)
  defp of(value, _struct), do: value

  defp written(options) do
    effect = if options[:side_effect], do: [has_side_effect: "true"], else: []
    Keyword.take(options, [:operand_layouts, :result_layouts, :output_operand_aliases]) ++ effect
  end

  # A specification of EXLA's, where EXLA, or who implements its protocol, is there.
  defp exla(struct, operands, body) do
    protocol = EXLA.CustomCall

    with true <- is_map_key(struct, :__struct__) and Code.ensure_loaded?(protocol),
         false <- any?(apply(protocol, :impl_for, [struct])),
         client = %{platform: :host, name: :host},
         {:ok, spec} <- apply(protocol, :call, [struct, body, operands, client]) do
      {:call, spec.call_target_name, spec.attributes, spec.operand_element_types,
       written(spec |> Map.from_struct() |> Map.to_list())}
    else
      _ -> :default
    end
  end

  # Those that are EXLA's own, whose kernels are in EXLA.
  defp any?(nil), do: true
  defp any?(module), do: module |> Module.split() |> List.last() == "Any"
end
