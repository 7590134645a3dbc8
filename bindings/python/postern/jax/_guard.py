"""Refusals in place of hangs: JAX inside a function that a program waits for,
and in a forked process.
"""

from __future__ import annotations

import os
import typing

import jax
import numpy as np

from .. import _postern
from .._errors import Error, FAILED_PRECONDITION
from . import _compat

_REENTRY = 103
_SEVERAL = -2  # devices wait, as many as the program runs on
_COPIES = ("device_put", "stage")  # which XLA's threads are not needed for, of aligned arrays
_AT_ONCE = 1 << 16  # bytes that XLA copies where it is asked
_ALIGNMENT = 64
_Args = typing.Sequence[typing.Any]  # of a primitive
_Params = dict[str, typing.Any]


class ReentryError(Error):
    """A host function used JAX on the device whose program waits for the function."""


def _devices_of(args: _Args) -> set[typing.Any]:
    found = set().union(
        *(
            a.devices()
            for a in args
            if isinstance(a, jax.Array) and not isinstance(a, jax.core.Tracer)
        )
    )
    if found:
        return found
    default = typing.cast(typing.Any, jax.config).jax_default_device  # or the name of a platform
    return {
        jax.local_devices(backend=default)[0]
        if default is None or isinstance(default, str)
        else default
    }


def _aligned(x: typing.Any) -> typing.Any:
    """An array of NumPy's as XLA takes it in place.
    It copies others on its threads, which may all be in functions.
    """
    if isinstance(x, jax.Array) or getattr(x, "nbytes", 0) <= _AT_ONCE:
        return x
    dtype = np.dtype(jax.dtypes.canonicalize_dtype(x.dtype))
    size = x.size * dtype.itemsize
    room = np.empty(size + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    copy = room[start : start + size].view(dtype).reshape(x.shape)
    copy[...] = x
    return copy


class _Guard(_compat.EvalTrace):  # type: ignore[misc]
    """Computes at once, as JAX does outside of transformations, what it does not refuse."""

    def refusal(self, primitive: typing.Any, args: _Args, params: _Params) -> Exception | None:
        raise NotImplementedError

    def _check(self, primitive: typing.Any, args: _Args, params: _Params) -> None:
        if (refused := self.refusal(primitive, args, params)) is not None:
            raise refused

    def process_primitive(
        self, primitive: typing.Any, args: typing.Any, params: typing.Any, /
    ) -> typing.Any:
        self._check(primitive, args, params)
        return super().process_primitive(primitive, args, params)

    def process_custom_jvp_call(
        self,
        primitive: typing.Any,
        fun: typing.Any,
        jvp: typing.Any,
        args: typing.Any,
        /,
        **params: typing.Any,
    ) -> typing.Any:
        self._check(primitive, args, {})
        return super().process_custom_jvp_call(primitive, fun, jvp, args, **params)

    def process_custom_vjp_call(
        self,
        primitive: typing.Any,
        fun: typing.Any,
        fwd: typing.Any,
        bwd: typing.Any,
        args: typing.Any,
        /,
        **params: typing.Any,
    ) -> typing.Any:
        self._check(primitive, args, {})
        return super().process_custom_vjp_call(primitive, fun, fwd, bwd, args, **params)


class _InFunction(_Guard):
    """JAX on the device that waits for this thread may wait for itself; on others it does not."""

    def process_primitive(
        self, primitive: typing.Any, args: typing.Any, params: typing.Any, /
    ) -> typing.Any:
        if primitive.name in _COPIES:
            args = [_aligned(x) for x in args]
        if primitive.name == "stage" and not isinstance(args[0], jax.Array):
            return jax.device_put(args[0])  # JAX 0.12 runs a program for it
        return super().process_primitive(primitive, args, params)

    def refusal(self, primitive: typing.Any, args: _Args, params: _Params) -> Exception | None:
        place = _postern.guest_place()
        if primitive.name in _COPIES or place is None:
            return None
        platform, number = place
        # Where all devices wait, so may all threads that XLA has for them.
        busy = _compat.devices_at(platform, None if number == _SEVERAL else number)
        found = _devices_of(args).intersection(busy)
        if not found:
            return None
        where = "" if number == _SEVERAL else ", or on another device (jax.default_device)"
        return ReentryError(
            _REENTRY,
            f"a function that a program calls used JAX ({primitive.name}) on {found.pop()}, "
            f"which waits for the function: compute with NumPy there{where}",
        )


_FORKED = (
    "this process was forked from one that uses JAX, whose threads it does not have: "
    'start processes with multiprocessing.get_context("spawn")'
)


class _InForked(_Guard):
    """Of XLA's threads none are in a process that was forked off."""

    def refusal(self, primitive: typing.Any, args: _Args, params: _Params) -> Exception | None:
        return (
            Error(FAILED_PRECONDITION, _FORKED) if _compat.calls_host(primitive, params) else None
        )


_in_forked = _InForked()

_postern.guard(_compat.trace_context, _InFunction())


def refuse_inside(what: str) -> None:
    """What waits for programs, in a function that one of them waits for,
    or whose queue it fills.
    """
    if _postern.inside_device() >= 0:
        raise ReentryError(
            _REENTRY,
            f"{what} inside a host function may wait for the program that calls or taps it: "
            "wait outside of functions",
        )


_forked = False


def _note_fork() -> None:
    global _forked
    if _compat.has_backends():
        _forked = True
        _compat.trace_context.set_trace(_in_forked)


os.register_at_fork(after_in_child=_note_fork)


def refuse_forked() -> None:
    if _forked:
        raise Error(FAILED_PRECONDITION, _FORKED)
