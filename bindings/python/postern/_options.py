"""What is said of a program's runs: Program.with_options."""

from __future__ import annotations

import operator
import typing

from . import _postern
from ._attributes import check_function, with_info
from ._functions import is_native

_Functions = typing.Mapping[str, typing.Callable[..., typing.Any]]


def _listed(what: str, functions: _Functions | None) -> list[tuple[str, typing.Any, bool]]:
    rows: list[tuple[str, typing.Any, bool]] = []
    for name, function in (functions or {}).items():
        if isinstance(function, _postern.Listener):
            raise TypeError(
                f"postern: {what} {name!r} is a listener of postern.listen, which a run cannot "
                "have for itself: give a function of Python, or register it"
            )
        if not is_native(function):
            check_function("postern", function)
        if isinstance(function, with_info):
            rows.append((name, function.function, True))
        else:
            rows.append((name, function, False))
    return rows


class Configured:
    """A program whose runs have options, which Program.with_options makes. It is called, and run,
    and started, as the program is, whose attributes it has.
    """

    def __init__(self, program: _postern.Program, **said: typing.Any) -> None:
        self._program, self._said = program, said
        self._options = _options(**said)

    def __call__(self, *arguments: typing.Any, **named: typing.Any) -> typing.Any:
        """As Program.__call__."""
        return _postern.run_with(self._program, arguments, named, self._options, True)

    def run(self, *arguments: typing.Any, **named: typing.Any) -> typing.Any:
        """As Program.run."""
        return _postern.run_with(self._program, arguments, named, self._options, False)

    def start(self, *arguments: typing.Any, **named: typing.Any) -> _postern.Run:
        """As Program.start."""
        return _postern.start_with(self._program, arguments, named, self._options)

    def with_options(self, **said: typing.Any) -> Configured:
        """The same with others; those that are not given stay."""
        return Configured(self._program, **{**self._said, **said})

    def __getattr__(self, name: str) -> typing.Any:
        if name.startswith("_"):  # also of one that copy is only making
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._program, name)

    def __repr__(self) -> str:
        said = ", ".join(f"{key}={value!r}" for key, value in self._said.items())
        return f"{self._program!r}.with_options({said})"


def _options(
    device: int = 0,
    deadline: float | None = None,
    print: typing.Callable[[str], typing.Any] | None = None,
    hooks: _Functions | None = None,
    functions: _Functions | None = None,
) -> tuple[int, int, typing.Any, typing.Any, typing.Any]:
    if not 0 <= operator.index(device) < 2**31:
        raise ValueError(f"postern: a device has a number from 0 to 2**31 - 1, got {device}")
    if deadline is not None and not deadline > 0:
        raise ValueError(f"postern: a deadline is a number of seconds above 0, got {deadline!r}")
    if print is not None and not callable(print):
        raise TypeError(f"postern: print must be a function of a text, got {print!r}")
    limit = -1 if deadline is None else _postern.nanoseconds(deadline)
    return (
        operator.index(device),
        0 if limit < 0 else max(limit, 1),  # 0 is none
        print,
        _listed("hook", hooks),
        _listed("function", functions),
    )
