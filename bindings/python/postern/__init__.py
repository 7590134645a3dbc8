"""Postern from Python: load programs that postern::save wrote, and serve their host functions.

    import numpy as np, postern

    @postern.function("demo.scale")
    def scale(x, *, factor):
        return factor * x

    program = postern.load("program.mlir")
    result, = program(np.float32([1, 2, 3]))

The library libpostern.so is found beside the package, by POSTERN_LIBRARY=path, or where the system's loader looks. The interpreter's lock
is never held while a program runs; functions take it when they are entered.
"""

from ._errors import CallbackError, Error, TimeoutError
from ._functions import Bridge, Info, Request, function, register, unregister
from ._library import configure, version
from ._postern import Tensor
from ._programs import Program, Run, barrier, load, load_text

__all__ = ["Bridge", "CallbackError", "Error", "Info", "Program", "Request", "Run", "Tensor", "TimeoutError", "barrier", "configure",
           "function", "load", "load_text", "register", "unregister", "version"]
