"""What a custom call names: functions of this process, by names that are theirs."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import math
import types
import typing
import uuid
import weakref
import zlib

import numpy as np

from .. import _functions, _postern
from .._attributes import with_info
from . import _compat


@dataclasses.dataclass(frozen=True)
class Info:
    """What a function of `with_info` is told of the firing."""

    function: str
    site: str
    device: int  # its local_hardware_id, as one of the program's platform
    run: int  # XLA's number of the execution
    element: int  # of the batch, where vmap fires for each; else -1
    part: dict[str, int]  # in shard_map: where on the mesh, by axis
    transforms: tuple[str, ...]  # of a tap that shows derivatives: "jvp", "transpose"


class Function:
    """A host function, as a custom call names it."""

    #: Told of the mesh by the library; the others by operands, if they want.
    placed = False

    def name_for(self, for_export: bool) -> str:
        raise NotImplementedError

    def on_mesh(self, axes: tuple[str, ...]) -> Function:
        """The one that is told its place on a mesh of these axes by the library."""
        return self

    def derived(self, transforms: tuple[str, ...], given: list[bool]) -> Function:
        """The one that shows derivatives of what this one shows; of some leaves."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Named(Function):
    """One that somebody has registered, or will have."""

    name: str
    placed = True

    def name_for(self, for_export: bool) -> str:
        return self.name

    def derived(self, transforms: tuple[str, ...], given: list[bool]) -> Function:
        return self


_counts: dict[str, typing.Iterator[int]] = {}


class Registered(Function):
    """One under a name of its own, from when a program that calls it is lowered, until JAX has
    let go of the program: a program that is loaded holds its functions itself.

    The name is that of the function's place in the source and counts those of one place, so that a
    process that traces the same program finds what JAX's cache kept of another one:
    a program calls by that name what this process has registered there.
    """

    def __init__(self, function: typing.Any, name: str, of: typing.Any = None, info: bool = False):
        self._function, self._info = function, info
        self._called = name
        self._base = f"{name}#{_place_of(of):08x}"
        self._names: dict[bool, str] = {}  # by whether it is for export

    def name_for(self, for_export: bool) -> str:
        """Artifacts have a name that no other process has:
        there is no telling what these meet where they are loaded.
        """
        if for_export not in self._names:
            count = next(_counts.setdefault(self._base, itertools.count()))
            name = f"{self._base}.{count}" + (f"#{uuid.uuid4().hex}" if for_export else "")
            _postern.register(name, self._function, False, self._info)
            if self._names.setdefault(for_export, name) is not name:  # another thread came first
                _functions.unregister(name)
        return self._names[for_export]

    def derived(self, transforms: tuple[str, ...], given: list[bool]) -> Function:
        return self

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError(
            f"postern.jax: the program calls '{self._called}', which this process alone knows: "
            "to serialize it, postern.register the function and call it by its name"
        )

    def __del__(self) -> None:
        try:
            for name in self._names.values():
                _functions.unregister(name)
        except Exception:  # the interpreter ends
            pass


@functools.lru_cache(maxsize=1024)
def _hash_of(module: str, qualname: str, file: str, line: int) -> int:
    return zlib.crc32(f"{module}:{qualname}:{file}:{line}".encode())


def _place_of(function: typing.Any) -> int:
    code = getattr(function, "__code__", None)
    return _hash_of(
        str(getattr(function, "__module__", "")),
        str(getattr(function, "__qualname__", "")),
        getattr(code, "co_filename", ""),
        getattr(code, "co_firstlineno", 0),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Entered:
    """How the library enters a Python function: `enter(*leaves)` with copies of the operands,
    and `info=` if it is to be told.
    `finish` makes a tuple of leaves of what it returned;
    where that is one `leaf`, arrays need none. `narrow`: JAX has no types of 64 bits.
    """

    enter: typing.Callable[..., typing.Any]
    finish: typing.Callable[[typing.Any], tuple[typing.Any, ...]] | None = None
    leaf: bool = False
    info: bool = False
    axes: tuple[str, ...] = ()  # of which operands tell
    mesh: tuple[str, ...] = ()  # of which the library tells
    transforms: tuple[str, ...] = ()
    given: tuple[bool, ...] | None = None
    narrow: bool = False

    @property
    def entered(self) -> typing.Callable[..., typing.Any]:
        return self._told if self.info else self.enter if self.given is None else self._filled

    def _told(self, *arrays: typing.Any, info: typing.Any) -> typing.Any:
        count = len(arrays) - len(self.axes)
        part = {axis: int(np.ravel(a)[0]) for axis, a in zip(self.axes, arrays[count:])}
        part.update(zip(self.mesh, info.coordinates))
        run = info.run % 2**48  # above that it says that the run is none of Postern's own
        told = Info(
            info.function, info.site, info.device, run, info.element, part, self.transforms
        )
        return self._filled(*arrays[:count], info=told)

    def _filled(self, *leaves: typing.Any, **info: Info) -> typing.Any:
        """Those that are not given are nothing."""
        shown = iter(leaves)
        given = (True,) * len(leaves) if self.given is None else self.given
        return self.enter(*(next(shown) if g else np.zeros((), np.bool_) for g in given), **info)


# Those of C, such as list.append, which Python compares by their function and their very object.
_BOUND_IN_C = (types.BuiltinMethodType, types.MethodWrapperType)


class Same:
    """A key that is equal for one object alone, however it compares itself."""

    def __init__(self, of: typing.Any) -> None:
        # A method, and with_info of one, are made anew whenever they are asked for.
        inner = of.function if isinstance(of, with_info) else of
        if isinstance(inner, types.MethodType):
            self._of: tuple[typing.Any, ...] = (inner.__self__, inner.__func__)
        else:
            self._of = (inner,)
        if inner is not of:
            self._of = (with_info, *self._of)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Same)
            and len(self._of) == len(other._of)
            and all(
                a is b or (isinstance(a, _BOUND_IN_C) and type(a) is type(b) and a == b)
                for a, b in zip(self._of, other._of)
            )
        )

    def __hash__(self) -> int:
        return hash(tuple(hash(a) if isinstance(a, _BOUND_IN_C) else id(a) for a in self._of))


