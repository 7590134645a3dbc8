"""What arguments must be: who gives others is told so while JAX traces."""

from __future__ import annotations

import math
import operator
import string
import typing

import jax
import numpy as np

from .._postern import nanoseconds


NO_NUMBERS = tuple("OSUMm")  # kinds of NumPy's dtypes that programs do not have


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


def check_partitioned(partitioned: typing.Any, ordered: bool) -> None:
    if not isinstance(partitioned, bool):
        raise TypeError(f"postern.jax: partitioned must be True or False, got {partitioned!r}")
    if partitioned and ordered:
        raise ValueError(
            "postern.jax: parts have no order among each other: ordered or partitioned"
        )


def check_name(name: typing.Any) -> None:
    told = f"postern.jax: a name must be text without null characters, got {name!r}"
    if not isinstance(name, str):
        raise TypeError(told)
    if "\0" in name:
        raise ValueError(told)
    check_text("a name", name)


def printable(text: str) -> str:
    """What UTF-8 can write, in one line."""
    return text.replace("\n", "\\n").encode(errors="backslashreplace").decode()


def check_text(what: str, text: str) -> None:
    if text.encode(errors="replace").decode() != text:
        raise ValueError(f"postern.jax: {what} must be text that UTF-8 can write, got {text!r}")


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


def split(args: typing.Any, kwargs: typing.Any) -> tuple[list[typing.Any], typing.Any]:
    """The arrays in them, and what makes `(args, kwargs)` again of such arrays, whose other leaves
    stay as they are.
    """
    leaves, structure = jax.tree.flatten((args, kwargs))
    shown = [isinstance(x, (jax.Array, np.ndarray)) and not _is_of_python(x) for x in leaves]
    others = [None if s else x for x, s in zip(leaves, shown)]

    def filled(arrays: typing.Iterable[typing.Any]) -> typing.Any:
        given = iter(arrays)
        return jax.tree.unflatten(
            structure, [next(given) if s else x for x, s in zip(others, shown)]
        )

    return [x for x, s in zip(leaves, shown) if s], filled


def _is_of_python(array: typing.Any) -> bool:
    return getattr(array.dtype, "kind", None) in NO_NUMBERS


class _Strict(string.Formatter):
    """As jax.debug.print's: every argument is to be used."""

    def check_unused_args(
        self, used_args: typing.Any, args: typing.Any, kwargs: typing.Any
    ) -> None:
        if unused := [a for i, a in enumerate(args) if i not in used_args]:
            raise ValueError(f"postern.jax: unused positional arguments to print: {unused}; {_F}")
        if unused := [k for k in kwargs if k not in used_args]:
            raise ValueError(f"postern.jax: unused keyword arguments to print: {unused}; {_F}")


_F = "the format must use them all: is it an f-string?"


def check_format(
    format: typing.Any, args: typing.Sequence[typing.Any], kwargs: typing.Mapping[str, typing.Any]
) -> None:
    """With zeros in place of the values of the run; raises what str.format raises, and ValueError
    for arguments that the format does not use.
    """
    if not isinstance(format, str):
        raise TypeError(f"postern.jax: the format must be text, got {format!r}")

    def like(x: typing.Any) -> typing.Any:
        if isinstance(x, jax.Array) and jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
            x = jax.random.key_data(x)
        return np.zeros(x.shape, x.dtype) if isinstance(x, jax.core.Tracer) else x

    given = jax.tree.map(like, (tuple(args), dict(kwargs)))
    _Strict().vformat(format, *given)
