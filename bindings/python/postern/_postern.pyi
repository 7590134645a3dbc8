from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, NoReturn, Optional

import numpy
import numpy.typing
from typing_extensions import Self

import postern._options
import postern._signatures
import postern._values


supported: bool = True

def library_version() -> str: ...

def version() -> int: ...

def configure(cpu_devices: int, plugin: object, cache_dir: object, tap_queue_bytes: int) -> None: ...

def barrier(nanoseconds: int) -> bool: ...

def nanoseconds(seconds: float | None) -> int: ...

def close_interpreter(seconds: float) -> None: ...

def lent_count() -> int: ...

class Tensor:
    """
    An array that the library holds, of anything that NumPy makes an array of, or that has __dlpack__. numpy.asarray shows its memory, read only; so do DLPack and memoryview. NumPy's arrays of 4096 bytes and more, and others that have __dlpack__, may be used in place: nobody may write to them while the tensor lives or a run goes on that got it; give `x.copy()` otherwise.
    """

    def __init__(self, value: Any) -> None: ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.typing.NDArray[Any]: ...

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> numpy.dtype[Any]: ...

    @property
    def ndim(self) -> int: ...

    @property
    def size(self) -> int: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any, /) -> Any:
        """As NumPy's: a read-only view, or a copy."""

    def __iter__(self) -> Iterator[Any]: ...

    def __float__(self) -> float: ...

    def __int__(self) -> int: ...

    def tolist(self) -> Any: ...

    def __repr__(self) -> str: ...

    def __copy__(self) -> Self: ...

    def __deepcopy__(self, memo: Any) -> Self: ...

    def __reduce__(self) -> NoReturn: ...

    def numpy(self) -> numpy.typing.NDArray[Any]:
        """
        The elements as a read-only array, which keeps the tensor alive. Waits for them.
        """

    __signature__: postern._signatures._Signature = ...

class Run:
    """A run under way, which Program.start makes; it can be awaited."""

    def __init__(self, *_: NoReturn) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """
        Whether the run has ended within so many seconds. Raises how it failed. Any number of
        threads may wait.
        """

    def result(self, timeout: float | None = None) -> postern._values.Results[numpy.typing.NDArray[Any]]:
        """
        The results, when they are there. Raises TimeoutError when they are not in time; the
        run goes on.
        """

    def cancel(self) -> None:
        """Asks the run to stop."""

    def __await__(self) -> Generator[Any, Any, list[numpy.typing.NDArray[Any]]]:
        """The results; a task that is cancelled cancels the run."""

    def __copy__(self) -> Self: ...

    def __deepcopy__(self, memo: Any) -> Self: ...

    def __reduce__(self) -> NoReturn: ...

    __signature__: postern._signatures._Signature = ...

class Program:
    """
    A loaded program. `inputs` and `outputs` are types such as
    "f32[2,3]", `input_names` and `output_names` what the file calls
    them, `functions` the names that it calls.
    """

    def __init__(self, *_: NoReturn) -> None: ...

    @property
    def inputs(self) -> list[str]: ...

    @property
    def outputs(self) -> list[str]: ...

    @property
    def functions(self) -> list[str]: ...

    @property
    def input_names(self) -> list[str]: ...

    @property
    def output_names(self) -> list[str]: ...

    def __call__(self, *arguments: Any, **named: Any) -> postern._values.Results[numpy.typing.NDArray[Any]]:
        """
        Runs, waits, and gives the results as a list of read-only arrays over the library's
        memory. Arguments may go by their names, and results be taken by theirs:
        `program(x)["loss"]`.
        """

    def run(self, *arguments: Any, **named: Any) -> postern._values.Results[Tensor]:
        """
        The same with the results as tensors: for other programs, and for DLPack.
        """

    def start(self, *arguments: Any, **named: Any) -> Run:
        """
        Starts a run on a thread of the library. NumPy's arrays of 4096 bytes and more, and
        others that have __dlpack__, may be used in place: nobody may write to them until the
        run has ended; give `x.copy()` otherwise.
        """

    def __repr__(self) -> str: ...

    def __copy__(self) -> Self: ...

    def __deepcopy__(self, memo: Any) -> Self: ...

    def __reduce__(self) -> NoReturn: ...

    def with_options(self, *, device: int = 0, deadline: float | None = None, print: Callable[[str], Any] | None = None, hooks: Mapping[str, Callable[..., Any]] | None = None, functions: Mapping[str, Callable[..., Any]] | None = None) -> postern._options.Configured:
        """
        The program, called, run and started as it is itself, whose runs are on that device,
        end after `deadline` seconds by a TimeoutError, give `print` the lines that they
        print, and have functions of their own: `hooks` in place of what listens to hooks,
        `functions` in place of those that are registered. Runs raise Error for a name
        that the program does not have.
        """

    __signature__: postern._signatures._Signature = ...

