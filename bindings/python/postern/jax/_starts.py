"""Programs with effects, started by JAX's fast path.

JAX starts them by its Python, which keeps a token of each for `barrier`. A program that has ended
when it is started needs none: XLA runs small ones on the thread that starts them. So the fast path
gets those that have been seen to end so; one that does not for once is waited for, and goes back.
"""

from __future__ import annotations

import typing
import weakref

import jax

from .. import _postern
from . import _compat

#: Platforms whose programs raise what failed where they are started. On others it is in results,
#: at which nobody may look.
_RAISE = {"cpu"}
_given: dict[int, weakref.WeakSet[typing.Any]] = {}  # to the fast path, by the function
_back: weakref.WeakSet[typing.Any] = weakref.WeakSet()


def _may_start(program: typing.Any, function: typing.Any) -> bool:
    """Whether the fast path may start it from now on: asked for each run by JAX's Python."""
    if function is None or program in _back or program.backend.platform not in _RAISE:
        return False
    of = _wrapped(function)
    if id(of) not in _given:
        try:
            weakref.finalize(of, _forget, id(of)).atexit = False
        except TypeError:  # nobody would say when it is gone
            return False
        _given[id(of)] = weakref.WeakSet()
        _postern.watch(id(of), _settle)
    _given[id(of)].add(program)
    return True


def _wrapped(function: typing.Any) -> typing.Any:
    return getattr(function, "_fun", function)


def _forget(of: int) -> None:
    _postern.watch(of, None)
    _given.pop(of, None)


def _settle(function: typing.Any, results: typing.Any) -> None:
    """Of a run that made no call on this thread."""
    made: list[typing.Any] = [
        x
        for x in jax.tree.leaves(results)
        if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)
    ]
    if all(x.is_ready() for x in made):
        return  # it came by no call
    _back.update(_given.get(id(_wrapped(function)), ()))
    function._clear_cache()
    for x in made:
        x.block_until_ready()


_compat.for_fast_path(_may_start, _postern.ended_at_once)
