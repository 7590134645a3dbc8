"""The names of jax.experimental.host_callback, which JAX removed, on postern.jax;
docs/jax.md lists what differs.

A tap's function gets `(value, transforms)`.
Under vmap it is shown the whole batch, and `transforms` has `("batch", {"batch_dims": ...})`
for each vmap, the inner one first: the batched axis of each array, None where it has none.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import threading
import typing

import jax
import numpy as np

from .. import CallbackError, _postern
from .._attributes import with_info
from . import _calls, _compat, _functions, barrier, call as _call

__all__ = [
    "CallbackException",
    "CallbackFlavor",
    "TapFunctionException",
    "barrier_wait",
    "call",
    "id_print",
    "id_tap",
]

CallbackException = TapFunctionException = CallbackError
_Transforms = typing.Tuple[typing.Tuple[str, typing.Dict[str, typing.Any]], ...]
_printing = threading.Lock()


class CallbackFlavor(enum.Enum):
    """What the last versions asked for: a PURE call may be left out;
    the others happen once each, in the program's order.
    """

    IO_CALLBACK = 1
    PURE = 2
    DEBUG = 3


def _check_device(what: str, index: int) -> None:
    if index != 0:
        raise ValueError(
            f"{what}: device_index must be 0, got {index}: each device enters the host for itself; "
            "have tap_with_device or call_with_device tell which it was"
        )


def _device(info: typing.Any) -> typing.Any:
    platform, _ = _postern.guest_place() or ("cpu", 0)
    return _compat.devices_at(platform, info.device)[0]


@dataclasses.dataclass(frozen=True, eq=False)
class _Tapped:
    """The function of an id_tap, of which vmap makes others."""

    function: typing.Callable[..., typing.Any]
    structure: typing.Any
    with_device: bool

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__name__", "id_tap"))

    def __call__(self, transforms: tuple[tuple[str, typing.Any], ...]) -> _functions.Function:
        told = tuple((kind, {"batch_dims": axes}) for kind, axes in transforms)

        def shown(*arrays: typing.Any, info: typing.Any = None) -> None:
            self.function(
                jax.tree.unflatten(self.structure, arrays),
                told,
                **({"device": _device(info)} if self.with_device else {}),
            )

        entered = _functions.Entered(shown, info=self.with_device)
        return _functions.Python(entered, self.name, self.function)


def id_tap(
    tap_func: typing.Callable[..., typing.Any],
    arg: typing.Any,
    *,
    result: typing.Any = None,
    tap_with_device: bool = False,
    device_index: int = 0,
    callback_flavor: CallbackFlavor = CallbackFlavor.IO_CALLBACK,
    **kwargs: typing.Any,
) -> typing.Any:
    """`arg`, or `result` where it is given, after `tap_func(arg, transforms)`;
    with `tap_with_device` also `device=`, a JAX device.

    Raises TypeError for what is no array or function, and for other keywords;
    the program ends with TapFunctionException when `tap_func` fails.
    """
    if kwargs:
        raise TypeError(
            "id_tap: Support for **kwargs in ``id_tap`` has been removed "
            f"(got {', '.join(kwargs)}): give the function them by functools.partial"
        )
    if not callable(tap_func):
        raise TypeError(f"id_tap: the first argument must be a function, got {tap_func!r}")
    _check_device("id_tap", device_index)
    del callback_flavor  # all of them tap once, in order
    leaves, structure = jax.tree.flatten(arg)
    tapped = _Tapped(tap_func, structure, tap_with_device)
    _calls.tap_whole(_calls.arrays(f"id_tap of '{tapped.name}'", leaves), tapped, tapped.name)
    return arg if result is None else result


def id_print(
    arg: typing.Any,
    *,
    result: typing.Any = None,
    tap_with_device: bool = False,
    device_index: int = 0,
    output_stream: typing.Any = None,
    threshold: int | None = 1024,
    callback_flavor: CallbackFlavor = CallbackFlavor.IO_CALLBACK,
    **kwargs: typing.Any,
) -> typing.Any:
    """`arg`, or `result`, after its values are printed, or written to `output_stream`.
    Before them stands a line of the other keywords, as `name: value` sorted by name,
    with `transforms` and `device` among them where there are any.
    """
    printer = _Printer(output_stream, threshold, tuple((k, v, repr(v)) for k, v in kwargs.items()))
    return id_tap(
        printer,
        arg,
        result=result,
        tap_with_device=tap_with_device,
        device_index=device_index,
        callback_flavor=callback_flavor,
    )


@dataclasses.dataclass(frozen=True)
class _Printer:
    stream: typing.Any
    threshold: int | None
    told: tuple[tuple[str, typing.Any, str], ...]  # and how it is written, since 1 == True
    __name__ = "id_print"

    def __call__(
        self, value: typing.Any, transforms: _Transforms, device: typing.Any = None
    ) -> None:
        told = {k: v for k, v, _ in self.told}
        if transforms:
            told["transforms"] = [(name, given) if given else name for name, given in transforms]
        if device is not None:
            told["device"] = device
        head = " ".join(f"{k}: {v}" for k, v in sorted(told.items()))
        with _printing:
            for line in (
                (head, _text(value, self.threshold)) if head else (_text(value, self.threshold),)
            ):
                if self.stream is None:
                    builtins.print(line + "\n", end="")
                else:
                    self.stream.write(line + "\n")


def _text(value: typing.Any, threshold: int | None, width: int = 80) -> str:
    """A tree as `( a b )`, `[ a b ]` and `{ name=a }`,
    on several lines where one has no room for it.
    """
    if isinstance(value, dict):
        (begin, end), parts = (
            "{}",
            [f"{k}={_text(v, threshold, width - 2)}" for k, v in sorted(value.items())],
        )
    elif isinstance(value, (tuple, list)):
        (begin, end), parts = (
            "()" if isinstance(value, tuple) else "[]",
            [_text(v, threshold, width - 2) for v in value],
        )
    else:
        return (
            np.array2string(value, threshold=threshold)
            if isinstance(value, np.ndarray)
            else str(value)
        )
    line = f"{begin} {' '.join(parts)} {end}"
    return line if len(line) <= width else f"{begin} " + "\n  ".join(parts) + f" {end}"


def call(
    callback_func: typing.Callable[..., typing.Any],
    arg: typing.Any,
    *,
    result_shape: typing.Any = None,
    call_with_device: bool = False,
    device_index: int = 0,
    callback_flavor: CallbackFlavor = CallbackFlavor.IO_CALLBACK,
) -> typing.Any:
    """What `callback_func(arg)` returns, like `result_shape`:
    a tree of numbers, arrays, or what else has a shape and a dtype.
    It happens once, in the program's order; with `call_with_device` the function also gets
    `device=`.
    Raises ValueError for another `result_shape`.
    """
    _check_device("call", device_index)
    if not callable(callback_func):
        raise TypeError(f"call: the first argument must be a function, got {callback_func!r}")
    pure = callback_flavor is CallbackFlavor.PURE
    types, structure = _calls.types_of("result_shape", result_shape, numbers=True)
    function = callback_func
    if call_with_device:
        function = with_info(lambda v, info: callback_func(v, device=_device(info)))
    return _call(
        function,
        jax.tree.unflatten(structure, types),
        arg,
        effect="pure" if pure else "ordered",
        name=getattr(callback_func, "__name__", "call"),
    )


def barrier_wait(logging_name: str | None = None) -> None:
    """Waits for all that was tapped and called; raises CallbackException with what failed."""
    del logging_name
    barrier()
