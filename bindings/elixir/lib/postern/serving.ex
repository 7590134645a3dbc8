defmodule Postern.Serving do
  @moduledoc false
  # What Postern.serve/3 starts: a function in the server's process, or in one for each call, or
  # another process.
  @behaviour Postern.Server

  alias Postern.{Error, Nif, Request, Server}

  @impl true
  def init({:pid, pid} = answers) do
    Process.monitor(pid)
    {:ok, answers}
  end

  def init(answers), do: {:ok, answers}

  @impl true
  def handle_call(operands, request, {:one, fun} = answers) do
    {:reply, enter(fun, operands, request), answers}
  end

  def handle_call(_operands, request, {:each, fun, timeout} = answers) do
    worker = spawn(fn -> work(fun, request) end)
    Nif.request_assign(request.handle, worker)

    if timeout != :infinity do
      Process.send_after(self(), {:late, worker, request.handle}, timeout)
    end

    {:noreply, answers}
  end

  def handle_call(_operands, request, {:pid, pid} = answers) do
    Nif.request_assign(request.handle, pid)
    send(pid, {:postern_call, request})
    {:noreply, answers}
  end

  @impl true
  def handle_info({:late, worker, handle}, {:each, _fun, timeout} = answers) do
    text = "no answer came within #{timeout} ms"

    case Request.fail(handle, %Error{code: :timeout, message: text}) do
      {:error, :not_found, _, _} -> :ok
      _ -> Process.exit(worker, :kill)
    end

    {:noreply, answers}
  end

  def handle_info({:DOWN, _, :process, pid, _}, {:pid, pid} = answers) do
    {:stop, :normal, answers}
  end

  def handle_info(_message, answers), do: {:noreply, answers}

  defp enter(fun, operands, _request) when is_function(fun, 1), do: fun.(operands)
  defp enter(fun, operands, request) when is_function(fun, 2), do: fun.(operands, request)

  defp work(fun, request) do
    finish(fun, request)
    Server.settle(request.handle)
  end

  defp finish(fun, request) do
    Server.reply(request.handle, enter(fun, request.operands, request))
  catch
    kind, reason -> Request.fail(request.handle, kind, reason, __STACKTRACE__)
  end
end
