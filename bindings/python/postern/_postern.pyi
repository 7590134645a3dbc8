from typing import Any, NoReturn

import numpy.typing
from typing_extensions import CapsuleType, Self


supported: bool = True

def version() -> int: ...

def configure(cpu_devices: int, plugin: object, cache_dir: object) -> None: ...

def barrier(nanoseconds: int) -> bool: ...

def nanoseconds(seconds: float | None) -> int: ...

def close_interpreter() -> None: ...

def lent_count() -> int: ...

def guest_handler() -> CapsuleType: ...

def guest_failure(arg: int, /) -> None: ...

class Tensor:
    """
    An array that the library holds, of anything that NumPy makes an array of, or that has __dlpack__. numpy.asarray shows its memory, read only; so do DLPack and memoryview.
    """

    def __init__(self, value: Any) -> None: ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.typing.NDArray[Any]: ...

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def __copy__(self) -> Self: ...

    def __deepcopy__(self, memo: Any) -> Self: ...

    def __reduce__(self) -> NoReturn: ...

    def numpy(self) -> numpy.typing.NDArray[Any]:
        """
        The elements as a read-only array, which keeps the tensor alive. Waits for them.
        """

class Run:
    """A run under way, which Program.start makes."""

    def wait(self, timeout: float | None = None) -> bool:
        """
        Whether the run has ended within so many seconds. Raises how it failed. Any number of
        threads may wait.
        """

    def result(self, timeout: float | None = None) -> list[numpy.typing.NDArray[Any]]:
        """
        The results, when they are there. Raises TimeoutError when they are not in time; the
        run goes on.
        """

    def cancel(self) -> None:
        """Asks the run to stop."""

    def __copy__(self) -> Self: ...

    def __deepcopy__(self, memo: Any) -> Self: ...

    def __reduce__(self) -> NoReturn: ...

class Program:
    """
    A loaded program. `inputs` and `outputs` are types such as
    "f32[2,3]", `functions` the names that it calls.
    """

    @property
    def inputs(self) -> list[str]: ...

    @property
    def outputs(self) -> list[str]: ...

    @property
    def functions(self) -> list[str]: ...

    def __call__(self, *arguments: Any) -> list[numpy.typing.NDArray[Any]]:
        """
        Runs, waits, and gives the results as a list of read-only arrays over the library's
        memory.
        """

    def run(self, *arguments: Any) -> list[Tensor]:
        """
        The same with the results as tensors: for other programs, and for DLPack.
        """

    def start(self, *arguments: Any) -> Run:
        """Starts a run on a thread of the library."""

    def __repr__(self) -> str: ...

    def __copy__(self) -> Self: ...

    def __deepcopy__(self, memo: Any) -> Self: ...

    def __reduce__(self) -> NoReturn: ...

def load(path: Any) -> Program: ...

def load_text(text: Any) -> Program: ...

class Info:
    """What a function that has a parameter `info` is told of the firing."""

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

    def __repr__(self) -> str: ...

def register(name: object | None, function: object | None, replace: bool) -> None: ...

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
