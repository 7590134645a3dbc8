"""Arrays whose elements have less than a byte: functions of Python get and return them as NumPy has
them; in the program a type of at least a byte carries them.
"""

from __future__ import annotations

import dataclasses
import functools
import typing

import numpy as np

from . import _compat
from ._functions import Entered

_CARRIERS = {
    "int2": np.int8,
    "int4": np.int8,
    "uint2": np.uint8,
    "uint4": np.uint8,
    "float4_e2m1fn": np.float32,
}


# What is asked of dtypes at each call that is traced costs as much as all that JAX does of it.
@functools.lru_cache(maxsize=256)
def carrier(dtype: typing.Any) -> typing.Any:
    """None for types that need none."""
    return _CARRIERS.get(str(dtype))


def any_of(values: typing.Iterable[typing.Any]) -> bool:
    """Whether one of these arrays or types needs one."""
    return any(carrier(v.dtype) for v in values)


def refuse(what: str, dtype: typing.Any) -> None:
    if carrier(dtype):
        raise TypeError(
            f"postern.jax: {what} has an array of {dtype}, whose elements have less than a byte, "
            "which `call` and `tap` take for functions of Python, without `derivatives`: use astype"
        )


def carried(
    entered: Entered,
    operands: typing.Sequence[typing.Any],
    results: typing.Sequence[typing.Any] = (),
) -> tuple[Entered, list[typing.Any], tuple[typing.Any, ...]]:
    """The function, operands and types of results as they stand in the program."""
    given, wanted = [x.dtype for x in operands], [t.dtype for t in results]
    if not any_of((*operands, *results)):
        return entered, list(operands), tuple(results)
    inner, close = entered.enter, entered.finish

    def enter(*leaves: typing.Any, **info: typing.Any) -> typing.Any:
        return inner(*(v.astype(d) if carrier(d) else v for v, d in zip(leaves, given)), **info)

    def finish(made: typing.Any) -> tuple[typing.Any, ...]:
        assert close is not None
        return tuple(_carry(v, d) if carrier(d) else v for v, d in zip(close(made), wanted))

    return (
        dataclasses.replace(entered, enter=enter, finish=close and finish, leaf=False),
        [x.astype(c) if (c := carrier(x.dtype)) else x for x in operands],
        tuple(
            _compat.ShapedArray(t.shape, np.dtype(c)) if (c := carrier(t.dtype)) else t
            for t in results
        ),
    )


def _carry(value: typing.Any, dtype: typing.Any) -> typing.Any:
    """A result of that type, or a Python number that it can hold."""
    array = np.asarray(value)
    number = type(value) in (bool, int, float) and array.astype(dtype).astype(array.dtype) == value
    if array.dtype != dtype and not number:
        raise TypeError(f"the function must return {dtype}, it returned {array.dtype}: {value!r}")
    return array.astype(dtype).astype(carrier(dtype))


def restored(
    made: typing.Sequence[typing.Any], types: typing.Sequence[typing.Any]
) -> list[typing.Any]:
    """Results as they were asked for."""
    return [x.astype(t.dtype) if carrier(t.dtype) else x for x, t in zip(made, types)]
