"""What a custom call names: functions of this process, by names that are theirs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import typing
import uuid
import weakref
import zlib

import numpy as np

from .. import _functions, _postern
from .._attributes import wants_info


@dataclasses.dataclass(frozen=True)
class Info:
    """What a function that has a parameter `info` is told of the firing."""

    function: str
    site: str
    device: int  # which of jax.local_devices()
    run: int  # XLA's number of the execution
    element: int  # of the batch, where vmap fires for each; else -1
    part: dict[str, int]  # in shard_map: where on the mesh, by axis
    transforms: tuple[str, ...]  # of a tap that shows derivatives: "jvp", "transpose"


class Function:
    """A host function, as a custom call names it."""

    #: Told of the mesh by the library; the others by operands, if they want.
    placed: typing.ClassVar[bool] = False

    def name_for(self, for_export: bool) -> str:
        raise NotImplementedError

    def derived(self, transforms: tuple[str, ...], given: list[bool]) -> Function:
        """The one that shows derivatives of what this one shows; of some leaves."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Named(Function):
    """One that somebody has registered, or will have."""

    name: str
    placed: typing.ClassVar[bool] = True

    def name_for(self, for_export: bool) -> str:
        return self.name

    def derived(self, transforms: tuple[str, ...], given: list[bool]) -> Function:
        return self


_counts: dict[str, typing.Iterator[int]] = {}


class Registered(Function):
    """One under a name of its own, as long as a program may call it.

    The name is that of the function's place in the source and counts those of one place, so that a
    process that traces the same program finds what JAX's cache kept of another one:
    a program calls by that name what this process has registered there.
    """

    def __init__(self, function: typing.Any, name: str, of: typing.Any = None) -> None:
        base = f"{name}#{_place_of(of):08x}"
        self.name = f"{base}.{next(_counts.setdefault(base, itertools.count()))}"
        self._exported: str | None = None
        self._function = function
        _functions.register(self.name, function)

    def name_for(self, for_export: bool) -> str:
        """Artifacts have a name that no other process has:
        there is no telling what these meet where they are loaded.
        """
        if not for_export:
            return self.name
        if self._exported is None:
            self._exported = f"{self.name}#{uuid.uuid4().hex}"
            _functions.register(self._exported, self._function)
        return self._exported

    def derived(self, transforms: tuple[str, ...], given: list[bool]) -> Function:
        return self

    def __del__(self) -> None:
        try:
            _functions.unregister(self.name)
            if self._exported is not None:
                _functions.unregister(self._exported)
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


_T = typing.TypeVar("_T")


class Living(typing.Generic[_T]):
    """The same for the same key, as long as somebody has it:
    what is traced again is not compiled again.
    A key with what can't be hashed or compared, as a user's function may be, has nothing.
    """

    def __init__(self) -> None:
        self._of: weakref.WeakValueDictionary[typing.Any, _T] = weakref.WeakValueDictionary()

    def get(self, key: typing.Any) -> _T | None:
        try:
            return self._of.get(key)
        except Exception:
            return None

    def keep(self, key: typing.Any, made: _T) -> None:
        with contextlib.suppress(Exception):
            self._of[key] = made

    def made(self, key: typing.Any, make: typing.Callable[[], _T]) -> _T:
        found = self.get(key)
        if found is None:
            found = make()
            self.keep(key, found)
        return found


_alive = Living[Registered]()
registered = _alive.made


@dataclasses.dataclass(frozen=True, eq=False)
class Entered:
    """How the library enters a Python function: `enter(*leaves)` with copies of the operands,
    and `info=` if it is to be told.
    `finish` makes a tuple of leaves of what it returned;
    where that is one `leaf`, arrays need none.
    It knows nothing of the Registered that it is for, which would never go.
    """

    enter: typing.Callable[..., typing.Any]
    finish: typing.Callable[[typing.Any], tuple[typing.Any, ...]] | None = None
    leaf: bool = False
    info: bool = False
    axes: tuple[str, ...] = ()
    transforms: tuple[str, ...] = ()
    given: tuple[bool, ...] | None = None

    def entry(self) -> _postern.Entry:
        enter = self._told if self.info else self.enter if self.given is None else self._filled
        return _postern.Entry(enter, self.finish, self.leaf)

    def _told(self, *arrays: typing.Any, info: typing.Any) -> typing.Any:
        count = len(arrays) - len(self.axes)
        part = {axis: int(np.ravel(a)[0]) for axis, a in zip(self.axes, arrays[count:])}
        told = Info(
            info.function, info.site, info.device, info.run, info.element, part, self.transforms
        )
        return self._filled(*arrays[:count], info=told)

    def _filled(self, *leaves: typing.Any, **info: Info) -> typing.Any:
        """Those that are not given are nothing."""
        shown = iter(leaves)
        given = (True,) * len(leaves) if self.given is None else self.given
        return self.enter(*(next(shown) if g else np.zeros((), np.bool_) for g in given), **info)


class Native(Registered):
    """A capsule, or a listener."""

    placed: typing.ClassVar[bool] = True


class Python(Registered):
    """A Python function."""

    def __init__(self, entered: Entered, name: str, of: typing.Any) -> None:
        super().__init__(entered.entry(), name, of)
        self._entered, self._told, self._of = entered, name, of

    def derived(self, transforms: tuple[str, ...], given: list[bool]) -> Function:
        if self._entered.given is not None:  # of those that are left
            left = iter(given)
            given = [g and next(left) for g in self._entered.given]
        entered = dataclasses.replace(self._entered, transforms=transforms, given=tuple(given))
        return registered(
            (self, transforms, entered.given), lambda: Python(entered, self._told, self._of)
        )


def function_of(fn: typing.Any, entered: Entered, name: str, trees: typing.Any) -> Function:
    """For what a user gives: a name, a capsule, a listener, or a callable that is `entered`.
    `trees`: what for.
    """
    if isinstance(fn, str):
        return Named(fn)
    if _functions.is_native(fn):
        return registered((Same(fn), name), lambda: Native(fn, name))
    entered = dataclasses.replace(entered, info=wants_info(fn))
    return registered((fn, name, trees, entered.axes), lambda: Python(entered, name, fn))


class Same:
    """A key for what has no hash of its own."""

    def __init__(self, of: typing.Any) -> None:
        self._of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self._of is other._of

    def __hash__(self) -> int:
        return id(self._of)


def is_native(fn: typing.Any) -> bool:
    """Whether it takes the leaves as they are, rather than pytrees."""
    return isinstance(fn, str) or _functions.is_native(fn)
