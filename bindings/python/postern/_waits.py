"""The wait for all that is under way, and the interpreter's end."""

from __future__ import annotations

import atexit
import os
import sys
import threading

from . import _errors, _postern


def barrier(timeout: float | None = None) -> bool:
    """Waits for everything that was started before; False when the limit passes first.
    Raises a failure that nobody has seen yet.
    """
    limit = _postern.nanoseconds(timeout)
    if not (_postern.barrier(0) or limit != 0 and _waited(limit)):
        return False
    _raise_missed()
    return True


def _waited(limit: int) -> bool:
    return (
        _barrier_aside(limit)
        if threading.current_thread() is threading.main_thread()
        else _postern.barrier(limit)
    )


def _barrier_aside(limit: int) -> bool:
    """On a thread of its own: a wait in Python, unlike one in C, is ended by Ctrl-C.
    (Many short barriers would each wait for what was started since the last.)
    """
    wait, aside = _Wait(limit), True
    try:
        try:
            wait.start()
        except RuntimeError:  # the interpreter ends: since Python 3.12 nobody starts a thread then
            aside = False
        if aside:
            wait.ended.wait()
            return wait.told()
    except BaseException as e:
        if e is not wait.outcome:  # but what a signal's handler raises
            _missed.append(wait)
        raise
    return _postern.barrier(limit)


class _Wait(threading.Thread):
    def __init__(self, limit: int) -> None:
        super().__init__(daemon=True, name="postern.barrier")
        self.limit = limit
        self.begun = False
        self.ended = threading.Event()
        self.outcome: bool | Exception = False

    def run(self) -> None:
        self.begun = True
        try:
            self.outcome = _postern.barrier(self.limit)
        except Exception as e:
            self.outcome = e
        self.ended.set()

    def told(self) -> bool:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


_missed: list[_Wait] = []  # those that Ctrl-C took the waiter from


def _raise_missed() -> None:
    """The failures that these have seen. What they wait for has ended."""
    begun = [wait for wait in _missed if wait.begun]  # Ctrl-C may have come before a thread did
    for wait in begun:
        wait.ended.wait()
        try:
            if _taken(wait):
                wait.told()
        except BaseException as e:
            if e is not wait.outcome and wait not in _missed:  # Ctrl-C again
                _missed.append(wait)
            raise


def _taken(wait: _Wait) -> bool:
    """Whether it is this thread's barrier that tells it."""
    try:
        _missed.remove(wait)
    except ValueError:
        return False
    return True


_forked = False


def _note_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_note_fork)


@atexit.register
def _drain() -> None:
    # Functions cannot be entered once the interpreter is gone, nor their exceptions be shown.
    limit = 10.0
    try:
        if not barrier(limit):
            limit = 1.0
            print(
                "postern: the process ends with runs or taps that have not ended after 10 s",
                file=sys.stderr,
            )
    except _errors.Error as e:
        # What is under way in a process that was forked is the other process's.
        if not (_forked and e.code == _errors.FAILED_PRECONDITION):
            print(f"postern: a failure that nobody waited for: {e}", file=sys.stderr)
    finally:
        _postern.close_interpreter(limit)
