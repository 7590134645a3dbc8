"""Postern from Python: load programs that postern::save wrote, and serve their host functions.

    import numpy as np, postern

    @postern.function("demo.scale")
    def scale(x, *, factor):
        return factor * x

    program = postern.load("program.mlir")
    result, = program(np.float32([1, 2, 3]))

The interpreter's lock is never held while a program runs; functions take it when they are entered.
"""

from __future__ import annotations

import importlib.metadata as _metadata
import sysconfig as _sysconfig

if _sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError(
        "postern: this Python is free-threaded (it has no global lock), which is not supported; "
        "use the same version's usual build"
    )

from . import _postern

if not _postern.supported:
    raise ImportError(
        "postern: this is a sub-interpreter; the package can be imported only in the interpreter "
        "that the process began with"
    )

from ._attributes import with_info
from ._errors import CallbackError, Error, TimeoutError
from ._functions import (
    configure,
    function,
    load,
    load_library,
    load_text,
    register,
    registered,
    unregister,
    version,
)
from ._native import Native, native
from ._postern import Bridge, Info, Program, Request, Run, Tensor
from ._waits import barrier
from . import _signatures as _signatures

try:
    __version__ = _metadata.version("postern")
except _metadata.PackageNotFoundError:  # imported from a build folder
    __version__ = _postern.library_version()

__all__ = [
    "Bridge",
    "CallbackError",
    "Error",
    "Info",
    "Native",
    "Program",
    "Request",
    "Run",
    "Tensor",
    "TimeoutError",
    "__version__",
    "barrier",
    "configure",
    "function",
    "load",
    "load_library",
    "load_text",
    "native",
    "register",
    "registered",
    "unregister",
    "version",
    "with_info",
]


def __dir__() -> list[str]:
    return sorted({*__all__, *(n for n in globals() if n.startswith("__")), "jax", "listen"})
