"""All that is used of JAX's private modules."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import gc
import importlib
import inspect
import itertools
import threading
import typing

import jax
import numpy as np

core: typing.Any = importlib.import_module("jax._src.core")
effects: typing.Any = importlib.import_module("jax._src.effects")
dispatch: typing.Any = importlib.import_module("jax._src.dispatch")
export: typing.Any = importlib.import_module("jax._src.export._export")
callback: typing.Any = importlib.import_module("jax._src.callback")
ffi: typing.Any = importlib.import_module("jax._src.ffi")
ad: typing.Any = importlib.import_module("jax._src.interpreters.ad")
batching: typing.Any = importlib.import_module("jax._src.interpreters.batching")
mlir: typing.Any = importlib.import_module("jax._src.interpreters.mlir")
parallel: typing.Any = importlib.import_module("jax._src.lax.parallel")
sharding_impls: typing.Any = importlib.import_module("jax._src.sharding_impls")
sharding_rule: typing.Any = importlib.import_module(
    "jax._src.custom_partitioning_sharding_rule"
)
pjit: typing.Any = importlib.import_module("jax._src.pjit")
util: typing.Any = importlib.import_module("jax._src.util")
xla_bridge: typing.Any = importlib.import_module("jax._src.xla_bridge")
xla_client: typing.Any = importlib.import_module("jax._src.lib").xla_client
extension: typing.Any = importlib.import_module("jax._src.lib")._jax  # jaxlib's own module

Primitive = core.Primitive
ShapedArray = core.ShapedArray
Zero = ad.Zero
POSITION = ShapedArray((), np.dtype(np.uint32))  # on a mesh
primitive_jvps = ad.primitive_jvps
primitive_transposes = ad.primitive_transposes
instantiate = ad.instantiate_zeros
trace_context = core.trace_ctx
primitive_batchers = batching.primitive_batchers
EvalTrace = core.EvalTrace
abstract_token = core.abstract_token
pvary = core.pvary
build_ffi_lowering_function = ffi.build_ffi_lowering_function
SdyArrayList = mlir.SdyArrayList
lower_fun = mlir.lower_fun
TokenSet = mlir.TokenSet
fancy_primitive_batchers = batching.fancy_primitive_batchers
jaxpr_as_fun = core.jaxpr_as_fun
eval_jaxpr = core.eval_jaxpr
_Made = typing.TypeVar("_Made", bound=typing.Callable[..., typing.Any])
_effects_barrier: typing.Callable[[], typing.Any] = jax.effects_barrier


class HostEffect(effects.Effect):  # type: ignore[misc]
    """All of a kind are equal, as jax.export wants it."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class Effect(HostEffect):
    """A call that is neither dropped nor made twice."""


class OrderedEffect(HostEffect):
    """A call that comes after those before it."""


UNORDERED, ORDERED = Effect(), OrderedEffect()
for kind in (Effect, OrderedEffect):
    for allowed in (
        effects.lowerable_effects,
        effects.control_flow_allowed_effects,
        effects.remat_allowed_effects,
        effects.custom_derivatives_allowed_effects,
        effects.partial_eval_kept_effects,
    ):
        allowed.add_type(kind)
effects.ordered_effects.add_type(OrderedEffect)
effects.shardable_ordered_effects.add_type(OrderedEffect)

_SHARDING_TAKES_CONTEXT = len(inspect.signature(mlir.set_sharding).parameters) == 3


def set_sharding(ctx: typing.Any, call: typing.Any, sharding: typing.Any) -> None:
    mlir.set_sharding(*([ctx.module_context] if _SHARDING_TAKES_CONTEXT else []), call, sharding)


def allow_export(target: str) -> None:
    """Artifacts of jax.export may have custom calls to it: any Postern knows them."""
    export._CUSTOM_CALL_TARGETS_GUARANTEED_STABLE.add(target)


def before_exported(
    target: str, act: typing.Callable[[str, typing.Iterable[str]], None]
) -> None:
    """`act(target, platforms)` before JAX compiles an artifact that has custom calls to it:
    their lowering was another process's.
    """
    rule = export._call_exported_lowering

    def lower(ctx: typing.Any, *args: typing.Any, exported: typing.Any) -> typing.Any:
        if target.encode() in exported.mlir_module_serialized:
            act(target, platforms_of(ctx))
        return rule(ctx, *args, exported=exported)

    mlir.register_lowering(export.call_exported_p, lower)


