"""The package's functions: those of the module with Python's own kind of signature, which can be pickled and inspected."""

from __future__ import annotations

import os
import typing

from . import _postern

_Path = typing.Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
_Function = typing.TypeVar("_Function", bound=typing.Callable[..., typing.Any])


def version() -> int:
    """The version of the C interface that the library has."""
    return _postern.version()


def configure(cpu_devices: int = 0, plugin: _Path = "", cache_dir: _Path = "") -> None:
    """Before anything runs: how many CPU devices, a plug-in's path, a folder for compiled programs. 0 and "" keep the defaults."""
    _postern.configure(cpu_devices, plugin, cache_dir)


def load(path: _Path) -> _postern.Program:
    """The program in a file: of Postern, StableHLO text, an artifact of jax.export. Raises Error when it is not there, damaged, or none."""
    return _postern.load(path)


def load_text(text: str | bytes | bytearray | memoryview) -> _postern.Program:
    """The same from text, or from the bytes of a file."""
    return _postern.load_text(text)


def register(name: str, function: typing.Callable[..., typing.Any], replace: bool = False) -> None:
    """Registers a Python function for programs that call `name`. It gets the operands as read-only NumPy arrays, which are gone when it has
    returned (copy what is kept), the call's attributes by keyword, and an `Info` if it has a parameter `info`; it returns an array of the
    declared dtype and shape (a Python number for rank 0), or a tuple of them; a tap's function returns nothing. Its exceptions end the run.
    Raises Error when the name is taken, unless `replace`.
    """
    _postern.register(name, function, replace)


def unregister(name: str) -> None:
    """Takes the function away from programs that start later. Raises Error when there is none of that name."""
    _postern.unregister(name)


def function(name: str, replace: bool = False) -> typing.Callable[[_Function], _Function]:
    """`register` as a decorator."""

    def decorate(f: _Function) -> _Function:
        register(name, f, replace)
        return f

    return decorate
