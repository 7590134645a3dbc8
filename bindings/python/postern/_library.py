"""libpostern.so and what of postern/c.h the package uses."""

import contextlib
import ctypes
import ctypes.util
import itertools
import os
import pathlib
import time
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p

from . import _errors

VERSION = 3  # of postern/c.h


class Array(Structure):
    _fields_ = [("dtype", c_int32), ("rank", c_int32), ("dims", POINTER(c_int64)), ("data", c_void_p), ("bytes", c_size_t)]


class Firing(Structure):
    _fields_ = [("function", c_char_p), ("site", c_char_p), ("attributes", c_char_p), ("device", c_int32), ("run", c_uint64),
                ("element", c_int64), ("operand_count", c_size_t), ("result_count", c_size_t), ("operands", POINTER(Array)),
                ("results", POINTER(Array))]


class Request(Structure):
    _fields_ = [("tag", c_uint64), ("firing", Firing)]


Function = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Firing))
Release = ctypes.CFUNCTYPE(None, c_void_p)

# Results and parameters. Handles are void pointers, their places pointers to one.
_handle, _place = c_void_p, POINTER(c_void_p)
_functions = {
    "pn_version": (c_int, []),
    "pn_last_error": (c_char_p, []),
    "pn_last_cause": (c_void_p, []),
    "pn_clear_error": (None, []),
    "pn_configure": (c_int, [c_int, c_char_p, c_char_p]),
    "pn_tensor_copy": (c_int, [POINTER(Array), _place]),
    "pn_tensor_borrow": (c_int, [POINTER(Array), Release, c_void_p, _place]),
    "pn_tensor_view": (c_int, [_handle, POINTER(Array)]),
    "pn_tensor_from_dlpack": (c_int, [c_void_p, _place]),
    "pn_tensor_to_dlpack": (c_int, [_handle, _place]),
    "pn_tensor_free": (None, [_handle]),
    "pn_load_file": (c_int, [c_char_p, _place]),
    "pn_load_text": (c_int, [c_char_p, c_size_t, _place]),
    "pn_program_free": (None, [_handle]),
    "pn_program_inputs": (c_size_t, [_handle]),
    "pn_program_outputs": (c_size_t, [_handle]),
    "pn_program_input": (c_char_p, [_handle, c_size_t]),
    "pn_program_output": (c_char_p, [_handle, c_size_t]),
    "pn_program_function": (c_char_p, [_handle, c_size_t]),
    "pn_run": (c_int, [_handle, _place, c_size_t, _place]),
    "pn_start": (c_int, [_handle, _place, c_size_t, _place]),
    "pn_started_wait": (c_int, [_handle, c_int64, _place]),
    "pn_started_cancel": (c_int, [_handle]),
    "pn_started_free": (None, [_handle]),
    "pn_barrier": (c_int, [c_int64]),
    "pn_fail": (None, [c_char_p]),
    "pn_fail_with": (None, [c_char_p, c_void_p, Release]),
    "pn_register": (c_int, [c_char_p, Function, c_void_p, Release, c_int]),
    "pn_unregister": (c_int, [c_char_p]),
    "pn_bridge_create": (c_int, [_place]),
    "pn_bridge_serve": (c_int, [_handle, c_char_p, c_int]),
    "pn_bridge_next": (c_int, [_handle, c_int64, POINTER(POINTER(Request))]),
    "pn_bridge_reply": (c_int, [_handle, c_uint64, POINTER(Array), c_size_t]),
    "pn_bridge_fail_with": (c_int, [_handle, c_uint64, c_int, c_char_p, c_void_p, Release]),
    "pn_bridge_stopped": (c_int, [_handle, c_uint64]),
    "pn_bridge_descriptor": (c_int, [_handle]),
    "pn_bridge_close": (None, [_handle]),
    "pn_bridge_free": (None, [_handle]),
}


