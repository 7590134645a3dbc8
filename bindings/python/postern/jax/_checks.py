"""What arguments must be: who gives others is told so while JAX traces."""

from __future__ import annotations

import math
import operator
import typing

import jax
import numpy as np

from .._postern import nanoseconds


def limit_of(timeout: typing.Any) -> int:
    """A time limit in nanoseconds, 0 for none."""
    if timeout is None:
        return 0
    told = f"postern.jax: timeout must be a positive number of seconds, or None, got {timeout!r}"
    try:
        seconds = float(timeout)
    except (TypeError, ValueError) as e:
        raise TypeError(told) from e
    if math.isnan(seconds) or seconds <= 0:
        raise ValueError(told)
    limit = nanoseconds(seconds)
    return 0 if limit < 0 else max(limit, 1)


def count_of(every: typing.Any) -> int:
    told = f"postern.jax: every must be a whole number of at least 1, got {every!r}"
    try:
        count = operator.index(every)
    except TypeError as e:
        raise TypeError(told) from e
    if count < 1:
        raise ValueError(told)
    return count


def check_name(name: typing.Any) -> None:
    told = f"postern.jax: a name must be text without null characters, got {name!r}"
    if not isinstance(name, str):
        raise TypeError(told)
    if "\0" in name:
        raise ValueError(told)


def check_hooks(
    f: typing.Any, hooks: typing.Any, is_function: typing.Callable[[typing.Any], bool]
) -> None:
    if (
        not callable(f)
        or not isinstance(hooks, dict)
        or not all(isinstance(k, str) and is_function(v) for k, v in hooks.items())
    ):
        raise TypeError(
            f"postern.jax: with_hooks takes a function, and a dict of functions by names, "
            f"got {f!r} and {hooks!r}"
        )


def check_format(
    format: typing.Any, args: typing.Sequence[typing.Any], kwargs: typing.Mapping[str, typing.Any]
) -> None:
    """With zeros in place of the values of the run; raises what str.format raises."""
    if not isinstance(format, str):
        raise TypeError(f"postern.jax: the format must be text, got {format!r}")

    def like(x: typing.Any) -> typing.Any:
        if isinstance(x, jax.Array) and jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
            x = jax.random.key_data(x)
        return np.zeros(x.shape, x.dtype) if isinstance(x, jax.core.Tracer) else x

    given = jax.tree.map(like, (tuple(args), dict(kwargs)))
    format.format(*given[0], **given[1])
