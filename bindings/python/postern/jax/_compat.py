"""All that is used of JAX's private modules, tried with JAX 0.10.2."""

from __future__ import annotations

import importlib
import re
import typing

import jax
from jax.errors import JaxRuntimeError

from .. import _postern
from .._errors import Error

core: typing.Any = importlib.import_module("jax._src.core")
effects: typing.Any = importlib.import_module("jax._src.effects")
ad: typing.Any = importlib.import_module("jax._src.interpreters.ad")
batching: typing.Any = importlib.import_module("jax._src.interpreters.batching")
mlir: typing.Any = importlib.import_module("jax._src.interpreters.mlir")

Primitive = core.Primitive
ShapedArray = core.ShapedArray
Zero = ad.Zero
primitive_jvps = ad.primitive_jvps
primitive_batchers = batching.primitive_batchers
barrier: typing.Callable[[], typing.Any] = jax.effects_barrier


class Effect(effects.Effect):  # type: ignore[misc]
    """A call that is neither dropped nor made twice."""


class PureEffect(effects.Effect):  # type: ignore[misc]
    """A call that XLA may leave out. Without an effect JAX would raise its failures as ValueError."""


class OrderedEffect(effects.Effect):  # type: ignore[misc]
    """A call that comes after those before it."""


PURE, UNORDERED, ORDERED = PureEffect(), Effect(), OrderedEffect()
for kind in (PureEffect, Effect, OrderedEffect):
    for allowed in (effects.lowerable_effects, effects.control_flow_allowed_effects, effects.remat_allowed_effects,
                    effects.custom_derivatives_allowed_effects):
        allowed.add_type(kind)
for kind in (Effect, OrderedEffect):
    effects.partial_eval_kept_effects.add_type(kind)
effects.ordered_effects.add_type(OrderedEffect)


def lower(ctx: typing.Any, target: str, operands: typing.Sequence[typing.Any], effect: typing.Any,
          attributes: dict[str, typing.Any], keep: typing.Any) -> typing.Any:
    """The custom call, with a token among its operands and results where it is ordered. `keep` lives as long as the program."""
    ctx.module_context.add_keepalive(keep)
    rule = jax.ffi.ffi_lowering(target, has_side_effect=effect is not PURE)
    if effect is not ORDERED:
        return rule(ctx, *operands, **attributes)
    token = core.abstract_token
    inner = ctx.replace(avals_in=[token, *ctx.avals_in], avals_out=[token, *ctx.avals_out])
    after, *results = rule(inner, ctx.tokens_in.get(effect), *operands, **attributes)
    ctx.set_tokens_out(mlir.TokenSet({effect: after}))
    return results


def register_lowering(primitive: typing.Any, rule: typing.Callable[..., typing.Any]) -> None:
    mlir.register_lowering(primitive, rule, platform="cpu")


# --- JAX's errors: those that came of a host function are raised as what they are

_NUMBER = re.compile(r"\[postern failure (\d+)\]")


def _raised(cls: type, *args: typing.Any) -> BaseException:
    found = _NUMBER.search(str(args[0])) if cls is JaxRuntimeError and args else None
    if found:
        try:
            _postern.guest_failure(int(found.group(1)))
        except Error as e:
            return _as_jax_error(e)
    return RuntimeError.__new__(cls, *args)


def _as_jax_error(error: Error) -> BaseException:
    """The same error as one that `except JaxRuntimeError` finds too."""
    kind = type(error)
    members = {"__module__": kind.__module__, "__str__": Exception.__str__, "code": error.code,
               "__init__": lambda *_: None}  # JAX would initialise what it gets
    made: BaseException = RuntimeError.__new__(type(kind.__name__, (kind, JaxRuntimeError), members), str(error))
    made.__cause__ = error.__cause__
    return made


JaxRuntimeError.__new__ = _raised