class Native(Registered):
    """A capsule, or a listener: one for each, so that a program of it is compiled once."""

    placed = True


_natives: weakref.WeakValueDictionary[tuple[Same, str], Native] = weakref.WeakValueDictionary()


_OF_32_BITS = {
    np.dtype(a): np.dtype(b) for a, b in zip(("f8", "c16", "i8", "u8"), ("f4", "c8", "i4", "u4"))
}


def _narrow(array: typing.Any, dtype: typing.Any) -> typing.Any:
    """NumPy's types of 64 bits as JAX takes them where it has none."""
    if _OF_32_BITS.get(array.dtype) != dtype:
        return array
    made = array.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(made, array):
        raise OverflowError(f"the function returned {array.dtype} that does not fit into {dtype}")
    return made


class Python(Registered):
    """A Python function."""

    def __init__(self, entered: Entered, name: str, of: typing.Any) -> None:
        fit = _narrow if entered.narrow else None
        entry = _postern.Entry(entered.entered, entered.finish, entered.leaf, fit)
        super().__init__(entry, name, of, entered.info)
        self.entered, self._told, self._of = entered, name, of

    def on_mesh(self, axes: tuple[str, ...]) -> Function:
        made = Python(dataclasses.replace(self.entered, mesh=axes), self._told, self._of)
        made.placed = True
        return made

    def derived(self, transforms: tuple[str, ...], given: list[bool]) -> Function:
        if self.entered.given is not None:  # of those that are left
            left = iter(given)
            given = [g and next(left) for g in self.entered.given]
        entered = dataclasses.replace(self.entered, transforms=transforms, given=tuple(given))
        return Python(entered, self._told, self._of)

    def late(self, site: typing.Any) -> Late:
        """Returns what stands for it where it is entered as the site of a call outside of jit."""
        on_device = site.partitioned and site.every != 1
        return late[self.entered.info or on_device, self.entered.narrow]

    def counted(self, every: int, place: typing.Any, on_device: bool) -> Entered:
        """As outside of jit a tap at a place shows each so many firings, `on_device`: of those of
        each device.
        """
        firings, entered = _firings(Same(self._of), every, place), self.entered

        def enter(*leaves: typing.Any, info: typing.Any = None) -> typing.Any:
            if next(firings[info.device if on_device else None]) % every:
                return None
            return entered.enter(*leaves, **({"info": info} if entered.info else {}))

        return dataclasses.replace(entered, enter=enter, info=entered.info or on_device)


@_compat.cache(256)
def _firings(of: Same, every: int, place: typing.Any) -> typing.Any:
    return collections.defaultdict(itertools.count)


class Late(Registered):
    """Stands for any Python function in a program of a call outside of jit, so that one program is
    for all: a last operand says which it is.
    """

    def __init__(self, info: bool, narrow: bool) -> None:
        fit = _narrow if narrow else None
        super().__init__(_postern.Entry(self._enter, None, False, fit), "late", None, info)
        self._waiting: dict[int, tuple[Entered, int]] = {}  # and how often it is yet to be entered
        self._numbers = itertools.count()

    def on_mesh(self, axes: tuple[str, ...]) -> Function:
        self.placed = True
        return self

    def expect(self, function: Python, site: typing.Any, devices: int) -> np.uint32:
        entered, firings = function.entered, math.prod(size for size, _ in site.levels)
        if site.partitioned:
            firings *= devices
        if site.every != 1:
            place = site.file, site.line, site.transforms
            entered = function.counted(site.every, place, site.partitioned)
        number = np.uint32(next(self._numbers) % 2**32)
        if firings:
            self._waiting[int(number)] = entered, firings
        return number

    def forget(self, number: np.uint32) -> None:
        self._waiting.pop(int(number), None)

    def _enter(self, *arrays: typing.Any, **info: typing.Any) -> typing.Any:
        number = int(np.ravel(arrays[-1])[0])
        entered, left = self._waiting[number]
        if left > 1:
            self._waiting[number] = entered, left - 1
        else:
            del self._waiting[number]
        made = entered.entered(*arrays[:-1], **info)
        if entered.finish is None or entered.leaf and isinstance(made, (np.ndarray, np.generic)):
            return made
        return entered.finish(made)


# By whether functions are told of the firing, and whether JAX has no types of 64 bits.
late = {key: Late(*key) for key in itertools.product((False, True), repeat=2)}


def function_of(fn: typing.Any, entered: Entered, name: str) -> Function:
    """For what a user gives: a name, a capsule, a listener, or a callable that is `entered`."""
    if isinstance(fn, str):
        return Named(fn)
    if _functions.is_native(fn):
        made = Native(fn, name)
        return _natives.setdefault((Same(fn), name), made)
    return Python(dataclasses.replace(entered, info=isinstance(fn, with_info)), name, fn)


def is_native(fn: typing.Any) -> bool:
    """Whether it takes the leaves as they are, rather than pytrees."""
    return isinstance(fn, str) or _functions.is_native(fn)
