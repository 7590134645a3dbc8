"""The package's functions: those of the module with Python's own kind of signature,
which can be pickled and inspected.
"""

from __future__ import annotations

import datetime
import os
import typing

from . import _postern
from ._attributes import check_function, with_info

_CAPSULE: type = type(getattr(datetime, "datetime_CAPI"))
_Path = typing.Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
_Function = typing.TypeVar("_Function", bound=typing.Callable[..., typing.Any])


def version() -> int:
    """The version of the C interface that the library has."""
    return _postern.version()


def configure(
    cpu_devices: int = 0, plugin: _Path = "", cache_dir: _Path = "", tap_queue_bytes: int = 0
) -> None:
    """Before anything runs: how many CPU devices, a plug-in's path, a folder for compiled programs,
    and what asynchronous taps may hold on each device before the program waits (256 MiB),
    also in programs of postern.jax. 0 and "" keep the defaults.
    """
    _postern.configure(cpu_devices, plugin, cache_dir, tap_queue_bytes)


def load(path: _Path, entry: str = "") -> _postern.Program:
    """The program in a file: of Postern, StableHLO text, an artifact of jax.export; of a module of
    several functions the one of that name. Raises Error when it is not there, damaged, or none.
    """
    return _postern.load(path, entry)


def load_text(text: str | bytes | bytearray | memoryview) -> _postern.Program:
    """The same from text, or from the bytes of a file."""
    return _postern.load_text(text)


def load_library(path: _Path) -> list[str]:
    """Loads a shared object of C++ that states POSTERN_LIBRARY, once,
    and gives the names of host functions that it has registered.
    Raises Error when the file is not there, cannot be opened,
    or was built for another version of the library.
    """
    before = set(_postern.registered())
    _postern.load_library(path)
    return [name for name in _postern.registered() if name not in before]


def registered() -> list[str]:
    """The names of host functions, of Python and of C++, sorted."""
    return _postern.registered()


def is_native(function: object) -> bool:
    """Whether `register` takes it as a function of C or C++:
    a capsule, or one of postern.listen.
    """
    return isinstance(function, (_postern.Listener, _CAPSULE))


def register(name: str, function: typing.Callable[..., typing.Any], replace: bool = False) -> None:
    """Registers a Python function for programs that call `name`.
    It gets the operands as read-only NumPy arrays, which are gone when it has returned (copy what
    is kept), and the call's attributes by keyword; one of `with_info` gets an `Info` too. It
    returns an array of the declared dtype and shape (for rank 0 a Python number of its kind or a
    narrower one), or a tuple of them; a tap's function returns nothing.
    Its exceptions end the run.
    A capsule named "postern.pn_function" (its pointer is a pn_function of postern/c.h, its context
    the function's user), or "postern.Callee" (a postern::Callee of C++),
    stands for a function that needs no interpreter; so does a listener of postern.listen.
    Raises Error when the name is taken, unless `replace`;
    TypeError for a coroutine or a generator.
    """
    check_function("postern", function)
    if isinstance(function, with_info):
        _postern.register(name, function.function, replace, True)
    else:
        _postern.register(name, function, replace, False)


def unregister(name: str) -> None:
    """Takes the function away from programs that start later.
    Raises Error when there is none of that name.
    """
    _postern.unregister(name)


def function(name: str, replace: bool = False) -> typing.Callable[[_Function], _Function]:
    """`register` as a decorator."""

    def decorate(f: _Function) -> _Function:
        register(name, f, replace)
        return f

    return decorate
