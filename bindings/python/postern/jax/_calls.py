"""The primitive: a custom call of the library's, which enters a host function."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import sys
import typing
import uuid
import weakref
import zlib

import jax
import numpy as np

from .. import _functions, _postern
from . import _compat

_TARGET = "postern_guest"
_HERE = os.path.dirname(os.path.abspath(__file__))


@functools.cache
def _register_handler() -> None:
    jax.local_devices(backend="cpu")  # XLA refuses a handler that comes before the backend
    jax.ffi.register_ffi_target(_TARGET, {"execute": _postern.guest_handler()}, platform="cpu")


_counts: dict[str, typing.Iterator[int]] = {}


class Registered:
    """A Python function under a name of its own, as long as a program may call it.

    The name is that of the function's place in the source and counts those of one place, so that a process that traces the same program
    finds what JAX's cache kept of another one: a program calls by that name what this process has registered there.
    """

    def __init__(self, function: typing.Callable[..., typing.Any], name: str, of: typing.Any = None) -> None:
        code = getattr(of, "__code__", None)
        place = f"{getattr(of, '__module__', '')}:{getattr(of, '__qualname__', '')}"
        if code is not None:
            place += f":{code.co_filename}:{code.co_firstlineno}"
        base = f"{name}#{zlib.crc32(place.encode()):08x}"
        self.name = f"{base}.{next(_counts.setdefault(base, itertools.count()))}"
        self._exported: str | None = None
        self._function = function
        _functions.register(self.name, function)

    @property
    def exported(self) -> str:
        """A name that no other process has, for artifacts: there is no telling what these meet where they are loaded."""
        if self._exported is None:
            self._exported = f"{self.name}#{uuid.uuid4().hex}"
            _functions.register(self._exported, self._function)
        return self._exported

    def __del__(self) -> None:
        try:
            _functions.unregister(self.name)
            if self._exported is not None:
                _functions.unregister(self._exported)
        except Exception:  # the interpreter ends
            pass


_alive: weakref.WeakValueDictionary[typing.Any, Registered] = weakref.WeakValueDictionary()


def registered(key: typing.Any, function: typing.Callable[..., typing.Any], name: str, of: typing.Any) -> Registered:
    """The same for the same key, as long as one lives: what is traced again is not compiled again. `of` is the user's function."""
    try:
        found = _alive.get(key)
    except Exception:  # a function, or something in its trees, that can't be hashed or compared
        return Registered(function, name, of)
    if found is None:
        found = _alive[key] = Registered(function, name, of)
    return found


def caller() -> tuple[str, int]:
    """Where in the user's source this package was entered."""
    frame: typing.Any = sys._getframe(1)
    while frame.f_back is not None and os.path.dirname(os.path.abspath(frame.f_code.co_filename)) == _HERE:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


@dataclasses.dataclass(frozen=True)
class Site:
    """What a custom call says of itself; `function` is a Registered, or the name of a registered function."""

    function: Registered | str
    name: str
    file: str
    line: int
    kind: str = "call"
    timeout: int = 0
    every: int = 1
    ordered: bool = False
    pure: bool = False
    vmap_method: str = "sequential"
    # vmap_method "whole" gives the function the batch as it is, and makes another function of the transforms until then
    transforms: tuple[typing.Any, ...] = ()
    of_transforms: typing.Callable[[typing.Any], Registered] | None = None

    def __str__(self) -> str:
        return f"{self.kind if self.kind == 'call' else 'tap'} '{self.name}' at {os.path.basename(self.file)}:{self.line}"

    @property
    def effect(self) -> typing.Any:
        if self.pure:
            return _compat.PURE
        return _compat.ORDERED if self.ordered else _compat.UNORDERED

    def attributes(self, exported: bool) -> dict[str, typing.Any]:
        f = self.function
        return {"function": f if isinstance(f, str) else f.exported if exported else f.name, "name": self.name, "file": self.file, "kind": self.kind,
                "line": np.int64(self.line), "timeout": np.int64(self.timeout), "every": np.int64(self.every)}


call_p = _compat.Primitive("postern_call")
call_p.multiple_results = True


@functools.lru_cache(maxsize=256)
def _jitted(site: Site, results: tuple[typing.Any, ...]) -> typing.Callable[..., typing.Any]:
    return jax.jit(lambda *operands: call_p.bind(*operands, site=site, results=results))


@call_p.def_impl  # type: ignore[untyped-decorator]
def _outside_of_jit(*operands: typing.Any, site: Site, results: tuple[typing.Any, ...]) -> typing.Any:
    return _jitted(site, results)(*operands)


def _types(*_: typing.Any, site: Site, results: tuple[typing.Any, ...]) -> typing.Any:
    return list(results), {site.effect}


call_p.def_effectful_abstract_eval(_types)


