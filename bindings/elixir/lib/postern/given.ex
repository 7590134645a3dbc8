defmodule Postern.Given do
  @moduledoc false
  # The hooks and functions that one run is given: a process of the run answers them, whose bridge
  # ends when the run can come to it no more.
  alias Postern.Serving

  defstruct hooks: %{}, functions: %{}

  def new(hooks, functions) do
    given = %__MODULE__{hooks: by_name(:hooks, hooks), functions: by_name(:functions, functions)}

    for {name, _} <- given.hooks, is_map_key(given.functions, name) do
      raise ArgumentError, "#{inspect(name)} is given in hooks and in functions"
    end

    given
  end

  defp by_name(what, answers) do
    Map.new(answers, fn
      {name, fun} when is_function(fun, 1) or is_function(fun, 2) ->
        {to_string(name), fun}

      {name, pid} when is_pid(pid) and node(pid) == node() ->
        {to_string(name), pid}

      other ->
        raise ArgumentError,
              "#{what} takes a map of names to functions or processes of " <>
                "this node, got #{inspect(other)}"
    end)
  end

  @doc "The names that this process would have to answer itself."
  def own(given), do: for({name, pid} <- answers(given), pid == self(), do: name)

  @doc "The process that answers, and what the native part is told; neither where none is given."
  def serve(given) do
    answers = answers(given)

    if answers == %{} do
      {:ok, nil, []}
    else
      shown = if Enum.any?(answers, fn {_, a} -> is_pid(a) end), do: :copied, else: :shared
      options = [owner: self(), operands: shown]

      with {:ok, server} <- Serving.start({:run, answers, Process.group_leader()}, options) do
        bridge = GenServer.call(server, :postern_bridge)
        {:ok, server, [{bridge, Map.keys(given.hooks), Map.keys(given.functions), :released}]}
      end
    end
  end

  @doc "The run has begun: the process ends with it, and not with who started it."
  def bound(nil), do: :ok
  def bound(server), do: send(server, :postern_bound)

  defp answers(given), do: Map.merge(given.hooks, given.functions)
end
