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


def overridden(
    name: str, default: Call, call: Call, args: typing.Sequence[typing.Any]
) -> typing.Any:
    """What `call(name, types, *args)` gives, with a derivative."""
    types = jax.eval_shape(default, *args)
    if not has(name + _DERIVATIVE):
        step = jax.custom_jvp(lambda *x: call(name, types, *x))
        step.defjvp(lambda x, t: (step(*x), jax.jvp(default, x, t)[1]))
        return step(*args)

    def backward(kept: typing.Any, cotangents: typing.Any) -> typing.Any:
        x, y = kept
        leaves, structure = jax.tree.flatten(x)
        real = [jax.numpy.issubdtype(leaf.dtype, np.inexact) for leaf in leaves]
        wanted = [_compat.ShapedArray(leaf.shape, leaf.dtype) for leaf, r in zip(leaves, real) if r]
        given = [c for c in jax.tree.leaves(cotangents) if c.dtype != jax.dtypes.float0]
        made = iter(call(name + _DERIVATIVE, wanted, *leaves, *jax.tree.leaves(y), *given))
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
