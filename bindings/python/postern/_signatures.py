"""What `inspect.signature` and `await` find on the module's classes."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import typing

from . import _postern

_P = inspect.Parameter


def _named(name: str, default: typing.Any = _P.empty) -> inspect.Parameter:
    return _P(name, _P.POSITIONAL_OR_KEYWORD, default=default)


class _Signature:
    """Of a class; and of an instance, which `of` makes."""

    def __init__(
        self,
        parameters: typing.Sequence[inspect.Parameter],
        of: typing.Callable[[typing.Any], inspect.Signature] | None = None,
    ) -> None:
        self._class, self._of = inspect.Signature(parameters), of

    def __get__(self, instance: typing.Any, owner: typing.Any = None) -> inspect.Signature:
        if instance is None or self._of is None:
            return self._class
        return self._of(instance)


def _of_program(program: _postern.Program) -> inspect.Signature:
    """Its arguments, by the names that the file has for them, if these are Python's."""
    names = program.input_names
    named = all(n.isidentifier() for n in names) and len(set(names)) == len(names)
    kind = _P.POSITIONAL_OR_KEYWORD if named else _P.POSITIONAL_ONLY
    parameters = [
        _P(name if named else f"argument{i}", kind, annotation=type)
        for i, (name, type) in enumerate(zip(names, program.inputs))
    ]
    return inspect.Signature(parameters, return_annotation=program.outputs)


_ARGUMENTS = [_P("arguments", _P.VAR_POSITIONAL), _P("named", _P.VAR_KEYWORD)]
for _kind, _signature in {
    "Tensor": _Signature([_named("value")]),
    "Program": _Signature(_ARGUMENTS, _of_program),
    "Bridge": _Signature([]),
    "Run": _Signature([]),
    "Request": _Signature([]),
    "Info": _Signature([]),
}.items():
    setattr(getattr(_postern, _kind), "__signature__", _signature)


async def _result(run: _postern.Run) -> typing.Any:
    """Waits on a thread of its own. An executor has few, and the loop's end waits for them."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def tell(settle: typing.Callable[[typing.Any], None], outcome: typing.Any) -> None:
        def settled() -> None:
            if not ended.done():  # cancelled
                settle(outcome)

        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settled)

    def wait() -> None:
        try:
            made = run.result()
        except BaseException as e:
            tell(ended.set_exception, e)
        else:
            tell(ended.set_result, made)

    threading.Thread(target=wait, daemon=True, name="postern.await").start()
    try:
        return await ended
    except asyncio.CancelledError:
        run.cancel()
        raise


def awaited(run: _postern.Run) -> typing.Any:
    """What `await run` waits for."""
    return _result(run).__await__()
