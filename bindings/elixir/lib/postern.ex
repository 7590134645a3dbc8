defmodule Postern do
  @moduledoc """
  Compiled programs that call back into processes: saved programs of Postern are loaded, run, and
  what they call, tap, hook and print is answered here.

      {:ok, program} = Postern.load("program.mlir")
      {:ok, [result]} = Postern.run(program, [Postern.Tensor.new([1, 2, 3], :f32)])
      Postern.Tensor.to_list(result)

  Nothing here blocks a scheduler: runs are at work on threads of the library, which send a message
  when they end; loading, a program's first start, which compiles it, and copies of what is large
  are dirty jobs. Any number of processes may run one program at once.
  """
  alias Postern.{Error, Given, Nif, Options, Program, Reentry, Request, Run, Serving, Tensor}

  @typedoc "A tensor, or numbers, which become one of the type that the program takes there."
  @type argument :: Tensor.t() | Postern.Shards.t() | number | boolean | list

  @typedoc "A tensor; with `shards: true` what each device has of it."
  @type result :: Tensor.t() | [{non_neg_integer, Tensor.t()}]

  @doc """
  Before anything runs: `:cpu_devices`, how many devices the CPU shows; `:plugin`, a plug-in's path;
  `:cache_dir`, a folder for compiled programs.
  """
  def configure(options) do
    known = [cpu_devices: 0, plugin: "", cache_dir: ""]
    options = Options.validate!(options, known, "Postern.configure")

    Nif.configure(options[:cpu_devices], options[:plugin], options[:cache_dir])
    |> Error.from_nif()
  end

  @doc """
  Loads a shared object, whose kernels register themselves: FFI handlers, by their names. Programs
  that are loaded later find them.
  """
  @spec load_library(Path.t()) :: :ok | {:error, Error.t()}
  def load_library(path), do: Error.from_nif(Nif.load_library(IO.chardata_to_string(path)))

  @doc """
  Says what stands for a block of Nx (`Nx.block/4`), by the module of its structure, in programs
  that are compiled from now on; one of:

    * `:kernel` - the name of an FFI handler (see `load_library/1`). `:attributes` for it are pairs
      of a name and a value in MLIR's form, `{"k", "42 : i64"}`; `:types` those that operands are
      converted to. Either may be a function of the structure. `:operand_layouts`,
      `:result_layouts` and `:output_operand_aliases` are texts, as StableHLO writes them;
      `side_effect: true` calls it also where nobody uses its results
    * `:defn` - a function of the structure and the operands, which is traced
    * `:host` - a function of the same, which a process of the run answers with

  `:when`, a function of the structure, the operands and the results, both with `type` and `shape`,
  says whether it fits; of several the last one that does counts, and the block's default where none
  does. What implements the protocol `EXLA.CustomCall` is taken as it is.
  """
  def override_block(module, options), do: Postern.Blocks.override(module, options)

  @doc "Undoes all overrides of a block."
  def restore_block(module), do: Postern.Blocks.restore(module)

  @doc "How many devices programs can use: `{:ok, count}`."
  def device_count, do: Error.from_nif(Nif.device_count())

  @doc "Reads a saved program, or one from elsewhere, from a file."
  @spec load(Path.t()) :: {:ok, Program.t()} | {:error, Error.t()}
  def load(path), do: Program.from_nif(Nif.load_file(IO.chardata_to_string(path)))

  @doc "The same from its text."
  @spec load_text(binary) :: {:ok, Program.t()} | {:error, Error.t()}
  def load_text(text), do: Program.from_nif(Nif.load_text(text))

  @doc """
  Runs a program and waits for its results. Options as for `start/3`, and `:timeout` in
  milliseconds: when it passes the run is cancelled, and the error's code is `:timeout`.
  """
  @spec run(Program.t(), [argument], keyword) :: {:ok, [result]} | {:error, Error.t()}
  def run(program, arguments, options \\ []) do
    {timeout, options} = Keyword.pop(options, :timeout, :infinity)

    with :ok <- may_wait(program, options, timeout),
         {:ok, run} <- start(program, arguments, options) do
      or_abandon(run, fn -> awaited_or_cancelled(run, timeout) end)
    end
  end

  defp awaited_or_cancelled(run, timeout) do
    with :late <- awaited(run, timeout) do
      cancel(run)
      wait(run, :infinity)
      late("the run was cancelled: #{timeout} ms were given, which have passed")
    end
  end

  @doc false
  # Where who prints raises nobody knows the run any more: it ends, and leaves no messages behind.
  def or_abandon(run, wait_for_it) do
    wait_for_it.()
  catch
    kind, reason ->
      cancel(run)
      quiet = %{run | print: fn _ -> :ok end}
      with :wait <- taken(quiet), do: wait(quiet, :infinity)
      :erlang.raise(kind, reason, __STACKTRACE__)
  end

  defp may_wait(program, options, timeout) do
    if timeout != :infinity or Keyword.get(options, :deadline, 0) != 0 do
      :ok
    else
      given = Given.new(Keyword.get(options, :hooks, %{}), Keyword.get(options, :functions, %{}))
      Reentry.check(Program.calls(program, given), Given.own(given))
    end
  end

  @doc "As `run/3`, but gives the results alone and raises `Postern.Error`."
  def run!(program, arguments, options \\ []) do
    case run(program, arguments, options) do
      {:ok, results} -> results
      {:error, error} -> raise error
    end
  end

  @doc """
  Starts a run and returns at once. The process that starts it is its owner: it alone may await it,
  and when it ends before, the run is cancelled.

  Options:

    * `:device` - which device it runs on, 0 unless given
    * `:deadline` - milliseconds over all its calls; then it fails with `:timeout`
    * `:print` - who gets what the program prints: a function of the text, which `await/2` calls in
      the owner, or a process, which gets `{:postern_print, run.ref, text}`; `IO.write/1` unless
      given
    * `:hooks` - listeners for this run alone, in place of those that its hooks have: a map of the
      hooks' names to functions or processes, which answer as those of `serve/3`. A hook that may
      have none is saved as a live one, and shows nothing to nobody
    * `:functions` - the same of the functions that it calls, taps included, in place of served ones
    * `:shards` - whether results are given as what each device has of them, see `Postern.Shards`

  The functions of one run are called in a process of the run, one after the other. A name that the
  program does not have is an error of code `:invalid_argument`, whose text lists those that it has.
  """
  @spec start(Program.t(), [argument], keyword) :: {:ok, Run.t()} | {:error, Error.t()}
  def start(%Program{} = program, arguments, options \\ []) do
    start_shown(program, arguments, options, [])
  end

  @options [device: 0, deadline: 0, print: &IO.write/1, hooks: %{}, functions: %{}, shards: false]

  # With what else of the run comes to a bridge, as the native part takes it.
  defp start_shown(program, arguments, options, shown) do
    options = Options.validate!(options, @options, "a run")
    ref = make_ref()
    print = options[:print]
    printer = printer(print)
    given = Given.new(options[:hooks], options[:functions])
    limited = options[:deadline] != 0
    deadline_ns = options[:deadline] * 1_000_000
    tensors = Program.tensors(program, arguments)

    with {:ok, server, bridges} <- Given.serve(given),
         {:ok, handle} <-
           Nif.start(
             program.handle,
             tensors,
             ref,
             options[:device],
             deadline_ns,
             printer,
             bridges ++ shown
           ) do
      Given.bound(server)
      calls = if limited, do: [], else: Program.calls(program, given)
      own = if limited, do: [], else: Given.own(given)
      run = %Run{ref: ref, handle: handle, owner: self(), print: print, calls: calls, own: own}
      {:ok, %{run | shards: options[:shards] == true}}
    else
      # The bridge of the run has ended, and its process does.
      error -> Error.from_nif(error)
    end
  end

  defp printer(print) when is_function(print, 1), do: :owner
  defp printer(print) when is_pid(print) and node(print) == node(), do: print

  defp printer(print) do
    raise ArgumentError,
          "print takes a function of the text or a process of this node, got #{inspect(print)}"
  end

  @doc """
  Waits for a run that this process started: its results, or how it failed. When `timeout`
  milliseconds pass first the error's code is `:timeout` and the run goes on; it may be awaited
  again. `:reentry` when the run calls what this process answers itself, and nothing limits it.
  """
  @spec await(Run.t(), timeout) :: {:ok, [result]} | {:error, Error.t()}
  def await(run, timeout \\ :infinity)

  def await(%Run{owner: owner} = run, timeout) when owner == self() do
    with :late <- awaited(run, timeout), do: late("the run goes on after the time to await it")
  end

  def await(%Run{owner: owner}, _timeout) do
    raise ArgumentError, "#{inspect(self())} awaits a run that #{inspect(owner)} has started"
  end

  @doc """
  Answers what programs call, tap or hook by this name, or these names, until the calling process
  ends or `unserve/1`; gives the server's pid.

  A function gets the operands, a list of `Postern.Tensor`, and if it takes two arguments the
  `Postern.Request`. It gives the result: a number, nested lists, a tensor, a binary of its bytes,
  or a tuple where there are several; what it gives for a tap is not looked at. What it raises,
  throws or exits with ends the run, and is the `cause` of the caller's `Postern.Error`.

  A process gets `{:postern_call, request}` for each, and answers by `reply/2` or `fail/2`, in any
  order.

  Options:

    * `:processes` - `:one` (unless given): calls are answered one after the other in the server's
      process, which may not wait for a program that calls it (`:reentry`); `:each`: each in a
      process of its own, at the same time
    * `:timeout` - milliseconds until the answer; then the run fails with `:timeout`, and the
      process of a function is killed. Needs `processes: :each`, or a process that answers
    * `:operands` - `:shared`, for functions unless given: large operands are the program's own
      memory, and the program goes on when the function has returned and nobody has a binary of them
      any more. `:copied`, for processes unless given: they may be kept
    * `:replace` - whether to take a name that is served already
    * `:owner` - the process with which it ends, the caller unless given; nil for none
  """
  @spec serve(String.t() | [String.t()], fun | pid, keyword) :: {:ok, pid} | {:error, Error.t()}
  def serve(names, fun_or_pid, options \\ []) do
    known = [:processes, :timeout, :operands, :replace, :owner]
    Options.refuse_others(options, known, "Postern.serve")
    {answering, options} = Keyword.split(options, [:processes, :timeout])
    limited!(answering[:timeout])
    shown = if is_pid(fun_or_pid), do: :copied, else: :shared
    options = Keyword.merge([owner: self(), names: List.wrap(names), operands: shown], options)
    argument = answers(fun_or_pid, answering[:processes], answering[:timeout])

    Serving.start(argument, options)
  end

  defp limited!(timeout) when timeout in [nil, :infinity], do: :ok
  defp limited!(timeout) when is_integer(timeout) and timeout >= 0, do: :ok

  defp limited!(timeout) do
    raise ArgumentError, "timeout is in whole milliseconds, or :infinity, got #{inspect(timeout)}"
  end

  defp answers(pid, nil, timeout) when is_pid(pid) and node(pid) == node(),
    do: {:pid, pid, timeout || :infinity}

  defp answers(fun, processes, nil) when is_function(fun) and processes in [nil, :one],
    do: {:one, fun}

  defp answers(fun, :each, timeout) when is_function(fun), do: {:each, fun, timeout || :infinity}

  defp answers(_fun_or_pid, _processes, _timeout) do
    raise ArgumentError,
          "serve takes a pid of this node, or a function with processes: :one or :each; timeout " <>
            "with a pid or :each"
  end

  @doc """
  Ends a server: runs that wait for it fail with `:closed`. Harmless when it has ended. A function
  that it is in has five seconds to return, then its process is killed.
  """
  def unserve(server) do
    GenServer.stop(server, :normal, 5_000)
  catch
    :exit, {:timeout, _} -> kill(GenServer.whereis(server))
    :exit, _ -> :ok
  end

  defp kill(nil), do: :ok

  defp kill(server) do
    monitor = Process.monitor(server)
    Process.unlink(server)
    Process.exit(server, :kill)
    receive do: ({:DOWN, ^monitor, _, _, _} -> :ok)
  end

  @doc """
  Answers a request with its result, as the function of `serve/3` gives it, or `:filled` when it was
  put in place. A second answer, or one to what is gone, is an error of code `:not_found`; one to a
  run that has ended meanwhile of code `:cancelled`. A result of another type is an error of code
  `:bad_result`, and the request is still open.
  """
  @spec reply(Request.t(), term) :: :ok | {:error, Error.t()}
  def reply(%Request{} = request, result), do: answered(request, Request.reply(request, result))

  @doc "Ends the run that waits for the request: with an exception, or any other term."
  @spec fail(Request.t(), term) :: :ok | {:error, Error.t()}
  def fail(%Request{} = request, reason) do
    answered(request, Request.fail(request, :error, reason, []))
  end

  defp answered(_request, :ok), do: :ok
  defp answered(request, :held), do: Postern.Server.settle(request.handle)

  defp answered(request, error) do
    Postern.Server.settle(request.handle)
    Error.from_nif(error)
  end

  @doc """
  The taps and hooks of these names as a stream of maps: `operands`, and what
  `Postern.Request.info/1` gives. A program waits in each until the stream is asked for the next, so
  that who consumes slowly is not overrun. The names are served while somebody takes of the stream.
  """
  def stream(names), do: Postern.Events.stream(List.wrap(names), nil)

  @doc """
  The same of one run, which starts when the stream is first asked: hooks, and functions that the
  program taps. They are shown of this run alone, whoever serves their names. Its last element is
  how the run ended, `{:ok, results}` or `{:error, error}`, when its asynchronous taps were shown
  too. Who stops before cancels the run. Options as for `start/3`.

      for %{operands: [loss]} <- Postern.stream("loss", program, arguments), do: IO.inspect(loss)
  """
  def stream(names, %Program{} = program, arguments, options \\ []) do
    names = List.wrap(names)

    Postern.Events.stream([], fn bridge ->
      with :ok <- may_wait(program, options, :infinity),
           {:ok, hooks, functions} <- Program.split(program, names) do
        start_shown(program, arguments, options, [{bridge, hooks, functions, :delivered}])
      end
    end)
  end

  @doc """
  Waits for everything that was started before, also asynchronous taps; then a failure that nobody
  has seen yet is its result. `{:error, error}` of code `:timeout` when `timeout` milliseconds pass,
  of code `:reentry` inside a served function, whose run it would wait for.
  """
  @spec barrier(timeout) :: :ok | {:error, Error.t()}
  def barrier(timeout \\ :infinity) do
    limit_ns = if timeout == :infinity, do: -1, else: max(timeout, 0) * 1_000_000
    ref = make_ref()

    with :ok <- Reentry.check_barrier(), :ok <- Nif.barrier(limit_ns, ref) do
      receive do
        {:postern_barrier, ^ref, :wait} -> late("runs go on after the time to wait")
        {:postern_barrier, ^ref, result} -> Error.from_nif(result)
      end
    else
      error -> Error.from_nif(error)
    end
  end

  @doc """
  Asks a run to stop, from any process. Who awaits it gets an error of code `:cancelled` at once.
  """
  @spec cancel(Run.t()) :: :ok | {:error, Error.t()}
  def cancel(%Run{handle: handle}), do: Error.from_nif(Nif.cancel(handle))

  defp awaited(run, timeout) do
    with :wait <- taken(run) do
      may_wait = if timeout == :infinity, do: Reentry.check(run.calls, run.own), else: :ok
      with :ok <- may_wait, do: wait(run, until(timeout))
    end
  end

  # :wait while it goes on.
  defp taken(run) do
    with result when result != :wait <- Nif.result(run.handle, run.shards),
         do: ended(run, result)
  end

  # :late when the time passes.
  defp wait(%Run{ref: ref} = run, until) do
    receive do
      {:postern_ended, ^ref} ->
        ended(run, Nif.result(run.handle, run.shards))

      {:postern_print, ^ref, text} when is_function(run.print) ->
        run.print.(text)
        wait(run, until)
    after
      left(until) -> :late
    end
  end

  defp late(text), do: {:error, %Error{code: :timeout, message: text}}

  # What it has printed came before.
  defp ended(%Run{ref: ref, print: print} = run, result) do
    receive do
      {:postern_print, ^ref, text} when is_function(print) ->
        print.(text)
        ended(run, result)
    after
      0 ->
        forget(run)
        Error.from_nif(result)
    end
  end

  defp forget(%Run{ref: ref}) do
    receive do
      {:postern_ended, ^ref} -> :ok
    after
      0 -> :ok
    end
  end

  defp until(:infinity), do: :infinity
  defp until(timeout), do: System.monotonic_time(:millisecond) + timeout
  defp left(:infinity), do: :infinity
  defp left(until), do: max(0, until - System.monotonic_time(:millisecond))
end
