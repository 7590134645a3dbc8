defmodule Postern.Defn.Calls do
  @moduledoc false
  # What a `defn` calls, as functions of a run: operands become the container that the function
  # was written for, and what it gives is compared with its template.
  @compile {:no_warn_undefined, [Nx, Nx.Type, Nx.Defn.Composite]}
  alias Nx.Defn.Composite
  alias Postern.Defn.Values
  alias Postern.{Error, Lower, Tensor}

  @doc "A site without its expressions, which would be kept with the program."
  def prepare(%{kind: :runtime_call} = site) do
    template = Nx.to_template(site.template)
    %{site | tensors: Nx.to_template(site.tensors), template: template}
  end

  def prepare(%{kind: :block} = site) do
    [tensors, template] =
      for list <- [site.tensors, site.template],
          do: list |> Enum.map(&Nx.to_template(Nx.devectorize(&1))) |> List.to_tuple()

    %{site | tensors: tensors, template: template}
  end

  def prepare(%{kind: :io_call} = site), do: %{site | tensors: Nx.to_template(site.tensors)}

  @doc "What is given and comes back."
  def describe(%{kind: :io_call} = site), do: "shows #{types(site.tensors)}"
  def describe(site), do: "#{site.kind}: #{types(site.tensors)} -> #{types(site.template)}"

  defp types(container) do
    [container]
    |> Composite.flatten_list()
    |> Enum.map_join(", ", fn tensor ->
      names = Enum.map_join(tensor.names, ",", &to_string(&1 || "_"))
      "#{Nx.Type.to_string(tensor.type)}#{inspect(tensor.shape)}[#{names}]"
    end)
  end

  @doc "What a stream shows of a site."
  def event(%{spec: {:named, name, _}} = site, operands),
    do: {name, container(site.tensors, operands, :shared)}

  @doc "By the names of the sites."
  def functions(sites, options) do
    hooks = Keyword.get(options, :hooks, %{})

    for {site, i} <- Enum.with_index(sites), into: %{} do
      {Lower.site_name(site, i), function(site, hooks, options[:operands])}
    end
  end

  defp function(%{kind: :runtime_call} = site, _hooks, operands) do
    fn tensors ->
      given = container(site.tensors, tensors, operands || :shared)
      results(enter(site.fun, [given, site.options]), site)
    end
  end

  # Operands come one by one, behind the structure.
  defp function(%{kind: :block} = site, _hooks, operands) do
    fn tensors ->
      given = container(site.tensors, tensors, operands || :shared)
      given = apply(site.fun, [site.struct | Tuple.to_list(given)])
      results(if(is_tuple(given), do: given, else: {given}), site)
    end
  end

  defp function(%{kind: :io_call} = site, hooks, operands) do
    fun =
      case site.spec do
        {:named, name, fun} -> Map.get(hooks, name) || fun
        {_, fun} -> fun
      end

    fn tensors -> enter(fun, [container(site.tensors, tensors, operands || :copied)]) end
  end

  defp enter({module, function, more}, arguments),
    do: apply(module, function, arguments ++ more)

  defp enter(fun, [given, _]) when is_function(fun, 1), do: fun.(given)
  defp enter(fun, arguments), do: apply(fun, arguments)

  defp container(template, tensors, operands) do
    {container, []} =
      Composite.traverse(template, tensors, fn out, [tensor | rest] ->
        tensor = if operands == :copied, do: Tensor.copy(tensor), else: tensor
        {Values.to_binary_backend(tensor, out), rest}
      end)

    container
  end

  defp results(given, %{template: template} = site) do
    if not compatible?(template, given), do: refuse(given, site)
    leaves = [given] |> Composite.flatten_list() |> Enum.map(&Nx.to_tensor/1)
    leaves |> Enum.map(&Values.from_nx/1) |> List.to_tuple()
  end

  # Also what is no container at all is none that fits.
  defp compatible?(template, given) do
    Nx.compatible?(template, given)
  rescue
    _ -> false
  end

  defp refuse(given, %{template: template} = site) do
    raise Error,
      code: :bad_result,
      message:
        "expected the runtime_call function to match the given output template: " <>
          "#{Lower.called(site)} ought to give #{types(template)}, #{difference(template, given)}"
  end

  # The first leaf that differs.
  defp difference(template, given) do
    wanted = Composite.flatten_list([template])
    given = [given] |> Composite.flatten_list() |> Enum.map(&Nx.to_tensor/1)
    differs = fn {want, have} -> not Nx.compatible?(want, have) end
    pairs = wanted |> Enum.zip(given) |> Enum.with_index()

    case Enum.find(pairs, fn {pair, _} -> differs.(pair) end) do
      {{_, have}, i} -> "its leaf #{i} is #{types(have)}"
      nil -> "it gave #{length(given)} of them, in another container"
    end
  rescue
    _ -> "it gave #{inspect(given)}"
  end
end
