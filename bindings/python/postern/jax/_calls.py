"""The primitive: a custom call of the library's, which enters a host function."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import typing
import uuid

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


class Registered:
    """A Python function under a name of its own, as long as a program may call it."""

    def __init__(self, function: typing.Callable[..., typing.Any], name: str) -> None:
        # No other process has a function of that name, so that what JAX's cache kept of another one can't call a wrong one.
        self.name = f"{name}#{uuid.uuid4().hex}"
        _functions.register(self.name, function)

    def __del__(self) -> None:
        try:
            _functions.unregister(self.name)
        except Exception:  # the interpreter ends
            pass


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

    def __str__(self) -> str:
        return f"{self.kind if self.kind == 'call' else 'tap'} '{self.name}' at {os.path.basename(self.file)}:{self.line}"

    @property
    def effect(self) -> typing.Any:
        if self.pure:
            return _compat.PURE
        return _compat.ORDERED if self.ordered else _compat.UNORDERED

    @property
    def attributes(self) -> dict[str, typing.Any]:
        function = self.function if isinstance(self.function, str) else self.function.name
        return {"function": function, "name": self.name, "file": self.file, "kind": self.kind,
                "line": np.int64(self.line), "timeout": np.int64(self.timeout), "every": np.int64(self.every)}


call_p = _compat.Primitive("postern_call")
call_p.multiple_results = True
call_p.def_impl(lambda *operands, **params: jax.jit(lambda *x: call_p.bind(*x, **params))(*operands))


def _types(*_: typing.Any, site: Site, results: tuple[typing.Any, ...]) -> typing.Any:
    return list(results), {site.effect}


call_p.def_effectful_abstract_eval(_types)


def _lower(ctx: typing.Any, *operands: typing.Any, site: Site, results: tuple[typing.Any, ...]) -> typing.Any:
    _register_handler()
    return _compat.lower(ctx, _TARGET, operands, site.effect, site.attributes, site.function)


def _jvp(primals: typing.Any, tangents: typing.Any, *, site: Site, results: tuple[typing.Any, ...]) -> typing.Any:
    if results and not all(isinstance(t, _compat.Zero) for t in tangents):
        raise ValueError(f"postern.jax: {site} has no derivative; give it one by jax.custom_jvp or jax.custom_vjp around it")
    out = call_p.bind(*primals, site=site, results=results)
    return out, [_compat.Zero(t.to_tangent_aval()) for t in results]


def _batched(operands: typing.Any, axes: typing.Any, *, site: Site, results: tuple[typing.Any, ...]) -> typing.Any:
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


_compat.register_lowering(call_p, _lower)
_compat.primitive_jvps[call_p] = _jvp
_compat.primitive_batchers[call_p] = _batched
