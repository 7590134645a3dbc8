"""What must hold of a JAX that this package was not tested with: a call and what goes wrong
in it, order, derivatives, batches, and that a function cannot wait for its own program.
"""

from __future__ import annotations

import typing

import jax
import jax.numpy as jnp
import numpy as np

from .. import jax as pj
from .._errors import CallbackError

_jax: typing.Any = jax  # parts of which have no types
_F32 = _jax.ShapeDtypeStruct((), np.float32)


def _expect(what: str, got: typing.Any, wanted: typing.Any) -> None:
    if got != wanted:
        raise AssertionError(f"{what}: {got}, not {wanted}")


def _values() -> None:
    seen: list[float] = []

    def step(total: typing.Any, x: typing.Any) -> typing.Any:
        pj.tap(x, lambda v: seen.append(float(v)), ordered=True)
        total = total + pj.call(lambda v: np.float32(2) * v, _F32, x)
        return total, pj.call(lambda v: v + np.float32(1), _F32, x, effect="ordered")

    def program(xs: typing.Any) -> typing.Any:
        total, plus = jax.lax.scan(step, jnp.float32(0), xs)
        return total, plus

    total, plus = jax.jit(program)(jnp.arange(3, dtype=jnp.float32))
    pj.barrier()
    _expect("values of calls", [float(total), *map(float, plus)], [6, 1, 2, 3])
    _expect("values of ordered taps", seen, [0, 1, 2])


def _transformations() -> None:
    seen: list[float] = []

    def square(x: typing.Any) -> typing.Any:
        return pj.tap(x * x, lambda v: seen.append(float(v)))

    def batch(x: typing.Any) -> typing.Any:
        return jax.vmap(lambda v: pj.call(lambda a: a - np.float32(a.shape == ()), _F32, v))(x)

    slope, less = jax.jit(lambda x: (jax.grad(square)(x[1]), batch(x)))(
        jnp.arange(2, dtype=jnp.float32) + 2
    )
    pj.barrier()
    _expect("a derivative past a tap", [float(slope), seen], [6, [9]])
    _expect("a batch of calls", [*map(float, less)], [1, 2])


def _failures() -> None:
    def raises(v: typing.Any) -> typing.Any:
        raise LookupError("of the self-test")

    def computes(v: typing.Any) -> typing.Any:
        return np.asarray(jnp.sin(v))

    for what, f, kind in (
        ("a failure", raises, LookupError),
        ("JAX within a function", computes, pj.ReentryError),
    ):
        try:
            _jax.block_until_ready(jax.jit(lambda x: pj.call(f, _F32, x))(jnp.float32(1)))
        except CallbackError as e:
            _expect(f"the cause of {what}", type(e.__cause__), kind)
        else:
            raise AssertionError(f"{what} was not told")


def _some_device() -> typing.Any:
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX was asked for others alone
        return jax.local_devices()[0]


def passes() -> None:
    """Raises for what does not hold."""
    with jax.default_device(_some_device()):
        jnp.sin(jnp.float32(1)).block_until_ready()  # within a function it would be compiled
        _values()
        _transformations()
        _failures()
