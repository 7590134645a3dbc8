"""Python's numbers and lists as arrays of the types that programs take."""

from __future__ import annotations

import functools
import typing

import numpy as np

_NAMES = {"pred": "bool", "bf16": "bfloat16", "c64": "complex64", "c128": "complex128"}
_Value = typing.TypeVar("_Value")
_KINDS = "biufc"  # of NumPy's dtypes, each taking those before it


class Results(typing.List[_Value]):
    """A run's results in their order; `results["loss"]` is the one that the file calls so."""

    def __init__(self, names: typing.Sequence[str], values: typing.Iterable[_Value]) -> None:
        super().__init__(values)
        self._names = names

    @typing.overload
    def __getitem__(self, at: typing.SupportsIndex | str) -> _Value: ...
    @typing.overload
    def __getitem__(self, at: slice) -> list[_Value]: ...
    def __getitem__(self, at: typing.Any) -> typing.Any:
        if not isinstance(at, str):
            return super().__getitem__(at)
        try:
            return super().__getitem__(self._names.index(at))
        except ValueError:
            raise KeyError(f"the program has no result {at!r}; it has {self._names}") from None


@functools.lru_cache(maxsize=1024)
def type_of(text: str) -> tuple[typing.Any, tuple[int, ...] | None]:
    """Dtype and shape of "f32[2,3]"; no shape where it is open."""
    name, _, dims = text.partition("[")
    if name not in _NAMES and name[0] in "sufc":
        kind = {"s": "int", "u": "uint", "f": "float", "c": "complex"}[name[0]]
        name = kind + (name[1:] if kind != "float" or "e" not in name else f"8_{name[2:]}")
        name = name.replace("float8_e2m1fn", "float4_e2m1fn")
    dtype = _dtype(_NAMES.get(name, name))
    try:
        return dtype, tuple(int(n) for n in dims.rstrip("]").split(",") if n)
    except ValueError:
        return dtype, None


def _dtype(name: str) -> typing.Any:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def _kind(dtype: typing.Any) -> int:
    kind = "i" if dtype.kind == "V" and "int" in dtype.name else dtype.kind
    return _KINDS.find("f" if kind == "V" else kind)


def _kind_of_all(values: typing.Any) -> int:
    """That of an array of objects, as NumPy makes of integers of more than 64 bits."""
    kinds = [1 if isinstance(v, int) else _kind(np.asarray(v).dtype) for v in values.flat]
    return max(kinds) if min(kinds) >= 0 else -1


def _keeps(given: typing.Any, made: typing.Any) -> bool:
    """Whether no number became an infinity or a NaN, which stand for those that do not fit, nor
    the other way round.
    """
    # Which has neither, and makes 6 of what is larger.
    is_f4 = made.dtype.kind == "V" and made.dtype.name == "float4_e2m1fn"
    if not is_f4 and np.isfinite(made).all():
        return True
    if is_f4 and (np.abs(given) >= 7).any():
        return False
    wide = made.astype(given.dtype)
    return all(
        np.array_equal(kind_of(part(given)), kind_of(part(wide)))
        for part in (np.real, np.imag)
        for kind_of in (np.isnan, np.isinf)
    )


def converted(value: typing.Any, text: str) -> typing.Any:
    """A number, or a list of them, as an array of the type's dtype. Raises TypeError for numbers
    of another kind, such as 1.5 for s32, and ValueError for those that do not fit.
    """
    dtype, _ = type_of(text)
    try:
        plain = np.asarray(value)
    except ValueError as e:
        raise ValueError(f"postern: {value!r} is no array, for {text}: {e}") from None
    if plain.size == 0:
        return plain.astype(dtype)
    kind, wanted = _kind(plain.dtype), _kind(dtype)
    if kind == 3 and wanted in (1, 2):  # NumPy's for integers that neither s64 nor u64 has all of
        exact = np.asarray(value, object)
        if _kind_of_all(exact) in (1, 2):
            plain, kind = exact, 1
    elif plain.dtype.kind == "O":
        kind = _kind_of_all(plain)
    if kind < 0 or max(kind, 1) > max(wanted, 1) + (wanted == 1):  # "i" and "u" take each other
        raise TypeError(f"postern: {value!r} is of another kind than {text}")
    if (kind == 0) != (wanted == 0) and wanted == 0:
        raise TypeError(f"postern: {value!r} is of another kind than {text}")
    try:
        with np.errstate(all="ignore"):
            if wanted > 2:
                given = plain.astype(np.complex128 if wanted == 4 else np.float64)
                made = given.astype(dtype)
                fits = _keeps(given, made)
            else:
                made = np.asarray(value, dtype)
                # NumPy 1, and NumPy 2 in lists of its own numbers, makes others of those that do
                # not fit.
                same = made.astype(plain.dtype)
                fits = np.array_equal(same, plain) and np.array_equal(made < 0, plain < 0)
    except OverflowError as e:
        raise ValueError(f"postern: {value!r} does not fit into {text}: {e}") from None
    if not fits:
        raise ValueError(f"postern: {value!r} does not fit into {text}")
    return made
