"""JAX's errors: those that came of a host function are raised as what they are."""

from __future__ import annotations

import collections
import functools
import re
import typing

from jax.errors import JaxRuntimeError

from .. import _postern
from .._errors import NOT_FOUND, Error
from . import _compat

_NUMBER = re.compile(r"\[postern failure (\d{1,19})\]")


_told: collections.deque[str] = collections.deque(maxlen=256)  # numbers


def _told_by(text: str) -> BaseException | None:
    # What a user's text has of others stands before the failure's own.
    for number in reversed(_NUMBER.findall(text)):
        try:
            _postern.guest_failure(int(number))
        except Error as e:
            if e.code != NOT_FOUND:  # any more: too many others came since
                made = as_jax_error(e)
                setattr(made, "told_before", number in _told)
                _told.append(number)
                return made
    return None


def _raised(cls: type, *args: typing.Any) -> BaseException:
    found = _told_by(str(args[0])) if cls is JaxRuntimeError and args else None
    return found or RuntimeError.__new__(cls, *args)


def barrier() -> None:
    """Waits for the programs that any thread has begun. Each failure is raised once."""
    _compat.barrier(_untold())


def _untold() -> typing.Iterator[BaseException]:
    """Failures that no token has: a later program of the same thread, which XLA lets succeed after
    one that failed, has taken its place.
    """
    while True:
        try:
            _postern.guest_failure(0)
        except Error as e:
            if e.code == NOT_FOUND:
                return
            yield as_jax_error(e)


def as_jax_error(error: Error) -> BaseException:
    """The same error as one that `except JaxRuntimeError` finds too."""
    made = _made(type(error), error.code, str(error))
    made.__cause__ = error.__cause__
    return made


def _made(kind: typing.Any, code: int, text: str) -> BaseException:
    made: typing.Any = RuntimeError.__new__(_both(kind), text)
    made.code = code
    return typing.cast(BaseException, made)


@functools.cache
def _both(kind: type[Error]) -> typing.Any:
    members = {
        "__module__": kind.__module__,
        "__str__": Exception.__str__,
        "__init__": lambda *_: None,  # JAX would initialise what it gets
        # Pickle finds no class by this name.
        "__reduce__": lambda self: (_made, (kind, self.code, str(self)), self.__dict__),
    }
    return type(kind.__name__, (kind, JaxRuntimeError), members)


JaxRuntimeError.__new__ = _raised
_compat.for_jitted(lambda jitted: _postern.tell_failures(jitted, _told_by))
