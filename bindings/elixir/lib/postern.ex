defmodule Postern do
  @moduledoc """
  Compiled programs that call back into processes: saved programs of Postern are loaded, run, and
  what they call, tap, hook and print is answered here.

      {:ok, program} = Postern.load("program.mlir")
      {:ok, [result]} = Postern.run(program, [Postern.Tensor.new([1, 2, 3], :f32)])
      Postern.Tensor.to_list(result)

  Nothing here blocks a scheduler: runs are at work on threads of the library, which send a message
  when they end; loading, and copies of large arguments, are dirty jobs. Any number of processes may
  run one program at once.
  """
  alias Postern.{Error, Nif, Program, Run, Tensor}

  @typedoc "A tensor, or numbers, which become one of the type that the program takes there."
  @type argument :: Tensor.t() | number | boolean | list

  @doc """
  Before anything runs: `:cpu_devices`, how many devices the CPU shows; `:plugin`, a plug-in's path;
  `:cache_dir`, a folder for compiled programs.
  """
  def configure(options) do
    options = Keyword.validate!(options, cpu_devices: 0, plugin: "", cache_dir: "")

    Nif.configure(options[:cpu_devices], options[:plugin], options[:cache_dir])
    |> Error.from_nif()
  end

  @doc "How many devices programs can use: `{:ok, count}`."
  def device_count, do: Error.from_nif(Nif.device_count())

  @doc "Reads a saved program, or one from elsewhere, from a file."
  @spec load(Path.t()) :: {:ok, Program.t()} | {:error, Error.t()}
  def load(path), do: Program.from_nif(Nif.load_file(IO.chardata_to_string(path)))

  @doc "The same from its text."
  @spec load_text(binary) :: {:ok, Program.t()} | {:error, Error.t()}
  def load_text(text), do: Program.from_nif(Nif.load_text(text))

  @doc """
  Runs a program and waits for its results. Options as for `start/3`, and `:timeout` in milliseconds:
  when it passes the run is cancelled, and the error's code is `:timeout`.
  """
  @spec run(Program.t(), [argument], keyword) :: {:ok, [Tensor.t()]} | {:error, Error.t()}
  def run(program, arguments, options \\ []) do
    {timeout, options} = Keyword.pop(options, :timeout, :infinity)

    with {:ok, run} <- start(program, arguments, options) do
      result = await(run, timeout)
      with {:error, %Error{code: :timeout, cause: nil}} <- result, do: cancel(run)
      forget(run)
      result
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
  """
  @spec start(Program.t(), [argument], keyword) :: {:ok, Run.t()} | {:error, Error.t()}
  def start(%Program{} = program, arguments, options \\ []) do
    options = Keyword.validate!(options, device: 0, deadline: 0, print: &IO.write/1)
    ref = make_ref()
    print = options[:print]
    printer = if is_pid(print), do: print, else: self()
    deadline_ns = options[:deadline] * 1_000_000
    tensors = Program.tensors(program, arguments)

    case Nif.start(program.handle, tensors, ref, options[:device], deadline_ns, printer) do
      {:ok, handle} -> {:ok, %Run{ref: ref, handle: handle, owner: self(), print: print}}
      error -> Error.from_nif(error)
    end
  end

  @doc """
  Waits for a run that this process started: its results, or how it failed. When `timeout`
  milliseconds pass first the error's code is `:timeout` and the run goes on; it may be awaited
  again.
  """
  @spec await(Run.t(), timeout) :: {:ok, [Tensor.t()]} | {:error, Error.t()}
  def await(run, timeout \\ :infinity)

  def await(%Run{owner: owner} = run, timeout) when owner == self() do
    case Nif.result(run.handle) do
      :wait -> wait(run, until(timeout))
      result -> ended(run, result)
    end
  end

  def await(%Run{owner: owner}, _timeout) do
    raise ArgumentError, "#{inspect(self())} awaits a run that #{inspect(owner)} has started"
  end

  @doc """
  Asks a run to stop, from any process. Who awaits it gets an error of code `:cancelled` at once.
  """
  @spec cancel(Run.t()) :: :ok | {:error, Error.t()}
  def cancel(%Run{handle: handle}), do: Error.from_nif(Nif.cancel(handle))

  defp wait(%Run{ref: ref} = run, until) do
    receive do
      {:postern_ended, ^ref} ->
        ended(run, Nif.result(run.handle))

      {:postern_print, ^ref, text} when is_function(run.print) ->
        run.print.(text)
        wait(run, until)
    after
      left(until) ->
        {:error, %Error{code: :timeout, message: "the run goes on after the time to await it"}}
    end
  end

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
