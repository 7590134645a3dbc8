"""Python functions as host functions: entered on the run's own thread, or served through a bridge."""

import ctypes
import dataclasses
import functools
import inspect
import json

import numpy as np

from . import _errors, _library, _tensors
from ._library import library


@dataclasses.dataclass(frozen=True)
class Info:
    """What a function that has a parameter `info` is told of the firing."""
    function: str  # the registered name
    site: str  # the call's or tap's own name
    device: int
    run: int
    element: int  # of the batch, where vmap fires for each; else -1


def _value(entry):
    (kind, value), = entry.items()
    if "double" in kind:
        return [float(v) for v in value] if isinstance(value, list) else float(value)
    return value


@functools.lru_cache(256)
def _parsed(text):
    return {name: _value(entry) for name, entry in json.loads(text).items()}


def _attributes(firing):
    return dict(_parsed(firing.attributes))


def _info(firing):
    return Info(firing.function.decode(), firing.site.decode(), firing.device, firing.run, firing.element)


def _operands(firing):
    return [_tensors.seen(firing.operands[i]) for i in range(firing.operand_count)]


class _BadResult(Exception):
    pass


def _results(firing, returned):
    """Checks what a function returned, then writes it where the program reads it."""
    count = firing.result_count
    if count == 0:
        return
    values = returned if count > 1 or isinstance(returned, (tuple, list)) and len(returned) == 1 else (returned,)
    if not isinstance(values, (tuple, list)) or len(values) != count:
        raise _BadResult(f"the function must return {count} results, it returned {type(returned).__name__}")
    checked = []
    for i, value in enumerate(values):
        place = _tensors.seen(firing.results[i], writable=True)
        array = np.asarray(value)
        if isinstance(value, (bool, int, float, complex)) and place.shape == ():
            array = np.asarray(value, place.dtype)  # a Python number has no dtype of its own
        if array.dtype != place.dtype or array.shape != place.shape:
            raise _BadResult(f"result {i} must be {place.dtype}{list(place.shape)}, the function returned {array.dtype}{list(array.shape)}")
        checked.append((place, array))
    for place, array in checked:
        np.copyto(place, array)


def _entered(function):
    """The function as C calls it."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # such as NumPy's own
        parameters = {}
    wants_info = "info" in parameters and parameters["info"].kind is not inspect.Parameter.POSITIONAL_ONLY

    def enter(_, pointer):
        try:
            firing = pointer.contents
            named = _attributes(firing)
            if wants_info:
                named["info"] = _info(firing)
            # The views die with the firing: a function that keeps an operand copies it.
            _results(firing, function(*_operands(firing), **named))
            return _errors.OK
        except _BadResult as e:
            library.pn_fail(str(e).encode(errors="replace").replace(b"\0", b"\\0"))
            return _errors.BAD_RESULT
        except BaseException as e:  # nothing may leave into C
            with _library.lent(e) as (release, number):
                library.pn_fail_with(_errors.text_of(e), number, release)
            return _errors.THREW

    return _library.Function(enter)


def register(name, function, replace=False):
    """Registers a Python function for programs that call `name`. It gets the operands as read-only NumPy arrays, the call's attributes by
    keyword, and an `Info` if it has a parameter `info`; it returns an array of the declared dtype and shape (a Python number for rank 0),
    or a tuple of them; a tap's function returns nothing. Its exceptions end the run. Raises Error when the name is taken, unless `replace`.
    """
    entry = _entered(function)
    with _library.lent(entry) as (release, number):
        _library.check(library.pn_register(_library.text(name), entry, number, release, int(replace)))


def unregister(name):
    """Takes the function away from programs that start later. Raises Error when there is none of that name."""
    _library.check(library.pn_unregister(_library.text(name)))


def function(name, replace=False):
    """`register` as a decorator."""

    def decorate(f):
        register(name, f, replace)
        return f

    return decorate


class Request:
    """A firing that waits for an answer; its arrays live until it is answered."""

    def __init__(self, bridge, pointer):
        self._bridge, self._firing = bridge, pointer.contents.firing
        self.tag = pointer.contents.tag
        self.info, self.attributes, self.operands = _info(self._firing), _attributes(self._firing), _operands(self._firing)

    def reply(self, *results):
        """Answers with arrays, which are copied. Raises Error (BAD_RESULT) when they do not fit; the request is then still open."""
        described = [_tensors.Described(r) for r in results]
        arrays = (_library.Array * len(described))(*[d.struct for d in described])
        _library.check(library.pn_bridge_reply(self._bridge.handle, self.tag, arrays, len(described)))

    def fail(self, exception):
        """Answers with a failure: the run ends with this exception as the cause."""
        with _library.lent(exception) as (release, number):
            _library.check(library.pn_bridge_fail_with(self._bridge.handle, self.tag, _errors.THREW,
                                                       _errors.text_of(exception), number, release))

    @property
    def stopped(self):
        """Whether nobody waits for the answer any more."""
        return library.pn_bridge_stopped(self._bridge.handle, self.tag) != 0


class Bridge(_library.Handle):
    """Serves names on threads of the caller's choice: `serve` them, then answer what `next` gives. fileno() is readable while requests wait,
    so that a bridge can be given to select and to event loops."""
    _free = library.pn_bridge_free

    def __init__(self):
        super().__init__(_library.made(library.pn_bridge_create))

    def serve(self, name, replace=False):
        _library.check(library.pn_bridge_serve(self._handle, _library.text(name), int(replace)))

    def next(self, timeout=None):
        """The oldest request that nobody has taken, or None when none came within `timeout` seconds. Raises CallbackError once closed."""
        pointer = ctypes.POINTER(_library.Request)()
        code = _library.waited(lambda ns: library.pn_bridge_next(self._handle, ns, ctypes.byref(pointer)), timeout)
        if code == _errors.EMPTY:
            return None
        _library.check(code)
        return Request(self, pointer)

    def fileno(self):
        return library.pn_bridge_descriptor(self._handle)

    def close(self):
        """Fails what waits and what comes later."""
        library.pn_bridge_close(self._handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
