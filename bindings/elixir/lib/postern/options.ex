defmodule Postern.Options do
  @moduledoc false
  # Options of ours: a mistyped one is an error that names it and those that there are.

  @doc "The options with defaults for those that are not given. `known` are names, or such pairs."
  def validate!(options, known, what) do
    refuse_others(options, for({name, _} <- pairs(known), do: name), what)
    Keyword.merge(for({_, _} = pair <- known, do: pair), options)
  end

  defp pairs(known), do: for(one <- known, do: if(is_tuple(one), do: one, else: {one, nil}))

  @doc "Refuses what is not among `names`."
  def refuse_others(options, names, what) do
    if not Keyword.keyword?(options),
      do: raise(ArgumentError, "options of #{what} are a keyword list, got: #{inspect(options)}")

    for {name, _} <- options, name not in names, do: refuse(name, names, what)
    :ok
  end

  defp refuse(name, names, what) do
    near = Enum.max_by(names, &likeness(&1, name), fn -> nil end)

    meant =
      if near && likeness(near, name) > 0.8, do: "; did you mean #{inspect(near)}?", else: ""

    all = names |> Enum.sort() |> Enum.map_join(", ", &inspect/1)
    raise ArgumentError, "#{what} has no option #{inspect(name)}, it has #{all}#{meant}"
  end

  defp likeness(one, other), do: String.jaro_distance(to_string(one), to_string(other))
end
