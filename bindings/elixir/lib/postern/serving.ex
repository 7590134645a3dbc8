defmodule Postern.Serving do
  @moduledoc false
  # What Postern.serve/3 starts: a function in the server's process, or in one for each call, or
  # another process; and what answers a run's own names, each by one of these.
  @behaviour Postern.Server

  alias Postern.{Error, Nif, Reentry, Request, Server, Telemetry}

  @doc "Supervised, until what it is for has ended."
  def start(answers, options) do
    start = {Server, :start_link, [__MODULE__, answers, options]}

    DynamicSupervisor.start_child(Postern.Servers, %{
      id: Server,
      start: start,
      restart: :temporary
    })
  end

  @impl true
  def init({:pid, pid, _timeout} = answers) do
    Process.monitor(pid)
    {:ok, answers}
  end

  # With those of its processes that are at work.
  def init({:each, fun, timeout}), do: {:ok, {:each, fun, timeout, %{}}}
  def init({:one, _fun} = answers), do: {:ok, answers}

  # What it writes goes where its caller's does.
  def init({:run, by_name, leader}) do
    Process.group_leader(self(), leader)
    {:ok, {:run, by_name}}
  end

  @impl true
  def handle_call(operands, request, {:one, fun} = answers) do
    {:reply, enter(fun, operands, request), answers}
  end

  def handle_call(operands, request, {:run, by_name} = answers) do
    case Map.fetch!(by_name, Request.function(request)) do
      pid when is_pid(pid) -> hand_on(request, pid, answers)
      fun -> {:reply, enter(fun, operands, request), answers}
    end
  end

  def handle_call(_operands, request, {:each, fun, timeout, workers}) do
    server = self()
    {worker, monitor} = spawn_monitor(fn -> work_for(server, fun) end)
    timer = limit(request, timeout, monitor)
    send(worker, %{request | timer: timer})
    Nif.request_assign(request.handle, worker)
    {:noreply, {:each, fun, timeout, Map.put(workers, monitor, {worker, timer, request.watch})}}
  end

  def handle_call(_operands, request, {:pid, pid, timeout} = answers) do
    hand_on(%{request | timer: limit(request, timeout, nil)}, pid, answers)
  end

  @impl true
  def handle_info({:late, monitor, timeout, request}, answers) do
    text = "no answer came within #{timeout} ms"

    case Request.fail(request, %Error{code: :timeout, message: text}) do
      {:error, :not_found, _, _} -> {:noreply, answers}
      _ -> {:noreply, kill(monitor, answers)}
    end
  end

  def handle_info({:DOWN, monitor, :process, _, reason}, {:each, fun, timeout, workers}) do
    {{_, timer, watch}, workers} = Map.pop(workers, monitor, {nil, nil, nil})
    if timer, do: Process.cancel_timer(timer, async: true, info: false)
    if watch && reason != :normal, do: Telemetry.answered(watch, {:exit, reason, []})
    {:noreply, {:each, fun, timeout, workers}}
  end

  def handle_info({:DOWN, _, :process, pid, _}, {:pid, pid, _timeout} = answers) do
    {:stop, :normal, answers}
  end

  def handle_info(_message, answers), do: {:noreply, answers}

  defp hand_on(request, pid, answers) do
    Nif.request_assign(request.handle, pid)
    send(pid, {:postern_call, request})
    {:noreply, answers}
  end

  # Its timer: who answers cancels it.
  defp limit(_request, :infinity, _monitor), do: nil

  defp limit(request, timeout, monitor) do
    message = {:late, monitor, timeout, %{request | operands: []}}
    Process.send_after(self(), message, timeout)
  end

  defp kill(monitor, {:each, fun, timeout, workers}) do
    {worker, workers} = Map.pop(workers, monitor)
    Process.demonitor(monitor, [:flush])
    with {pid, _, _} <- worker, do: Process.exit(pid, :kill)
    {:each, fun, timeout, workers}
  end

  defp kill(nil, answers), do: answers

  defp enter(fun, operands, _request) when is_function(fun, 1), do: fun.(operands)
  defp enter(fun, operands, request) when is_function(fun, 2), do: fun.(operands, request)

  # The request comes behind its timer. A server that ends before it is sent leaves nobody waiting.
  defp work_for(server, fun) do
    monitor = Process.monitor(server)

    receive do
      %Request{} = request ->
        Process.demonitor(monitor, [:flush])
        work(fun, request)

      {:DOWN, ^monitor, :process, _, _} ->
        :ok
    end
  end

  defp work(fun, request) do
    finish(fun, request)
    Server.settle(request.handle)
  end

  defp finish(fun, request) do
    Reentry.enter(request.handle)
    Server.reply(request, enter(fun, request.operands, request))
  catch
    kind, reason -> Request.fail(request, kind, reason, __STACKTRACE__)
  end
end
