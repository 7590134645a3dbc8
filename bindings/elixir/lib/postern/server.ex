defmodule Postern.Server do
  @moduledoc """
  A process that serves functions of compiled programs, and keeps a state.

      defmodule Counter do
        use Postern.Server

        def init(start), do: {:ok, start}
        def handle_call([x], _info, count), do: {:reply, x, count + 1}
      end

      children = [{Counter, {0, names: ["demo.count"]}}]

  Callbacks:

    * `init(argument)` - `{:ok, state}` or `{:stop, reason}`
    * `handle_call(operands, request, state)` - `{:reply, result, state}`; `{:noreply, state}` when
      `Postern.reply/2` or `Postern.fail/2` answers later; `{:stop, reason, state}`
    * `handle_info(message, state)`, `terminate(reason, state)`, `code_change(old, state, extra)`
      as in a `GenServer`; they may be left out

  A result is a number, nested lists of them, a tensor, a binary of its bytes, or a tuple where
  there are several. What a callback raises, throws or exits with ends the run that called, not the
  server. To wait in one for a program that calls a name of this server is an error, `:reentry`.
  The next call enters the module's newest code.

  It is a `GenServer`: it can be supervised, named, and suspended and upgraded through `:sys`. When
  it ends, its names are free, and the runs that wait for it fail with `:closed`.
  """
  use GenServer

  alias Postern.{Error, Nif, Reentry, Request, Telemetry}

  @callback init(argument :: term) :: {:ok, term} | {:stop, term}
  @callback handle_call([Postern.Tensor.t()], Request.t(), term) ::
              {:reply, term, term} | {:noreply, term} | {:stop, term, term}
  @callback handle_info(message :: term, term) :: {:noreply, term} | {:stop, term, term}
  @callback terminate(reason :: term, term) :: term
  @callback code_change(old :: term, term, extra :: term) :: {:ok, term} | {:error, term}
  @optional_callbacks handle_info: 2, terminate: 2, code_change: 3

  defmacro __using__(_options) do
    quote do
      @behaviour Postern.Server

      def child_spec({argument, options}) do
        %{
          id: __MODULE__,
          start: {Postern.Server, :start_link, [__MODULE__, argument, options]},
          modules: [__MODULE__, Postern.Server]
        }
      end
    end
  end

  @doc """
  Starts one. Options: `:names`, those of the functions that it serves; `:replace` and `:operands`
  as in `Postern.serve/3`; `:name`, that of the process.
  """
  def start_link(module, argument, options) do
    {name, options} = Keyword.split(options, [:name])
    GenServer.start_link(__MODULE__, {module, argument, validate(options)}, name)
  end

  @doc false
  def validate(options) do
    options =
      Postern.Options.validate!(
        options,
        [names: [], replace: false, operands: :shared, owner: nil],
        "a server"
      )

    if options[:operands] not in [:shared, :copied] do
      raise ArgumentError, "operands are :shared or :copied, got #{inspect(options[:operands])}"
    end

    Map.new(options)
  end

  # Operands of fewer bytes are copied, which takes less time than to collect what shows them.
  @shared_from 16 * 1024
  @most :erlang.bsl(1, 62)
  # Words of binaries that a server may have let go of before the VM collects them on its own.
  @vheap 1024 * 1024
  # So many calls are answered before other messages are looked at.
  @turn 256

  @impl true
  def init({module, argument, options}) do
    ref = make_ref()

    with {:ok, bridge} <- Nif.bridge_new(ref),
         {:ok, state} <- begin(bridge, module, argument, options) do
      if options.owner, do: Process.monitor(options.owner)
      metadata = %{server: self(), names: options.names}

      Telemetry.execute(
        [:postern, :server, :start],
        %{system_time: System.system_time()},
        metadata
      )

      copy_below = if options.operands == :copied, do: @most, else: @shared_from
      # What shows operands is collected after each call: not also in its middle.
      Process.flag(:min_bin_vheap_size, @vheap)
      Reentry.serves(bridge)

      {:ok,
       %{
         module: module,
         state: state,
         bridge: bridge,
         ref: ref,
         handed: false,
         copy_below: copy_below,
         options: options
       }, {:continue, :take}}
    else
      {:error, _, _, _} = error ->
        {:error, error} = Error.from_nif(error)
        {:stop, error}

      other ->
        other
    end
  end

  # Where it does not begin the names are free at once: who started it is told before this process
  # has gone, and may try again.
  defp begin(bridge, module, argument, options) do
    with :ok <- serve(bridge, options), {:ok, state} <- module.init(argument) do
      {:ok, state}
    else
      other ->
        Nif.bridge_end(bridge)
        other
    end
  catch
    kind, reason ->
      Nif.bridge_end(bridge)
      :erlang.raise(kind, reason, __STACKTRACE__)
  end

  defp serve(bridge, options) do
    Enum.reduce_while(options.names, :ok, fn name, :ok ->
      case Nif.bridge_serve(bridge, name, options.replace) do
        :ok -> {:cont, :ok}
        error -> {:halt, error}
      end
    end)
  end

  @impl true
  def handle_continue(:take, server), do: take(server, @turn)

  @impl true
  def handle_call(:postern_bridge, _from, server), do: {:reply, server.bridge, server}

  @impl true
  def handle_info({:postern_ready, ref}, %{ref: ref} = server), do: take(server, @turn)

  # It serves a run, and ends with that alone.
  def handle_info(:postern_bound, server), do: {:noreply, put_in(server.options.owner, nil)}

  def handle_info({:DOWN, _, :process, owner, _}, %{options: %{owner: owner}} = server) do
    {:stop, :normal, server}
  end

  def handle_info(message, %{module: module} = server) do
    if function_exported?(module, :handle_info, 2) do
      case module.handle_info(message, server.state) do
        {:noreply, state} -> {:noreply, %{server | state: state}}
        {:stop, reason, state} -> {:stop, reason, %{server | state: state}}
      end
    else
      {:noreply, server}
    end
  end

  @impl true
  def terminate(reason, %{module: module} = server) do
    if function_exported?(module, :terminate, 2), do: module.terminate(reason, server.state)
    Nif.bridge_end(server.bridge)
  end

  @impl true
  def code_change(old, %{module: module} = server, extra) do
    if function_exported?(module, :code_change, 3) do
      with {:ok, state} <- module.code_change(old, server.state, extra) do
        {:ok, %{server | state: state}}
      end
    else
      {:ok, server}
    end
  end

  @impl true
  def format_status(_reason, [_dictionary, %{state: state}]), do: state

  defp take(server, 0) do
    send(self(), {:postern_ready, server.ref})
    {:noreply, server}
  end

  defp take(server, left) do
    case enter(server) do
      {:next, :ok, server} ->
        take(server, left - 1)

      {:next, {:held, handle}, server} ->
        settle_held(handle)
        take(server, left - 1)

      {:next, handle, server} ->
        settle(handle)
        take(server, left - 1)

      :wait ->
        {:noreply, let_go(server)}

      {:stop, handle, reason, server} ->
        settle(handle)
        {:stop, reason, server}

      {:error, _code, _text, _cause} ->
        {:stop, :normal, server}
    end
  end

  # Operands live in this function's frame and those that it calls: when it has returned, what
  # shows them is garbage, unless somebody keeps it.
  defp enter(server) do
    case Nif.bridge_next(server.bridge, server.copy_below) do
      {:ok, handle, operands} ->
        watch = Telemetry.watch(server.options.names)
        request = %Request{handle: handle, operands: operands, watch: watch}
        answer(%{request | operands: []}, call(server, request), server)

      other ->
        other
    end
  end

  defp call(server, request) do
    Reentry.enter(request.handle)
    server.module.handle_call(request.operands, request, server.state)
  catch
    kind, reason -> {:caught, kind, reason, __STACKTRACE__}
  after
    Reentry.leave(request.handle)
  end

  # With what is to be settled, if anything is.
  defp answer(request, {:reply, result, state}, server) do
    server = %{server | state: state}

    case reply(request, result) do
      :ok -> {:next, :ok, server}
      :held -> {:next, {:held, request.handle}, server}
      _ -> {:next, request.handle, server}
    end
  end

  defp answer(request, {:noreply, state}, server) do
    {:next, request.handle, %{server | state: state, handed: true}}
  end

  defp answer(request, {:caught, kind, reason, stacktrace}, server) do
    Request.fail(request, kind, reason, stacktrace)
    {:next, request.handle, server}
  end

  defp answer(request, {:stop, reason, state}, server) do
    text = "the process that served it stops: " <> Exception.format_exit(reason)
    Request.fail(request, %Error{code: :closed, message: text})
    {:stop, request.handle, reason, %{server | state: state}}
  end

  defp answer(request, other, server) do
    text = "handle_call of #{inspect(server.module)} gave #{inspect(other)}"
    Request.fail(request, %Error{code: :bad_result, message: text})
    {:next, request.handle, server}
  end

  @doc false
  # What does not fit is the callback's failure too.
  def reply(request, result) do
    case Request.reply(request, result) do
      {:error, code, text, _} when code in [:bad_result, :invalid_argument] ->
        Request.fail(request, %Error{code: :bad_result, message: text})

      other ->
        other
    end
  catch
    kind, reason -> Request.fail(request, kind, reason, __STACKTRACE__)
  end

  # A request that was handed on fails when nobody has it any more; we do not.
  defp let_go(%{handed: true} = server) do
    :erlang.garbage_collect(self())
    %{server | handed: false}
  end

  defp let_go(server), do: server

  @doc false
  # The answer goes when nothing shows the operands any more: here that is after a collection.
  def settle(handle) do
    if Nif.request_held(handle), do: settle_held(handle)
    :ok
  end

  defp settle_held(handle) do
    collect(type: :minor)
    if Nif.request_held(handle), do: collect(type: :major)
  end

  # What was collected goes when the process next leaves its scheduler.
  defp collect(how) do
    :erlang.garbage_collect(self(), how)
    :erlang.yield()
  end
end
