"""What Python and the module say to each other about host functions."""

from __future__ import annotations

import functools
import inspect
import json
import typing


def _value(entry: dict[str, typing.Any]) -> typing.Any:
    ((kind, value),) = entry.items()
    if "double" in kind:
        return [float(v) for v in value] if isinstance(value, list) else float(value)
    return value


def parsed(text: str) -> dict[str, typing.Any]:
    """Attributes from their JSON, where each has its type: {"factor": {"double": "3"}}."""
    return {name: _value(entry) for name, entry in json.loads(text).items()}


class with_info:
    """`function`, which is told of each firing by its keyword `info`: a postern.Info, and in calls
    and taps of postern.jax a postern.jax.Info.
    """

    def __init__(self, function: typing.Callable[..., typing.Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        return self.function(*args, **kwargs)

    def __get__(self, instance: typing.Any, owner: typing.Any = None) -> with_info:
        if instance is None or not hasattr(self.function, "__get__"):
            return self
        return with_info(self.function.__get__(instance, owner))


def check_function(package: str, function: typing.Any) -> None:
    """Refuses what returns before it has done anything."""
    asked = function
    while isinstance(asked, (functools.partial, with_info)):
        asked = asked.func if isinstance(asked, functools.partial) else asked.function
    if not inspect.isfunction(asked) and not inspect.ismethod(asked):
        asked = getattr(type(asked), "__call__", None)
    for kind, is_such in (
        ("async def", inspect.iscoroutinefunction),
        ("generator", inspect.isgeneratorfunction),
        ("generator", inspect.isasyncgenfunction),
    ):
        if is_such(asked):
            name = getattr(function, "__qualname__", type(function).__qualname__)
            raise TypeError(
                f"{package}: {name} is a function of kind '{kind}', whose call does nothing yet: "
                "give a function that runs it (asyncio.run, list)"
            )
