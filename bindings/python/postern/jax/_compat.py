"""All that is used of JAX's private modules, tried with JAX 0.6 to 0.10."""

from __future__ import annotations

import importlib
import inspect
import typing

import jax

OLDEST, NEWEST = (0, 6), (0, 10)
if not OLDEST <= jax.__version_info__[:2] <= NEWEST:
    raise ImportError(f"postern.jax: JAX {jax.__version__} is {'too new' if jax.__version_info__[:2] > NEWEST else 'too old'}: this version of "
                      "Postern is tried with JAX 0.6 to 0.10; have pip install 'jax>=0.6,<0.11', or a newer Postern")

core: typing.Any = importlib.import_module("jax._src.core")
effects: typing.Any = importlib.import_module("jax._src.effects")
callback: typing.Any = importlib.import_module("jax._src.callback")
ffi: typing.Any = importlib.import_module("jax._src.ffi")
ad: typing.Any = importlib.import_module("jax._src.interpreters.ad")
batching: typing.Any = importlib.import_module("jax._src.interpreters.batching")
mlir: typing.Any = importlib.import_module("jax._src.interpreters.mlir")

Primitive = core.Primitive
ShapedArray = core.ShapedArray
Zero = ad.Zero
primitive_jvps = ad.primitive_jvps
primitive_batchers = batching.primitive_batchers
fancy_primitive_batchers = batching.fancy_primitive_batchers
jaxpr_as_fun = core.jaxpr_as_fun
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
if hasattr(effects, "partial_eval_kept_effects"):  # not in 0.6.0
    for kind in (Effect, OrderedEffect):
        effects.partial_eval_kept_effects.add_type(kind)
effects.ordered_effects.add_type(OrderedEffect)
effects.shardable_ordered_effects.add_type(OrderedEffect)


def lower(ctx: typing.Any, target: str, operands: typing.Sequence[typing.Any], effect: typing.Any,
          attributes: dict[str, typing.Any], keep: typing.Any, what: str) -> typing.Any:
    """The custom call, with a token among its operands and results where it is ordered. `keep` lives as long as the program."""
    ctx.module_context.add_keepalive(keep)
    make = ffi.build_ffi_lowering_function(target, has_side_effect=effect is not PURE)
    if effect is not ORDERED:
        call = make(ctx, *operands, **attributes)
        if effect is not PURE:  # which each device may call with the whole
            _set_sharding(ctx, call, ctx.avals_out, what)
        return call.results
    token = core.abstract_token
    inner = ctx.replace(avals_in=[token, *ctx.avals_in], avals_out=[token, *ctx.avals_out])
    call = make(inner, ctx.tokens_in.get(effect), *operands, **attributes)
    _set_sharding(ctx, call, inner.avals_out, what)
    ctx.set_tokens_out(mlir.TokenSet({effect: call.results[0]}))
    return call.results[1:]


_SHARDING_TAKES_CONTEXT = len(inspect.signature(mlir.set_sharding).parameters) == 3


def _set_sharding(ctx: typing.Any, call: typing.Any, results: typing.Any, what: str) -> None:
    """On several devices: within shard_map each calls for its part, else the first one with the whole; Shardy has no such calls."""
    within = ctx.module_context.axis_context
    sharding = callback._callback_op_sharding(within, None, results) if getattr(within, "num_devices", 2) != 1 else None
    if isinstance(sharding, mlir.SdyArrayList):
        if not hasattr(within, "manual_axes"):
            raise NotImplementedError(f"postern.jax: {what} is in a program that JAX cuts for {within.num_devices} devices; have it within jax.shard_map, "
                                      "where each device enters the function with its part")
    elif sharding is not None:
        mlir.set_sharding(*([ctx.module_context] if _SHARDING_TAKES_CONTEXT else []), call, sharding)


def for_export(ctx: typing.Any) -> bool:
    """Whether what is lowered is to leave the process."""
    return bool(ctx.module_context.lowering_parameters.for_export)


def register_lowering(primitive: typing.Any, rule: typing.Callable[..., typing.Any]) -> None:
    mlir.register_lowering(primitive, rule, platform="cpu")
