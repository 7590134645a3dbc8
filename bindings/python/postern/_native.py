"""Programs as plain functions of NumPy's arrays, for what calls one a million times."""

from __future__ import annotations

import os
import typing

import numpy as np

from . import _functions, _postern, _values

Derivative = typing.Literal["value", "value_and_grad", "jvp"]
_DERIVATIVES = ("value", "value_and_grad", "jvp")


class Native:
    """A compiled program, which any number of threads may call. `inputs` and `outputs` are types
    such as "f64[8]".
    """

    def __init__(self, native: _postern.NativeProgram) -> None:
        self._native = native
        self.inputs, self.outputs = native.inputs, native.outputs
        self._takes = [_values.type_of(text) for text in self.inputs]
        self._makes = [_values.type_of(text) for text in self.outputs]

    def __call__(
        self, *arguments: typing.Any, out: typing.Sequence[typing.Any] | None = None
    ) -> list[typing.Any]:
        """The results as arrays; in those of `out`, where they are given. Dense arrays of the
        program's dtypes are read in place, others are copied. Raises what running the program
        raises, and TypeError or ValueError for what does not fit.
        """
        if len(arguments) != len(self._takes):
            raise TypeError(
                f"postern: the program takes {len(self._takes)} arguments, {len(arguments)} given"
            )
        given = [
            _fitting(f"argument {i}", a, *type, text)
            for i, (a, type, text) in enumerate(zip(arguments, self._takes, self.inputs))
        ]
        if out is None:
            made = [np.empty(shape or (), dtype) for dtype, shape in self._makes]
        else:
            made = list(out)
            _check_out(made, self._makes, self.outputs)
        self._native.call(given, made)
        return made

    def __repr__(self) -> str:
        return f"Native(({', '.join(self.inputs)}) -> ({', '.join(self.outputs)}))"


def _fitting(
    what: str, value: typing.Any, dtype: typing.Any, shape: tuple[int, ...] | None, text: str
) -> typing.Any:
    if not isinstance(value, np.ndarray) or value.dtype != dtype:
        if hasattr(value, "dtype") and np.dtype(value.dtype) != dtype:
            raise TypeError(f"postern: {what} must be {text}, got dtype {value.dtype}")
        value = np.asarray(value) if hasattr(value, "dtype") else _values.converted(value, text)
    if value.shape != shape:
        raise ValueError(f"postern: {what} must be {text}, got shape {value.shape}")
    return np.asarray(value, order="C")


def _check_out(made: list[typing.Any], types: list[typing.Any], texts: list[str]) -> None:
    if len(made) != len(types):
        raise TypeError(f"postern: the program has {len(types)} results, {len(made)} in `out`")
    for i, (a, (dtype, shape), text) in enumerate(zip(made, types, texts)):
        if not (
            isinstance(a, np.ndarray)
            and (a.dtype, a.shape) == (dtype, shape)
            and a.flags.c_contiguous
            and a.flags.writeable
        ):
            raise ValueError(f"postern: out[{i}] must be a dense array of {text} to write to")


def native(
    program: _postern.Program | str | bytes | os.PathLike[str] | os.PathLike[bytes],
    derivative: Derivative = "value",
    *,
    bound: typing.Mapping[int | str, typing.Any] | None = None,
    types: typing.Sequence[str] | None = None,
) -> Native:
    """A program, or that of a file, as a plain function of arrays, without tensors.

    `derivative`: "value_and_grad" gives after the results the gradients of the first, a number,
    by each free argument of floating point; "jvp" takes after the arguments a tangent for each of
    floating point, and gives after the results theirs.
    `bound`: values of arguments, by number or name, which calls then leave out.
    `types`: of all arguments, where the program takes any sizes.
    Raises Error for a program over several devices, or where something has no derivative.
    """
    if derivative not in _DERIVATIVES:
        raise ValueError(
            f"postern: derivative must be one of {', '.join(_DERIVATIVES)}, got {derivative!r}"
        )
    loaded = program if isinstance(program, _postern.Program) else _functions.load(program)
    values: list[typing.Any] = [None] * len(loaded.inputs)
    for key, value in (bound or {}).items():
        at = loaded.input_names.index(key) if key in loaded.input_names else key
        if not isinstance(at, int) or not 0 <= at < len(values):
            raise ValueError(f"postern: the program has no argument {key!r}")
        plain = hasattr(value, "dtype") or isinstance(value, _postern.Tensor)
        tensor = value if plain else _values.converted(value, loaded.inputs[at])
        # A tensor may be over the array's memory, to which the caller may write.
        values[at] = _postern.Tensor(np.array(tensor) if isinstance(tensor, np.ndarray) else tensor)
    if types is not None and len(types) != len(values):
        raise ValueError(f"postern: types has {len(types)}, the program takes {len(values)}")
    number = _DERIVATIVES.index(derivative)
    return Native(_postern.NativeProgram(loaded, number, values, list(types or ())))
