"""What the module asks of Python about host functions, once for each."""

from __future__ import annotations

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


def wants_info(function: typing.Callable[..., typing.Any]) -> bool:
    """Whether a function has a parameter `info` that can be given by name."""
    code = getattr(function, "__code__", None)
    # The answer of inspect.signature, a hundred times as fast.
    if code is not None and not hasattr(function, "__wrapped__"):
        names = code.co_varnames
        return "info" in names[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # such as NumPy's own
        return False
    return "info" in parameters and parameters["info"].kind is not inspect.Parameter.POSITIONAL_ONLY