_numbers = itertools.count()
_living: set[int] = set()


class _Number:
    """A thread's own, unlike an ident, which another one has after it."""

    def __init__(self) -> None:
        self.value = next(_numbers)
        _living.add(self.value)

    def __del__(self, living: set[int] = _living) -> None:
        living.discard(self.value)


class _Here(threading.local):
    def __init__(self) -> None:
        self.number = _Number()


_here = _Here()

# By thread and device or effect: the last program's token.
_begun: dict[tuple[int, typing.Any], typing.Any] = {}


def _noted(set_token: typing.Callable[..., None]) -> typing.Callable[..., None]:
    def noted(tokens: typing.Any, key: typing.Any, token: typing.Any) -> None:
        set_token(tokens, key, token)
        _begun[_here.number.value, key] = token
        if len(_begun) > _Retiring.limit and _Retiring.alone.acquire(blocking=False):
            try:
                threading.Thread(target=_retire, daemon=True, name="postern.retire").start()
            except RuntimeError:  # there is no thread, or the interpreter ends
                _Retiring.alone.release()

    return noted


class _Retiring:
    limit = 1000
    alone = threading.Lock()


def _retire() -> None:
    """Waits for the programs of threads that have ended, so that their tokens need not be kept."""
    try:
        for key, token in list(_begun.items()):
            if key[0] not in _living:
                _wait_for(key, token)
        _Retiring.limit = 1000 + 2 * len(_begun)
    finally:
        _Retiring.alone.release()


def _wait_for(key: tuple[int, typing.Any], token: typing.Any) -> None:
    try:
        token.block_until_ready()
    except Exception as e:
        _miss(e)
        _forget(token)
    if _begun.get(key) is token:
        _begun.pop(key, None)


for _name in ("set_output_runtime_token", "set_token_result"):
    setattr(dispatch.RuntimeTokenSet, _name, _noted(getattr(dispatch.RuntimeTokenSet, _name)))


_missed: list[BaseException] = []  # failures that nobody has seen


def _fresh(get_token: typing.Callable[..., typing.Any]) -> typing.Callable[..., typing.Any]:
    """JAX gives the token of a program that failed to the next one, which then fails as well."""

    def fresh(tokens: typing.Any, effect: typing.Any, devices: typing.Any) -> typing.Any:
        kept = tokens.current_tokens.get(effect) if effect == ORDERED else None
        if kept is not None:
            try:
                kept.block_until_ready()
            except Exception as e:
                _miss(e)
                _forget(kept)
        return get_token(tokens, effect, devices)

    return fresh


dispatch.RuntimeTokenSet.get_token_input = _fresh(dispatch.RuntimeTokenSet.get_token_input)


def barrier(untold: typing.Iterable[BaseException]) -> None:
    """jax.effects_barrier, which waits for what its own thread has begun, for all threads.
    Raises one failure that nobody has seen: of these, or, once they have ended, of `untold`.
    """
    for key, token in list(_begun.items()):
        _wait_for(key, token)
    for failure in untold:
        _miss(failure)
    try:
        missed = _missed.pop(0)
    except IndexError:  # none, or another thread's barrier raises it
        _effects_barrier()
    else:
        raise missed


def _miss(failure: BaseException) -> None:
    """Keeps it for a barrier, which Ctrl-C may end before it has raised it. Of several devices one
    is enough.
    """
    if not getattr(failure, "told_before", False) and str(failure) not in map(str, _missed):
        _missed.append(failure)


def _forget(token: typing.Any) -> None:
    """JAX would raise its failure at each barrier, and in each ordered program."""
    for tokens in (
        dispatch.runtime_tokens.current_tokens,
        dispatch.runtime_tokens.output_runtime_tokens,
    ):
        for key in [key for key, kept in tokens.items() if kept is token]:
            tokens.pop(key)


def has_backends() -> bool:
    """Whether JAX has made any. Without its lock, which a fork may have left locked."""
    return bool(xla_bridge._backends)


