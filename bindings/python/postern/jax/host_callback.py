"""The names of jax.experimental.host_callback, which JAX removed, on postern.jax.

A tap's function gets `(value, transforms)`; `transforms` is always (): under vmap it is shown an element after the other, and under
derivatives what the original function computes.
"""

from __future__ import annotations

import builtins
import typing

import jax

from .. import CallbackError
from . import barrier, call as _call, tap as _tap

__all__ = ["TapFunctionException", "CallbackException", "barrier_wait", "call", "id_print", "id_tap"]

CallbackException = TapFunctionException = CallbackError
_Unset = object()


def id_tap(tap_func: typing.Callable[..., typing.Any], arg: typing.Any, *, result: typing.Any = _Unset, tap_with_device: bool = False,
           device_index: int = 0, **kwargs: typing.Any) -> typing.Any:
    """`arg`, or `result` where it is given, after `tap_func(arg, transforms)`; with `tap_with_device` also `device=`, a JAX device."""
    if kwargs:
        raise TypeError(f"id_tap: {', '.join(kwargs)} is not supported any more; use functools.partial")
    if device_index != 0:
        raise ValueError("id_tap: a program runs on CPUs here, each device taps for itself; device_index must be 0")

    def shown(value: typing.Any, info: typing.Any) -> None:
        if tap_with_device:
            tap_func(value, (), device=jax.local_devices(backend="cpu")[info.device])
        else:
            tap_func(value, ())

    _tap(arg, shown, name=getattr(tap_func, "__name__", "id_tap"), ordered=True)
    return arg if result is _Unset else result


def id_print(arg: typing.Any, *, result: typing.Any = _Unset, tap_with_device: bool = False, device_index: int = 0,
             output_stream: typing.Any = None, threshold: int | None = None, **kwargs: typing.Any) -> typing.Any:
    """`arg`, or `result`, after a line with its values; keyword arguments stand before them as `name: value`."""
    import numpy as np

    def show(value: typing.Any, transforms: typing.Any, device: typing.Any = None) -> None:
        told = {**kwargs, **({} if device is None else {"device": device})}
        head = "  ".join(f"{k}: {v}" for k, v in told.items())
        with np.printoptions(threshold=threshold):
            text = "\n".join(filter(None, [head, str(value) if not hasattr(value, "shape") else np.array2string(value)]))
        builtins.print(text, file=output_stream)

    return id_tap(show, arg, result=result, tap_with_device=tap_with_device, device_index=device_index)


def call(callback_func: typing.Callable[..., typing.Any], arg: typing.Any, *, result_shape: typing.Any = None,
         call_with_device: bool = False, device_index: int = 0) -> typing.Any:
    """What `callback_func(arg)` returns, of the shapes and dtypes of `result_shape`; it happens once, in the program's order."""
    if device_index != 0:
        raise ValueError("call: a program runs on CPUs here, each device calls for itself; device_index must be 0")

    def called(value: typing.Any, info: typing.Any) -> typing.Any:
        if call_with_device:
            return callback_func(value, device=jax.local_devices(backend="cpu")[info.device])
        return callback_func(value)

    return _call(called, result_shape, arg, effect="ordered", name=getattr(callback_func, "__name__", "call"))


def barrier_wait(logging_name: str | None = None) -> None:
    """Waits for all that was tapped; raises CallbackException with what failed."""
    del logging_name
    barrier()