class NativeProgram:
    """What postern.native calls."""

    def __init__(self, program: Program, derivative: int, bound: list[Any], types: list[str]) -> None: ...

    @property
    def inputs(self) -> list[str]: ...

    @property
    def outputs(self) -> list[str]: ...

    def call(self, arguments: list[Any], out: list[Any]) -> None: ...

    def __copy__(self) -> Self: ...

    def __deepcopy__(self, memo: Any) -> Self: ...

    def __reduce__(self) -> NoReturn: ...

def start_with(program: Program, arguments: tuple[Any, ...], named: dict[str, Any], options: tuple[Any, ...]) -> Run: ...

def run_with(program: Program, arguments: tuple[Any, ...], named: dict[str, Any], options: tuple[Any, ...], arrays: bool) -> Any: ...

def load(path: Any, entry: str = "") -> Program: ...

def load_text(text: Any) -> Program: ...

class Listener:
    """A function of C++ for taps: for postern.jax.tap, and postern.register."""

class Stats(Listener):
    """Statistics of everything that it is shown."""

    def __init__(self) -> None: ...

    def series(self) -> list[dict[str, Any]]:
        """
        A dict for each leaf: name, path, device, transforms, firings, `last` and `all`
        (count, nan, inf, min, max, mean), and `points`, pairs of a firing and its summary.
        """

    def table(self) -> str:
        """A line for each leaf."""

    def merged(self, limit: float = 60.0) -> list[dict[str, Any]]:
        """
        As series(), over all processes and devices, on process 0; empty on the others.
        All processes call it, after barrier(), at the same place among their runs.
        """

class FirstNonFinite(Listener):
    """Fails at the first element that is nan or infinite."""

    def __init__(self) -> None: ...

class Progress(Listener):
    """
    A progress bar on standard error. A first leaf that is an integer of
    rank 0 is the step, else firings are counted; further numbers are
    written behind the bar.
    """

    def __init__(self, total: int, *, label: str = '', width: int = 40, per_second: float = 10.0, of_all_processes: bool = False) -> None: ...

class Histogram(Listener):
    """Counts of elements by value."""

    def __init__(self, *, bins: int = 64) -> None: ...

    def counts(self) -> list[dict[str, Any]]:
        """A dict for each leaf: name, path, from, to, bins, nan, inf."""

    def merged(self, limit: float = 60.0) -> list[dict[str, Any]]:
        """
        As counts(), over all processes and devices, on process 0; see Stats.merged.
        """

class Images(Listener):
    """
    Keeps the last image of each leaf, [height, width] or with 1, 3 or 4
    channels behind, for the live page and the report.
    """

    def __init__(self) -> None: ...

def show_text(name: str, text: str) -> None:
    """
    Shows a text under a name on the live page and in the report, in place of
    the one before; an empty one takes that away.
    """

def report(file: object, *, title: str = 'Postern report') -> None:
    """
    Writes a page of HTML with what living listeners have seen, to be opened in a browser.
    """

class Png(Listener):
    """
    Writes images, a file for each: "x-{step}.png". Without {step} the newest
    firing stays.
    """

    def __init__(self, file: object, *, on_error: str = 'stop') -> None: ...

class Record(Listener):
    """
    Keeps every value that it is shown, for NumPy: "x.npy" stacks those of
    one leaf, "x.npz" has an array for each leaf of each tap, "x-{step}.npz"
    is a file for each firing.
    """

    def __init__(self, file: object, *, max_bytes: int = 268435456, on_error: str = 'stop') -> None: ...

    def close(self) -> None:
        """Writes what is not written yet; later firings are left out."""

class TensorBoard(Listener):
    """
    Writes event files of TensorBoard into a folder. A first leaf that is
    an integer of rank 0 is the step.
    """

    def __init__(self, folder: object, *, images: bool = False, bins: int = 30, on_error: str = 'stop') -> None: ...