def user_context() -> typing.Callable[[typing.Any], contextlib.AbstractContextManager[typing.Any]]:
    """What sets a value that is part of the keys of JAX's caches."""
    make: typing.Any = getattr(jax, "make_user_context")
    return typing.cast(typing.Callable[[typing.Any], typing.Any], make(None))


def has_platform(name: str) -> bool:
    """Whether JAX has devices of that platform."""
    return name in xla_bridge.backends()


def devices_at(platform: str, ordinal: int | None) -> list[typing.Any]:
    """The device that XLA knows by that number there; all of this process for None."""
    found = jax.local_devices(backend=platform)
    return [d for d in found if ordinal is None or d.local_hardware_id == ordinal]


def platforms_of(ctx: typing.Any) -> tuple[str, ...]:
    """Those that are lowered for."""
    return tuple(mlir._platforms_for_eqn(ctx))


def for_export(ctx: typing.Any) -> bool:
    """Whether what is lowered is to leave the process."""
    return bool(ctx.module_context.lowering_parameters.for_export)


def mesh_axes(ctx: typing.Any) -> list[tuple[typing.Any, int]]:
    """Names and sizes of the axes around what is lowered: of shard_map's mesh, and of pmap."""
    within = ctx.module_context.axis_context
    if not hasattr(within, "manual_axes"):
        return []
    # With those of an outer shard_map.
    manual = within.manual_axes | set(jax.sharding.get_abstract_mesh().manual_axes)
    return [(name, size) for name, size in within.mesh.shape.items() if name in manual]


def callback_sharding(within: typing.Any, results: typing.Sequence[typing.Any]) -> typing.Any:
    """Of a custom call that each device makes, or one of them, as JAX has it for its callbacks."""
    if hasattr(within, "manual_axes"):  # before JAX 0.10 without those of an outer shard_map
        outer = frozenset(jax.sharding.get_abstract_mesh().manual_axes)
        within = dataclasses.replace(within, manual_axes=within.manual_axes | outer)
    return callback._callback_op_sharding(within, None, results)


def axes_left(ctx: typing.Any) -> tuple[typing.Any, ...]:
    """Those of shard_map's mesh that it leaves to JAX."""
    within, manual = ctx.module_context.axis_context, [name for name, _ in mesh_axes(ctx)]
    names = within.mesh.axis_names if hasattr(within, "manual_axes") else ()
    return tuple(name for name in names if name not in manual)


def mesh_position(ctx: typing.Any, axes: typing.Sequence[tuple[typing.Any, int]]) -> typing.Any:
    """Where the device that runs the program is on them, row-major, as a value of the program."""
    within = ctx.module_context.axis_context
    hlo = mlir.hlo
    if hasattr(within, "manual_axes") and len(axes) == len(within.mesh.shape):
        return hlo.partition_id()
    rule_ctx = ctx.replace(
        primitive=None, avals_in=[], avals_out=[ShapedArray((), np.dtype(np.int32))]
    )
    position = mlir.ir_constant(np.zeros((), np.int32))
    for name, size in axes:
        (index,) = parallel._axis_index_lowering(rule_ctx, axis_name=name)
        position = hlo.add(
            hlo.multiply(position, mlir.ir_constant(np.array(size, np.int32))), index
        )
    return hlo.convert(
        mlir.ir.RankedTensorType.get([], mlir.ir.IntegerType.get_unsigned(32)), position
    )


def devices_in(ctx: typing.Any) -> int:
    """For how many devices JAX cuts the program; 1 within shard_map."""
    within = ctx.module_context.axis_context
    return 1 if hasattr(within, "mesh") else getattr(within, "num_devices", 1)


def mesh_of_cut(ctx: typing.Any) -> typing.Any:
    """The devices of a program that JAX cuts; None for others, and within shard_map."""
    within = ctx.module_context.axis_context
    if devices_in(ctx) == 1 or within.device_assignment is None:
        return None
    of, names, sizes = within.abstract_mesh, ("device",), (within.num_devices,)
    if of is not None:
        names, sizes = of.axis_names, of.axis_sizes
    return jax.sharding.Mesh(np.array(within.device_assignment).reshape(sizes), names)


