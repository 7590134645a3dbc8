"""Errors: pn_code as exceptions."""

from __future__ import annotations

import typing

NOT_FOUND, FAILED_PRECONDITION, THREW, TIMEOUT, EMPTY = 5, 9, 100, 102, 200


class Error(Exception):
    """What the library refused or could not do. `code` is a pn_code of postern/c.h."""

    code: int

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

    # The usual one knows the text alone; multiprocessing sends errors so.
    def __reduce__(self) -> tuple[typing.Any, ...]:
        return type(self), (self.code, str(self)), self.__dict__


class CallbackError(Error):
    """A host function failed, returned something that does not fit, or is not there.
    A Python function's exception is its __cause__.
    """


class TimeoutError(CallbackError):
    """A time limit of a call or a run passed."""


def text_of(exception: BaseException) -> bytes:
    """What a run's error says of a Python exception, for C: a NUL would end it."""
    try:
        told = str(exception)
    except Exception as e:
        told = f"<its text could not be had: {type(e).__name__}>"
    return f"{type(exception).__name__}: {told}".encode(errors="replace").replace(b"\0", b"\\0")


def error(code: int, text: str, cause: BaseException | None = None) -> Error:
    """The exception for a failed call of the library."""
    kind = TimeoutError if code == TIMEOUT else CallbackError if THREW <= code < EMPTY else Error
    made = kind(code, text)
    made.__cause__ = cause
    return made
