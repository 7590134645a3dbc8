"""JAX's errors: those that came of a host function are raised as what they are."""

from __future__ import annotations

import re
import typing

from jax.errors import JaxRuntimeError

from .. import _postern
from .._errors import Error

_NUMBER = re.compile(r"\[postern failure (\d+)\]")


def _raised(cls: type, *args: typing.Any) -> BaseException:
    found = _NUMBER.search(str(args[0])) if cls is JaxRuntimeError and args else None
    if found:
        try:
            _postern.guest_failure(int(found.group(1)))
        except Error as e:
            return _as_jax_error(e)
    return RuntimeError.__new__(cls, *args)


def _as_jax_error(error: Error) -> BaseException:
    """The same error as one that `except JaxRuntimeError` finds too."""
    kind = type(error)
    members = {"__module__": kind.__module__, "__str__": Exception.__str__, "code": error.code,
               "__init__": lambda *_: None}  # JAX would initialise what it gets
    made: BaseException = RuntimeError.__new__(type(kind.__name__, (kind, JaxRuntimeError), members), str(error))
    made.__cause__ = error.__cause__
    return made


JaxRuntimeError.__new__ = _raised