def mesh_names(arrays: typing.Iterable[typing.Any]) -> tuple[str, ...]:
    """The axes that `mesh_of_cut` will have for a program of these arguments."""
    for x in arrays:
        sharding = getattr(x, "sharding", None)
        if isinstance(sharding, jax.sharding.NamedSharding) and sharding.num_devices > 1:
            return tuple(sharding.mesh.axis_names)
    return ("device",) if devices_of(arrays) > 1 else ()


def devices_of(arrays: typing.Iterable[typing.Any]) -> int:
    """Over how many they are spread at most."""
    return max([1, *(len(x.sharding.device_set) for x in arrays if isinstance(x, jax.Array))])


def bare(types: typing.Iterable[typing.Any]) -> tuple[typing.Any, ...]:
    """The same types, however they are spread."""
    return tuple(ShapedArray(t.shape, t.dtype) for t in types)


def lower_bare(
    fun: typing.Callable[..., typing.Any], ctx: typing.Any, operands: typing.Sequence[typing.Any]
) -> typing.Any:
    """What `fun` makes of operands, however they are spread."""
    return lower_fun(fun)(ctx.replace(avals_in=bare(ctx.avals_in)), *operands)


def takes_devices(primitive: typing.Any) -> None:
    """Its lowering asks which devices the program is for."""
    dispatch.prim_requires_devices_during_lowering.add(primitive)


def register_partitioner(target: str, *rules: typing.Callable[..., typing.Any]) -> None:
    """What XLA asks for custom calls to it: `rules` propagate, partition and infer."""
    for register in (
        xla_client.register_custom_call_partitioner,
        lambda *a, **k: xla_bridge.register_plugin_callbacks(
            functools.partial(xla_client.register_custom_call_partitioner, *a, **k)
        ),
    ):
        register(target, *rules, can_side_effecting_have_replicated_sharding=True)


def packed(shape: typing.Any, shardings: list[typing.Any]) -> typing.Any:
    """Shardings of results as one."""
    if not shape.is_tuple():
        return shardings[0]
    if not shardings:
        return sharding_impls.replicated_hlo_sharding
    return xla_client.HloSharding.tuple_sharding(shape, shardings)


def part_type(sharding: typing.Any, shape: typing.Any) -> typing.Any:
    """Of what a device has of a value of that shape."""
    part = sharding.tile(shape)
    return ShapedArray(part.dimensions(), part.numpy_dtype())


def module_of_parts(
    fun: typing.Callable[..., typing.Any],
    types: typing.Sequence[typing.Any],
    mesh: typing.Any,
    context: typing.Any,
) -> bytes:
    """A program that each device of the mesh runs with its own operands."""
    named = list(mesh.shape.items())
    closed = jax.make_jaxpr(fun, axis_env=named)(*types)
    with core.extend_axis_env_nd(named):
        module = mlir.build_mlir_module_helper(
            closed,
            name="postern_parts",
            platforms=context.platforms,
            backend=context.backend,
            axis_context=sharding_impls.SPMDAxisContext(mesh, frozenset(mesh.axis_names)),
        )
    return typing.cast(bytes, mlir.module_to_bytecode(module))


def partitioned_call(
    target: str,
    key: str,
    operands: typing.Sequence[typing.Any],
    avals_in: typing.Sequence[typing.Any],
    avals_out: typing.Sequence[typing.Any],
    like: typing.Sequence[int],
    has_side_effect: bool,
) -> typing.Any:
    """A custom call whose results are spread as the operands of these numbers."""
    ir = mlir.ir
    types = [
        ir.RankedTensorType.get(a.shape, mlir.dtype_to_ir_type(np.dtype(a.dtype)))
        for a in avals_out
    ]
    call = mlir.hlo.CustomCallOp(
        types,
        list(operands),
        call_target_name=ir.StringAttr.get(target),
        has_side_effect=ir.BoolAttr.get(has_side_effect),
        api_version=mlir.i32_attr(2),
        called_computations=ir.ArrayAttr.get([]),
        backend_config=ir.StringAttr.get(key),
        operand_layouts=None,
        result_layouts=None,
    )
    if types:
        axes = [
            " ".join(f"{_letters(i)}{d}" for d in range(a.ndim)) for i, a in enumerate(avals_in)
        ]
        text = ", ".join(axes) + " -> " + ", ".join(axes[i] for i in like)
        rule = sharding_rule.str_to_sdy_sharding_rule(text)
        call.attributes["sdy.sharding_rule"] = sharding_rule.sdy_sharding_rule_to_mlir(
            rule, [x.type for x in operands], types
        )
    return call.results


