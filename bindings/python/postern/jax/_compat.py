"""All that is used of JAX's private modules, tried with JAX 0.6 to 0.10."""

from __future__ import annotations

import importlib
import inspect
import typing

import jax

from .. import _postern

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
xla_client: typing.Any = importlib.import_module("jaxlib.xla_client")

Primitive = core.Primitive
ShapedArray = core.ShapedArray
Zero = ad.Zero
primitive_jvps = ad.primitive_jvps
primitive_transposes = ad.primitive_transposes
instantiate = ad.instantiate_zeros
trace_context = core.trace_ctx
primitive_batchers = batching.primitive_batchers
fancy_primitive_batchers = batching.fancy_primitive_batchers
jaxpr_as_fun = core.jaxpr_as_fun
barrier: typing.Callable[[], typing.Any] = jax.effects_barrier


class HostEffect(effects.Effect):  # type: ignore[misc]
    """All of a kind are equal, as jax.export wants it."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class Effect(HostEffect):
    """A call that is neither dropped nor made twice."""


class PureEffect(HostEffect):
    """A call that XLA may leave out. Without an effect JAX would raise its failures as ValueError."""


class OrderedEffect(HostEffect):
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


def register_handlers(target: str) -> None:
    """What XLA enters for the custom calls. It refuses handlers that come before the backend, or before the type of their state."""
    jax.local_devices(backend="cpu")
    guest = _postern.guest()
    if hasattr(xla_client, "register_custom_type_id"):  # until 0.8.0
        jax.ffi.register_ffi_type_id(target, guest["type_id"], platform="cpu")
    else:
        jax.ffi.register_ffi_type(target, {"type_id": guest["type_id"], "type_info": guest["type_info"]}, platform="cpu")
    jax.ffi.register_ffi_target(target, {"instantiate": guest["instantiate"], "execute": guest["execute"]}, platform="cpu")


def lower(ctx: typing.Any, target: str, operands: typing.Sequence[typing.Any], results: typing.Sequence[typing.Any], effect: typing.Any,
          attributes: dict[str, typing.Any], keep: typing.Any, what: str) -> typing.Any:
    """The custom call, with a token among its operands and results where it is ordered. `keep` lives as long as the program."""
    ctx.module_context.add_keepalive(keep)
    make = ffi.build_ffi_lowering_function(target, has_side_effect=effect != PURE)
    if effect != ORDERED:
        call = make(ctx.replace(avals_out=results), *operands, **attributes)
        if effect != PURE:  # which each device may call with the whole
            _set_sharding(ctx, call, results, what)
        return call.results
    token = core.abstract_token
    inner = ctx.replace(avals_in=[token, *ctx.avals_in], avals_out=[token, *results])
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


def default_device() -> typing.Any:
    return typing.cast(typing.Any, jax.config).jax_default_device


def calls_host(primitive: typing.Any, params: dict[str, typing.Any]) -> bool:
    """Whether it is one of ours, or holds some."""
    return primitive.name.startswith("postern_") or any(
        isinstance(e, HostEffect) for jaxpr in core.jaxprs_in_params(params) for e in jaxpr.effects)


def manual_axes() -> tuple[str, ...]:
    """Of the mesh, inside of shard_map."""
    return tuple(jax.sharding.get_abstract_mesh().manual_axes)


def vary(results: typing.Sequence[typing.Any], operands: typing.Sequence[typing.Any]) -> list[typing.Any]:
    """Within shard_map: what is made of values that differ by device differs by device."""
    axes: set[str] = set()
    for x in operands:
        aval = getattr(x, "aval", None)
        axes |= getattr(getattr(aval, "mat", aval), "varying", None) or getattr(aval, "vma", None) or set()
    return [core.pvary(r, tuple(sorted(axes))) for r in results] if axes else list(results)


class GuardTrace(core.EvalTrace):  # type: ignore[misc]
    """Computes at once, as JAX does outside of transformations, what it does not refuse."""

    def refusal(self, primitive: typing.Any, args: typing.Sequence[typing.Any], params: dict[str, typing.Any]) -> Exception | None:
        raise NotImplementedError

    def _check(self, primitive: typing.Any, args: typing.Sequence[typing.Any], params: dict[str, typing.Any]) -> None:
        if (refused := self.refusal(primitive, args, params)) is not None:
            raise refused

    def process_primitive(self, primitive: typing.Any, args: typing.Any, params: typing.Any, /) -> typing.Any:
        self._check(primitive, args, params)
        return super().process_primitive(primitive, args, params)

    def process_custom_jvp_call(self, primitive: typing.Any, fun: typing.Any, jvp: typing.Any, args: typing.Any, /,
                                **params: typing.Any) -> typing.Any:
        self._check(primitive, args, {})
        return super().process_custom_jvp_call(primitive, fun, jvp, args, **params)

    def process_custom_vjp_call(self, primitive: typing.Any, fun: typing.Any, fwd: typing.Any, bwd: typing.Any, args: typing.Any, /,
                                **params: typing.Any) -> typing.Any:
        self._check(primitive, args, {})
        return super().process_custom_vjp_call(primitive, fun, fwd, bwd, args, **params)