def _open():
    beside = pathlib.Path(__file__).with_name("libpostern.so")
    path = os.environ.get("POSTERN_LIBRARY") or (str(beside) if beside.exists() else ctypes.util.find_library("postern"))
    if not path:
        raise ImportError("postern: libpostern.so was not found: install it where the loader looks, or set POSTERN_LIBRARY to its path")
    try:
        opened = ctypes.CDLL(path)  # which lets go of the interpreter's lock during each call
        opened.pn_version.restype = c_int
        found = opened.pn_version()
    except (OSError, AttributeError) as e:
        raise ImportError(f"postern: {path} is no libpostern.so: {e}") from e
    if found < VERSION:
        raise ImportError(f"postern: {path} has version {found} of the C interface, this package needs {VERSION}")
    for name, (result, parameters) in _functions.items():
        entry = getattr(opened, name)
        entry.restype, entry.argtypes = result, parameters
    return opened


library = _open()


def check(code):
    """Raises what a code of the library stands for."""
    if code == _errors.OK:
        return
    text, number = library.pn_last_error().decode(errors="replace"), library.pn_last_cause()
    cause = _lent.get(number)
    library.pn_clear_error()  # which would keep the cause alive, and all that its traceback holds
    raise _errors.error(code, text, cause)


class Made(c_void_p):
    """A handle that the library gave: nothing else may be one, since it would be read as an address."""


def text(value):
    """A text or a path for C, which a NUL would cut short."""
    data = os.fspath(value)
    data = data.encode() if isinstance(data, str) else data
    if b"\0" in data:
        raise ValueError(f"a name or path cannot hold a null character, got {value!r}")
    return data


def made(entry, *arguments):
    """The handle that a function makes through its last parameter."""
    place = Made()
    check(entry(*arguments, ctypes.cast(ctypes.byref(place), _place)))
    return place


class Handle:
    """What the library holds for an object, and lets go of with it."""
    _free = None

    def __init__(self, handle):
        if not isinstance(handle, Made):
            raise TypeError(f"a {type(self).__name__} is made by the functions of postern, not from {type(handle).__name__}")
        self._handle = handle

    def __del__(self):
        if getattr(self, "_handle", None):
            self._free(self._handle)

    # The library's object is freed once, so there is one Python object for it, which belongs to this process.
    def __copy__(self):
        return self

    def __deepcopy__(self, _):
        return self

    def __reduce__(self):
        raise TypeError(f"a {type(self).__name__} cannot be pickled: it belongs to its process; "
                        "load the program there, and send arrays")

    @property
    def handle(self):
        return self._handle


# What C uses, by number, until it says that it will not any more. No lock: what goes may let go of more.
_numbers = itertools.count(1)
_lent = {}


@Release
def _returned(number):
    _lent.pop(number, None)


@contextlib.contextmanager
def lent(thing):
    """Keeps `thing` until C calls the Release that this gives, with the number beside it. Not if the block raises."""
    number = next(_numbers)
    _lent[number] = thing
    try:
        yield _returned, number
    except BaseException:
        _returned(number)
        raise


_longest = 2**63 - 1


def nanoseconds(seconds):
    """A limit as C takes it: -1 for none, which infinity and what C cannot count mean too."""
    if seconds is None or seconds * 1e9 > _longest:
        return -1
    return max(0, int(seconds * 1e9))


def waited(wait, timeout):
    """What `wait(nanoseconds)` gives within so many seconds, asked for little by little: Python sees signals such as
    Ctrl-C only when C returns."""
    limit = nanoseconds(timeout)
    end = None if limit < 0 else time.monotonic_ns() + limit
    while True:
        left = 100_000_000 if end is None else max(0, min(100_000_000, end - time.monotonic_ns()))
        code = wait(left)
        if code != _errors.EMPTY or end is not None and time.monotonic_ns() >= end:
            return code


def version():
    """The version of the C interface that the library has."""
    return library.pn_version()


def configure(cpu_devices=0, plugin="", cache_dir=""):
    """Before anything runs: how many CPU devices, a plug-in's path, a folder for compiled programs. 0 and "" keep the defaults."""
    check(library.pn_configure(cpu_devices, text(plugin), text(cache_dir)))
