"""Errors: pn_code as exceptions, and Python's own exceptions on their way through a run."""

import collections
import itertools
import re
import threading

OK, INVALID_ARGUMENT, THREW, BAD_RESULT, TIMEOUT, EMPTY = 0, 3, 100, 101, 102, 200


class Error(Exception):
    """What the library refused or could not do. `code` is a pn_code of postern/c.h."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code

    def __reduce__(self):  # the usual one knows the text alone; multiprocessing sends errors so
        return type(self), (self.code, str(self)), self.__dict__


class CallbackError(Error):
    """A host function failed, returned something that does not fit, or is not there. A Python function's exception is its __cause__."""


class TimeoutError(CallbackError):
    """A time limit of a call or a run passed."""


# Exceptions that wait to be raised from the run's error. A run that nobody waits for never asks for its own, so only the last are kept.
_guard = threading.Lock()
_numbers = itertools.count(1)
_raised = collections.OrderedDict()
_mark = re.compile(r" \[python exception (\d+)\]")


def remember(exception):
    """The text that stands for the exception while it is the library's."""
    with _guard:
        number = next(_numbers)
        _raised[number] = exception
        while len(_raised) > 256:
            _raised.popitem(last=False)
    return f"{type(exception).__name__}: {exception} [python exception {number}]"


def error(code, text):
    """The exception for a failed call of the library."""
    marks = [int(n) for n in _mark.findall(text)]
    with _guard:
        causes = [_raised.pop(n) for n in marks if n in _raised]
    kind = TimeoutError if code == TIMEOUT else CallbackError if THREW <= code < EMPTY else Error
    made = kind(code, _mark.sub("", text))
    if causes:
        made.__cause__ = causes[0]
    return made