def _lower(ctx: typing.Any, *operands: typing.Any, site: Site, results: tuple[typing.Any, ...]) -> typing.Any:
    _register_handler()
    return _compat.lower(ctx, _TARGET, operands, site.effect, site.attributes(_compat.for_export(ctx)), site.function, str(site))


def _jvp(primals: typing.Any, tangents: typing.Any, *, site: Site, results: tuple[typing.Any, ...]) -> typing.Any:
    if results and not all(isinstance(t, _compat.Zero) for t in tangents):
        raise ValueError(f"postern.jax: {site} has no derivative; give it one by jax.custom_jvp or jax.custom_vjp around it")
    out = call_p.bind(*primals, site=site, results=results)
    return out, [_compat.Zero(t.to_tangent_aval()) for t in results]


def _batched(operands: typing.Any, axes: typing.Any, *, site: Site, results: tuple[typing.Any, ...]) -> typing.Any:
    if site.of_transforms is not None:
        transforms = (*site.transforms, ("batch", tuple(axes)))
        whole = dataclasses.replace(site, function=site.of_transforms(transforms), transforms=transforms)
        return call_p.bind(*operands, site=whole, results=()), []
    size = next(x.shape[a] for x, a in zip(operands, axes) if a is not None)
    moved = [x if a is None else jax.numpy.moveaxis(x, a, 0) for x, a in zip(operands, axes)]
    mapped = [a is not None for a in axes]
    if site.vmap_method == "sequential":
        def one(elements: typing.Any) -> typing.Any:
            given = iter(elements)
            return call_p.bind(*(next(given) if m else x for x, m in zip(moved, mapped)), site=site, results=results)
        out = jax.lax.map(one, [x for x, m in zip(moved, mapped) if m])
        return out, [0] * len(results)
    if site.vmap_method == "expand_dims":
        given = [x if m else x[None] for x, m in zip(moved, mapped)]
    else:
        given = [x if m else jax.numpy.broadcast_to(x, (size, *x.shape)) for x, m in zip(moved, mapped)]
    types = tuple(_compat.ShapedArray((size, *t.shape), t.dtype) for t in results)
    return call_p.bind(*given, site=site, results=types), [0] * len(results)


def arrays(what: str, leaves: typing.Sequence[typing.Any]) -> list[typing.Any]:
    """The leaves as what a program can hand to the host: of keys, their data. Raises TypeError."""
    made = []
    for leaf in leaves:
        try:
            array = jax.random.key_data(leaf) if _is_key(leaf) else jax.numpy.asarray(leaf)
        except (TypeError, ValueError) as e:
            raise TypeError(f"postern.jax: {what} takes trees of arrays and numbers, got {leaf!r}; what is none goes in by functools.partial") from e
        _check_bits(what, array.dtype)
        made.append(array)
    return made


def _is_key(leaf: typing.Any) -> bool:
    return hasattr(leaf, "dtype") and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _check_bits(what: str, dtype: typing.Any) -> None:
    if str(dtype) in ("int2", "uint2", "int4", "uint4", "float4_e2m1fn"):
        raise TypeError(f"postern.jax: {what} has an array of {dtype}, whose elements have less than a byte; convert it by astype before")


def types_of(what: str, tree: typing.Any, numbers: bool = False) -> tuple[tuple[typing.Any, ...], typing.Any]:
    """The types that a tree of what has a shape and a dtype describes, and its structure. `numbers`: these too. Raises ValueError."""
    leaves, structure = jax.tree.flatten(tree)
    types = []
    for leaf in leaves:
        try:
            if numbers and not hasattr(leaf, "dtype"):
                leaf = np.asarray(leaf, jax.dtypes.canonicalize_dtype(jax.numpy.result_type(leaf)))
            types.append(_compat.ShapedArray(tuple(leaf.shape), jax.dtypes.canonicalize_dtype(leaf.dtype)))
        except Exception as e:
            needed = "must be either numeric scalars, or must have" if numbers else "must have"
            raise ValueError(f"postern.jax: {what} should be a tree of values with the structure of what the function returns. The values {needed} "
                             f"'shape' and 'dtype' attributes, as jax.ShapeDtypeStruct; got {leaf!r}") from e
        _check_bits(what, types[-1].dtype)
    return tuple(types), structure


def tap_whole(operands: typing.Sequence[typing.Any], of_transforms: typing.Callable[[typing.Any], Registered], name: str) -> None:
    """A synchronous tap in the program's order, which vmap gives the whole batch."""
    file, line = caller()
    site = Site(of_transforms(()), name, file, line, kind="tap", ordered=True, of_transforms=of_transforms)
    call_p.bind(*operands, site=site, results=())


_compat.register_lowering(call_p, _lower)
_compat.primitive_jvps[call_p] = _jvp
_compat.primitive_batchers[call_p] = _batched