def _letters(i: int) -> str:
    return chr(ord("a") + i % 26) * (1 + i // 26)


def register_lowering(primitive: typing.Any, rule: typing.Callable[..., typing.Any]) -> None:
    """One for all platforms: programs for several have no branch for each."""
    mlir.register_lowering(primitive, rule)


ours: set[typing.Any] = set()  # primitives


def equations(jaxpr: typing.Any) -> typing.Iterator[typing.Any]:
    """Of a program, and of those in it."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in core.jaxprs_in_params(eqn.params):
            yield from equations(inner)


def calls_host(primitive: typing.Any, params: dict[str, typing.Any]) -> bool:
    """Whether it is one of ours, or holds some."""
    return primitive in ours or any(
        eqn.primitive in ours for jaxpr in core.jaxprs_in_params(params) for eqn in equations(jaxpr)
    )


def has_batched_predicate(
    axis: typing.Any,
    dims: typing.Sequence[typing.Any],
    cond_nconsts: int,
    cond_jaxpr: typing.Any,
    body_nconsts: int,
    body_jaxpr: typing.Any,
) -> bool:
    """Whether elements of a while loop under vmap end at different times: as JAX's rule asks it."""
    batched = [d is not None for d in dims]
    inner = cond_nconsts + body_nconsts
    consts, carry, before = batched[cond_nconsts:inner], batched[inner:], None
    while carry != before:
        before = carry
        _, after = batching.batch_jaxpr(body_jaxpr, axis, consts + carry, instantiate=carry)
        carry = [a or b for a, b in zip(carry, after)]
    _, (found,) = batching.batch_jaxpr(
        cond_jaxpr, axis, batched[:cond_nconsts] + carry, instantiate=False
    )
    return bool(found)


def names_axis(effects_of: typing.Iterable[typing.Any], name: typing.Any) -> bool:
    """Whether there is a collective over the axis of that name."""
    return core.NamedAxisEffect(name) in effects_of


def cache(size: int) -> typing.Callable[[_Made], _Made]:
    """As functools.lru_cache, and jax.clear_caches empties it."""
    return typing.cast(typing.Callable[[_Made], _Made], util.cache(max_size=size))


def held_weakly(kind: type) -> None:
    """JAX remembers types of what it has traced by such parameters, and is not to hold them."""
    util.weakref_cache_key_types.add(kind)


def for_jitted(act: typing.Callable[[typing.Any], None]) -> None:
    """`act` for all functions that jax.jit has made, and will make."""
    make = extension.pjit

    def made(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        jitted = make(*args, **kwargs)
        act(jitted)
        return jitted

    extension.pjit = made
    kind = type(jax.jit(lambda: None))
    for other in gc.get_objects():
        if type(other) is kind:
            act(other)


def for_fast_path(
    may_start: typing.Callable[[typing.Any, typing.Any], bool],
    ended: typing.Callable[[], typing.Any],
) -> None:
    """Whether JAX's fast path starts a program is asked of `may_start`, where the program has no
    effects but unordered ones of ours, and results; `ended` is asked after each run of JAX's
    Python.
    """
    rule = pjit._get_fastpath_data
    names = list(inspect.signature(rule).parameters)
    effects_at, out_at = names.index("effects"), names.index("out_flat")

    def data(executable: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        function = ended()
        if len(args) < max(effects_at, out_at):
            return rule(executable, *args, **kwargs)
        kinds, out = args[effects_at - 1], args[out_at - 1]
        program = getattr(executable, "unsafe_call", None)
        if (
            kinds
            and all(isinstance(kind, Effect) for kind in kinds)
            and out
            and getattr(program, "has_unordered_effects", False)
            and may_start(program, function)
        ):
            executable = copy.copy(executable)
            executable._unsafe_call = copy.copy(program)
            executable._unsafe_call.has_unordered_effects = False
        return rule(executable, *args, **kwargs)

    pjit._get_fastpath_data = data
