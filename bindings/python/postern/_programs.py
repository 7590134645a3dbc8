"""Programs, runs, and the wait for all of them."""

import atexit
import ctypes
import os
import sys
import threading

from . import _errors, _library, _tensors
from ._library import library


def _list(entry, handle):
    out = []
    while (text := entry(handle, len(out))) is not None:
        out.append(text.decode())
    return out


class _Arguments:
    """Tensors as C takes them; a tensor lives until its run has been queued."""

    def __init__(self, values):
        self.tensors = [_tensors.tensor(v) for v in values]
        self.handles = (ctypes.c_void_p * len(self.tensors))(*[t.handle.value for t in self.tensors])


class _Results:
    """Places for results, of one call of the library alone."""

    def __init__(self, program):
        self.places = (ctypes.c_void_p * len(program.outputs))()

    def taken(self):
        return [_tensors.Tensor(_library.Made(place)) for place in self.places]


class Run(_library.Handle):
    """A run under way."""
    _free = library.pn_started_free

    def __init__(self, program, arguments):
        if not isinstance(program, Program):
            raise TypeError(f"a Run is made by Program.start, not from {type(program).__name__}")
        super().__init__(_library.made(library.pn_start, program.handle, arguments.handles, len(arguments.tensors)))
        self._program, self._results, self._guard = program, None, threading.Lock()

    def wait(self, timeout=None):
        """Whether the run has ended within so many seconds. Raises how it failed. Any number of threads may wait."""
        if self._results is not None:
            return True
        places = _Results(self._program)
        code = _library.waited(lambda ns: library.pn_started_wait(self._handle, ns, places.places), timeout)
        if code == _errors.EMPTY:
            return False
        _library.check(code)
        tensors = places.taken()
        with self._guard:  # all who wait get the same arrays
            if self._results is None:
                self._results = [t.numpy() for t in tensors]
        return True

    def result(self, timeout=None):
        """The results, when they are there. Raises TimeoutError when they are not in time; the run goes on."""
        if not self.wait(timeout):
            raise _errors.TimeoutError(_errors.TIMEOUT, f"the run has not ended within {timeout} s")
        return self._results

    def cancel(self):
        _library.check(library.pn_started_cancel(self._handle))


class Program(_library.Handle):
    """A loaded program. `inputs` and `outputs` are types such as "f32[2,3]", `functions` the names that it calls."""
    _free = library.pn_program_free

    def __init__(self, handle):
        super().__init__(handle)
        self.inputs = _list(library.pn_program_input, handle)
        self.outputs = _list(library.pn_program_output, handle)
        self.functions = _list(library.pn_program_function, handle)

    def __call__(self, *arguments):
        """Runs, waits, and gives the results as a list of read-only arrays over the library's memory."""
        # The main thread alone sees Ctrl-C, and only between calls of C. What calls nothing ends by itself, sooner so.
        if self.functions and threading.current_thread() is threading.main_thread():
            run = self.start(*arguments)
            try:
                return run.result()
            except KeyboardInterrupt:
                run.cancel()
                raise
        held, results = _Arguments(arguments), _Results(self)
        _library.check(library.pn_run(self._handle, held.handles, len(held.tensors), results.places))
        return [t.numpy() for t in results.taken()]

    def start(self, *arguments):
        """Starts a run on a thread of the library."""
        return Run(self, _Arguments(arguments))

    def __repr__(self):
        return f"Program(({', '.join(self.inputs)}) -> ({', '.join(self.outputs)}), calls {self.functions})"


def load(path):
    """The program in a file: of Postern, StableHLO text, an artifact of jax.export. Raises Error when it is not there, damaged, or none."""
    return Program(_library.made(library.pn_load_file, _library.text(path)))


def load_text(text):
    """The same from text, or from the bytes of a file."""
    data = text.encode() if isinstance(text, str) else bytes(memoryview(text))
    return Program(_library.made(library.pn_load_text, data, len(data)))


def barrier(timeout=None):
    """Waits for everything that was started before; False when the limit passes first. Raises a failure that nobody has seen yet."""
    limit = _library.nanoseconds(timeout)
    code = library.pn_barrier(0)
    if code == _errors.EMPTY and limit != 0:
        if threading.current_thread() is threading.main_thread():
            return _barrier_aside(limit)
        code = library.pn_barrier(limit)
    if code == _errors.EMPTY:
        return False
    _library.check(code)
    return True


def _barrier_aside(limit):
    """On a thread of its own: a wait in Python, unlike one in C, is ended by Ctrl-C. (Many short barriers would each wait
    for what was started since the last.)"""
    ended, outcome = threading.Event(), []

    def wait():
        try:
            code = library.pn_barrier(limit)
            if code != _errors.EMPTY:
                _library.check(code)
            outcome.append(code != _errors.EMPTY)
        except Exception as e:
            outcome.append(e)
        ended.set()

    threading.Thread(target=wait, daemon=True, name="postern.barrier").start()
    ended.wait()
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


_forked = False


def _note_fork():
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_note_fork)


@atexit.register
def _drain():
    # Functions cannot be entered once the interpreter is gone, nor their exceptions be shown.
    try:
        if not barrier(10):
            print("postern: the process ends with runs or taps that have not ended after 10 s", file=sys.stderr)
    except _errors.Error as e:
        if _forked and e.code == _errors.FAILED_PRECONDITION:  # what is under way is the other process's
            return
        print(f"postern: a failure that nobody waited for: {e}", file=sys.stderr)
