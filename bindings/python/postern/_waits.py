"""The wait for all that is under way, and the interpreter's end."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import typing

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
    ended = threading.Event()
    outcome: _Outcome = []

    def wait() -> None:
        try:
            outcome.append(_postern.barrier(limit))
        except Exception as e:
            outcome.append(e)
        ended.set()

    try:
        threading.Thread(target=wait, daemon=True, name="postern.barrier").start()
    except RuntimeError:  # the interpreter ends: since Python 3.12 nobody starts a thread then
        return _postern.barrier(limit)
    try:
        ended.wait()
    except BaseException:
        _missed.append((ended, outcome))
        raise
    return _told(outcome)


def _told(outcome: _Outcome) -> bool:
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


_Outcome = typing.List[typing.Union[bool, Exception]]
_missed: list[tuple[threading.Event, _Outcome]] = []  # waits that Ctrl-C took the waiter from


def _raise_missed() -> None:
    """The failures that these have seen. What they wait for has ended."""
    while _missed:
        ended, outcome = _missed.pop()
        ended.wait()
        _told(outcome)


_forked = False


def _note_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_note_fork)


@atexit.register
def _drain() -> None:
    # Functions cannot be entered once the interpreter is gone, nor their exceptions be shown.
    try:
        if not barrier(10):
            print(
                "postern: the process ends with runs or taps that have not ended after 10 s",
                file=sys.stderr,
            )
    except _errors.Error as e:
        # What is under way in a process that was forked is the other process's.
        if not (_forked and e.code == _errors.FAILED_PRECONDITION):
            print(f"postern: a failure that nobody waited for: {e}", file=sys.stderr)
    finally:
        _postern.close_interpreter()