class Rows(Listener):
    """What csv and jsonl give."""

def csv(file: object, *, max_elements: int = 100, on_error: str = 'stop') -> Rows:
    """
    A table for one tap: step, time, device, and a column for each leaf of rank 0.
    """

def jsonl(file: object, *, max_elements: int = 100, on_error: str = 'stop') -> Rows:
    """An object a line, for any taps."""

class Info:
    """What a function of `with_info` is told of the firing."""

    @property
    def function(self) -> str:
        """The registered name."""

    @property
    def site(self) -> str:
        """The call's or tap's own name."""

    @property
    def device(self) -> int: ...

    @property
    def run(self) -> int: ...

    @property
    def element(self) -> int:
        """Of the batch, where vmap fires for each; else -1."""

    @property
    def coordinates(self, /) -> tuple[int, ...]:
        """
        Where the device is on the mesh, by axis, inside of shard_map; else empty.
        """

    def __repr__(self) -> str: ...

    __signature__: postern._signatures._Signature = ...

class Entry:
    """
    For `register`: `function` gets arrays of its own, `finish` makes a tuple of results of what it returns (None: it is one; not of an array, where that is a `leaf`). `fit(array, dtype)` makes another of an array that does not fit.
    """

    def __init__(self, function: object, finish: object | None, leaf: bool, fit: object | None) -> None: ...

def guard(context: Any, trace: Any) -> tuple[Any, Any]:
    """
    While a function runs that JAX waits for `context`'s trace is `trace`; gives the former.
    """

def register(name: object | None, function: object | None, replace: bool, info: bool) -> None: ...

def unregister(name: object | None) -> None: ...

class Request:
    """
    A firing that waits for an answer; its arrays live until it is answered.
    """

    @property
    def tag(self) -> int: ...

    @property
    def info(self) -> Info: ...

    @property
    def attributes(self) -> dict[str, Any]: ...

    @property
    def operands(self) -> list[numpy.typing.NDArray[Any]]: ...

    def reply(self, *results: Any) -> None:
        """
        Answers with arrays, which are copied. Raises Error (BAD_RESULT) when they do not fit;
        the request is then still open.
        """

    def fail(self, exception: BaseException) -> None:
        """Answers with a failure: the run ends with this exception as the cause."""

    @property
    def stopped(self) -> bool:
        """Whether nobody waits for the answer any more."""

    def __copy__(self) -> Self: ...

    def __deepcopy__(self, memo: Any) -> Self: ...

    def __reduce__(self) -> NoReturn: ...

    __signature__: postern._signatures._Signature = ...

class Bridge:
    """
    Serves names on threads of the caller's choice: `serve` them, then answer what `next`
    gives. fileno() is readable while requests wait, so that a bridge can be given to select
    and to event loops.
    """

    def __init__(self) -> None: ...

    def serve(self, name: str, replace: bool = False) -> None:
        """
        Makes the bridge the function of that name. Raises Error when it is taken, unless
        `replace`.
        """

    def next(self, timeout: float | None = None) -> Request | None:
        """
        The oldest request that nobody has taken, or None when none came within `timeout`
        seconds. Raises CallbackError once closed.
        """

    def fileno(self) -> int: ...

    def close(self) -> None:
        """Fails what waits and what comes later."""

    def __enter__(self) -> Bridge: ...

    def __exit__(self, *exception: object) -> None: ...

    def __copy__(self) -> Self: ...

    def __deepcopy__(self, memo: Any) -> Self: ...

    def __reduce__(self) -> NoReturn: ...

    __signature__: postern._signatures._Signature = ...

def guest(platform: str) -> dict[str, Any]: ...

def guest_failure(arg: int, /) -> None: ...

def tell_failures(jitted: Any, finder: Any) -> None:
    """
    JAX's function `jitted` raises what `finder` makes of the text of a ValueError, if that is not None.
    """

def ended_at_once() -> Any:
    """
    The jitted function that JAX's Python runs now, if its run has ended; else None.
    """

def watch(function: int, by: Any) -> None:
    """
    `by(jitted, results)` is called for runs of what wraps the function of that id, if JAX's fast path starts them, and they may not have ended; None: no more.
    """

def inside_device() -> int: ...

def guest_place() -> Optional[tuple[str, int]]: ...

def load_library(path: object | None) -> None: ...

def registered() -> list[str]: ...
