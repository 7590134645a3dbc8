"""Postern inside JAX: host functions that jitted functions call, and values that they show, on CPUs.

    import jax, jax.numpy as jnp
    import postern.jax as pj

    @jax.jit
    def step(x):
        y = pj.tap(x * 2, print, name="y", mode="async")
        return pj.call(lookup, jax.ShapeDtypeStruct((), jnp.float32), y)

A function is a Python callable, or the name of one that postern.register or a C++ library has registered. What it throws arrives
as postern.CallbackError, which is also a jax.errors.JaxRuntimeError, with the exception as its cause.
"""

from __future__ import annotations

import builtins
import contextlib
import contextvars
import dataclasses
import functools
import typing

import jax
import numpy as np

from .. import _waits
from .._attributes import wants_info
from .._postern import nanoseconds
from . import _compat, _failures as _failures, _loops as _loops
from ._calls import Registered, Site, arrays, call_p, caller, registered, types_of

__all__ = ["barrier", "call", "hook", "print", "tap", "with_hooks"]

_EFFECTS = ("pure", "unordered", "ordered")
_METHODS = ("sequential", "expand_dims", "broadcast_all")
_MODES = ("sync", "async")


def _check(argument: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"postern.jax: {argument} must be one of {', '.join(allowed)}, got {value!r}")


def _named(fn: typing.Any, name: str | None) -> str:
    if not callable(fn) and not isinstance(fn, str):
        raise TypeError(f"postern.jax: the function must be callable, or a registered name, got {fn!r}")
    return name or str(fn if isinstance(fn, str) else getattr(fn, "__name__", type(fn).__name__))


def _copies(arrays: typing.Sequence[typing.Any]) -> list[np.ndarray[typing.Any, typing.Any]]:
    return [np.array(a) for a in arrays]  # those of a firing are gone when it has returned


def call(fn: typing.Callable[..., typing.Any] | str, result_shape_dtypes: typing.Any, *args: typing.Any, effect: str = "pure",
         vmap_method: str = "sequential", timeout: float | None = None, name: str | None = None) -> typing.Any:
    """What `fn(*args)` returns, called with NumPy arrays while the program runs.

    `result_shape_dtypes` is a pytree of what has a shape and a dtype, and what `fn` must return. `effect`: "pure" calls may be left out or
    made again, "unordered" ones happen once each, "ordered" ones in the program's order too. `vmap_method`: "sequential", an element after
    the other; "expand_dims" and "broadcast_all" give the function the whole batch in front, as jax.pure_callback does. `timeout` is in
    seconds. A name in place of `fn` gets the leaves of `args` as operands. Raises ValueError where a derivative is asked for: give it one
    by jax.custom_jvp or jax.custom_vjp around the call. At the run: CallbackError, TimeoutError.
    """
    _check("effect", effect, _EFFECTS)
    _check("vmap_method", vmap_method, _METHODS)
    told = _named(fn, name)
    operands, structure = jax.tree.flatten(args)
    types, wanted = types_of("result_shape_dtypes", result_shape_dtypes)

    def enter(*arrays: typing.Any, **info: typing.Any) -> typing.Any:
        leaves, got = jax.tree.flatten(typing.cast(typing.Any, fn)(*jax.tree.unflatten(structure, _copies(arrays)), **info))
        if got != wanted:
            raise TypeError(f"the function must return {wanted}, it returned {got}")
        return tuple(leaves)

    limit = 0 if timeout is None else max(nanoseconds(timeout), 0)
    file, line = caller()
    site = Site(_function(fn, enter, told, (structure, wanted)), told, file, line, timeout=limit, ordered=effect == "ordered",
                pure=effect == "pure", vmap_method=vmap_method)
    return jax.tree.unflatten(wanted, call_p.bind(*arrays(f"call of '{told}'", operands), site=site, results=types))


def _function(fn: typing.Any, enter: typing.Callable[..., typing.Any], name: str, trees: typing.Any) -> Registered | str:
    if isinstance(fn, str):
        return fn
    if wants_info(fn):
        return registered((fn, name, trees), lambda *arrays, info: enter(*arrays, info=info), name, fn)
    return registered((fn, name, trees), lambda *arrays: enter(*arrays), name, fn)


def tap(value: typing.Any, fn: typing.Callable[..., typing.Any] | str, *, name: str | None = None, mode: str = "sync",
        ordered: bool = False, every: int = 1) -> typing.Any:
    """`value`, a pytree of arrays, which `fn` is shown as NumPy arrays whenever the program comes by.

    `mode`: "sync" waits for the function; "async" copies the value to a bounded queue, which another thread empties in order (see
    `barrier`). `every`: firings 0, every, 2 * every, ... are shown. Under derivatives the value is shown once, under vmap an element after
    the other. A function that fails ends the program with CallbackError; one of mode "async" makes the next `barrier` raise it.
    """
    _check("mode", mode, _MODES)
    if every < 1:
        raise ValueError(f"postern.jax: every must be at least 1, got {every}")
    told = _named(fn, name)
    leaves, structure = jax.tree.flatten(value)

    def enter(*arrays: typing.Any, **info: typing.Any) -> None:
        typing.cast(typing.Any, fn)(jax.tree.unflatten(structure, _copies(arrays)), **info)

    file, line = caller()
    site = Site(_function(fn, enter, told, structure), told, file, line, kind="tap" if mode == "sync" else "async", every=every,
                ordered=ordered)
    call_p.bind(*arrays(f"tap of '{told}'", leaves), site=site, results=())
    return value


def print(format: str, *args: typing.Any, ordered: bool = False, **kwargs: typing.Any) -> None:
    """Prints `format.format(*args, **kwargs)` with the values of the run."""
    format.format(*args, **kwargs)  # what it lacks is said here
    tap((args, kwargs), _Print(format), name="print", ordered=ordered)


@dataclasses.dataclass(frozen=True)
class _Print:
    format: str

    def __call__(self, given: typing.Any) -> None:
        builtins.print(self.format.format(*given[0], **given[1]))


_hooks: contextvars.ContextVar[dict[str, typing.Callable[..., typing.Any]]] = contextvars.ContextVar("hooks", default={})


def hook(name: str, value: typing.Any) -> typing.Any:
    """`value`, which a function of `with_hooks` may look at; without one it is nothing at all in the program."""
    fn = _hooks.get().get(name)
    return value if fn is None else tap(value, fn, name=name)


def with_hooks(f: typing.Callable[..., typing.Any], hooks: dict[str, typing.Callable[..., typing.Any]]) -> typing.Callable[..., typing.Any]:
    """`f` with functions for its hooks, by name. Hooks are set while `f` is traced: put it outside of `f`, and inside of jax.jit."""

    @functools.wraps(f)
    def hooked(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        with _set(hooks):
            return f(*args, **kwargs)

    return hooked


@contextlib.contextmanager
def _set(hooks: dict[str, typing.Callable[..., typing.Any]]) -> typing.Iterator[None]:
    token = _hooks.set({**_hooks.get(), **hooks})
    try:
        yield
    finally:
        _hooks.reset(token)


def barrier(timeout: float | None = None) -> bool:
    """Waits for the programs that JAX has begun, then for what their asynchronous taps show; at most `timeout` seconds for these. Whether
    all was delivered. Raises CallbackError with the failures of taps that nobody has seen."""
    _compat.barrier()
    return _waits.barrier(timeout)
