"""Steps that a library may override."""

from __future__ import annotations

import typing

import jax
import numpy as np

from .._functions import registered
from . import _compat

_DERIVATIVE = ".vjp"

Call = typing.Callable[..., typing.Any]


def has(name: str) -> bool:
    return name in registered()


def block_path(name: str) -> str:
    """Which function `block` takes now for a step of that name, and which derivative."""
    if not has(name):
        return "default"
    return f"C++ function '{name}', derivative " + (
        f"'{name}{_DERIVATIVE}'" if has(name + _DERIVATIVE) else "the default's"
    )


def _is_traced(value: typing.Any) -> bool:
    """Whether it is a traced array, and not a reference (jax.new_ref), which no rule takes."""
    traced = isinstance(value, jax.core.Tracer)
    return traced and isinstance(jax.typeof(value), _compat.ShapedArray)


def _closed(
    default: Call, args: typing.Sequence[typing.Any]
) -> tuple[Call, list[typing.Any], typing.Any]:
    """`default` as a function of the traced values that it closes over, and of its arguments; these
    values; and the types of its results. A rule of JAX's gives what is closed over no derivative.
    """
    # A function made here, as JAX would give what one that it knows closed over before.
    traced, types = jax.make_jaxpr(lambda *x: default(*x), return_shape=True)(*args)
    held = [c for c in traced.consts if _is_traced(c)]

    def closed(given: typing.Sequence[typing.Any], *x: typing.Any) -> typing.Any:
        left = iter(given)
        consts = [next(left) if _is_traced(c) else c for c in traced.consts]
        made = _compat.eval_jaxpr(traced.jaxpr, consts, *jax.tree.leaves(x))
        return jax.tree.unflatten(jax.tree.structure(types), made)

    return closed, held, types


def _is_zero(tangent: typing.Any) -> bool:
    return isinstance(tangent, jax.custom_derivatives.SymbolicZero)


def _without_derivative(
    name: str, held: list[typing.Any], args: typing.Sequence[typing.Any]
) -> typing.Any:
    """`args`; raises ValueError where a derivative by what is held is asked for."""
    same = jax.custom_jvp(lambda held, *x: x)

    def rule(x: typing.Any, tangents: typing.Any) -> typing.Any:
        if not all(map(_is_zero, tangents[0])):
            raise ValueError(
                f"postern.jax: the default of block '{name}' closes over traced values, of which "
                f"'{name}{_DERIVATIVE}' knows nothing: give them as arguments"
            )
        return same(*x), tangents[1:]

    same.defjvp(rule, symbolic_zeros=True)
    return same(held, *args)


def overridden(
    name: str, default: Call, call: Call, args: typing.Sequence[typing.Any]
) -> typing.Any:
    """What `call(name, types, *args)` gives, with a derivative."""
    closed, held, types = _closed(default, args)
    if not has(name + _DERIVATIVE):
        step = jax.custom_jvp(lambda held, *x: call(name, types, *x))

        def rule(x: typing.Any, tangents: typing.Any) -> typing.Any:
            # By what moves alone: of zeros a step inside would think that they are asked for.
            leaves, structure = jax.tree.flatten(x)
            dx = jax.tree.leaves(tangents, is_leaf=_is_zero)
            moves = [not _is_zero(d) for d in dx]

            def of_moving(*moving: typing.Any) -> typing.Any:
                left = iter(moving)
                given = [next(left) if m else leaf for leaf, m in zip(leaves, moves)]
                return closed(*jax.tree.unflatten(structure, given))

            moving = [leaf for leaf, m in zip(leaves, moves) if m]
            return step(*x), jax.jvp(of_moving, moving, [d for d, m in zip(dx, moves) if m])[1]

        step.defjvp(rule, symbolic_zeros=True)
        return step(held, *args)
    if held:
        args = _without_derivative(name, held, args)

    def backward(kept: typing.Any, cotangents: typing.Any) -> typing.Any:
        x, y = kept
        leaves, structure = jax.tree.flatten(x)
        real = [jax.numpy.issubdtype(leaf.dtype, np.inexact) for leaf in leaves]
        wanted = [_compat.ShapedArray(leaf.shape, leaf.dtype) for leaf, r in zip(leaves, real) if r]
        results = jax.tree.leaves(y)
        given = [  # which may be Python's numbers
            jax.numpy.asarray(c, r.dtype)
            for c, r in zip(jax.tree.leaves(cotangents), results)
            if jax.numpy.issubdtype(r.dtype, np.inexact)
        ]
        made = iter(call(name + _DERIVATIVE, wanted, *leaves, *results, *given))
        out = [
            next(made) if r else np.zeros(leaf.shape, jax.dtypes.float0)
            for leaf, r in zip(leaves, real)
        ]
        return tuple(jax.tree.unflatten(structure, out))

    def forward(*x: typing.Any) -> typing.Any:
        y = call(name, types, *x)
        return y, (x, y)

    own = jax.custom_vjp(lambda *x: call(name, types, *x))
    own.defvjp(forward, backward)
    return own(*args)
