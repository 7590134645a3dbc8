"""How calls stand in JAX's programs."""

from __future__ import annotations

import functools
import typing

import jax
import jax.export

from .. import _postern
from . import _compat


#: JAX's names of the platforms whose programs can call, and XLA's.
PLATFORMS = {"cpu": "cpu", "cuda": "CUDA"}


def register_handlers(target: str, platforms: typing.Iterable[str]) -> None:
    """What XLA enters for the custom calls, where it has devices of these platforms."""
    for platform in PLATFORMS.keys() & set(platforms):
        if _compat.has_platform(platform):
            _register(target, platform)


@functools.cache
def _register(target: str, platform: str) -> None:
    """XLA refuses handlers that come before the backend, or before the type of their state."""
    guest = _postern.guest(platform)
    state = {key: guest[key] for key in ("type_id", "type_info")}
    stages = {key: guest[key] for key in ("instantiate", "execute")}
    jax.ffi.register_ffi_type(target, typing.cast(typing.Any, state), platform=PLATFORMS[platform])
    jax.ffi.register_ffi_target(target, stages, platform=PLATFORMS[platform])


_exported: list[typing.Any] = []  # what artifacts of this process call


def lower(
    ctx: typing.Any,
    target: str,
    operands: typing.Sequence[typing.Any],
    results: typing.Sequence[typing.Any],
    effect: typing.Any,
    attributes: dict[str, typing.Any],
    keep: typing.Any,
    what: str,
    placed: bool,
) -> typing.Any:
    """The custom call, with a token among its operands and results where it is ordered.
    `keep` lives as long as the program.
    `placed`: the function is told where on the mesh the device is.
    """
    if _compat.for_export(ctx):  # artifacts keep nothing
        _exported.append(keep)
    else:
        ctx.module_context.add_keepalive(keep)
    axes = _compat.mesh_axes(ctx) if placed else []
    avals = [*ctx.avals_in]
    if axes:
        attributes["axes"] = "\n".join(
            f"{size} {_name_of(name, i)}" for i, (name, size) in enumerate(axes)
        )
        operands = [*operands, _compat.mesh_position(ctx, axes)]
        avals.append(_compat.POSITION)
    make = _compat.build_ffi_lowering_function(target, has_side_effect=effect is not None)
    if effect != _compat.ORDERED:
        call = make(ctx.replace(avals_in=avals, avals_out=results), *operands, **attributes)
        if effect is not None:  # which each device may call with the whole
            _set_sharding(ctx, call, results, what)
        return call.results
    if any(jax.export.is_symbolic_dim(n) for a in (*avals, *results) for n in a.shape):
        raise NotImplementedError(
            f"postern.jax: {what} is ordered, and has arrays of symbolic shapes, which JAX "
            "does not refine beside a token: let it be unordered"
        )
    token = _compat.abstract_token
    inner = ctx.replace(avals_in=[token, *avals], avals_out=[token, *results])
    call = make(inner, ctx.tokens_in.get(effect), *operands, **attributes)
    _set_sharding(ctx, call, inner.avals_out, what)
    ctx.set_tokens_out(_compat.TokenSet({effect: call.results[0]}))
    return call.results[1:]


def _name_of(axis: typing.Any, i: int) -> str:
    return axis if isinstance(axis, str) and axis.isprintable() and axis else f"axis {i}"


def _set_sharding(ctx: typing.Any, call: typing.Any, results: typing.Any, what: str) -> None:
    """On several devices: within shard_map each calls for its part. Where JAX cuts the program,
    that is so too; but in artifacts, which do not say for which devices.
    """
    within = ctx.module_context.axis_context
    sharding = (
        _compat.callback_sharding(within, results)
        if getattr(within, "num_devices", 2) != 1
        else None
    )
    if isinstance(sharding, _compat.SdyArrayList):
        if not hasattr(within, "manual_axes"):
            raise NotImplementedError(
                f"postern.jax: {what} is in an artifact for {within.num_devices} devices, "
                "which does not say for which; have it within jax.shard_map, where each device "
                "enters the function with its part"
            )
    elif sharding is not None:
        _compat.set_sharding(ctx, call, sharding)


def vary(
    results: typing.Sequence[typing.Any], operands: typing.Sequence[typing.Any]
) -> list[typing.Any]:
    """Within shard_map: what is made of values that differ by device differs by device."""
    if not manual_axes():
        return list(results)
    axes: set[str] = set()
    for x in operands:
        aval = getattr(x, "aval", None)
        axes |= (
            getattr(getattr(aval, "mat", aval), "varying", None)
            or getattr(aval, "vma", None)
            or set()
        )
    return [_compat.pvary(r, tuple(sorted(axes))) for r in results] if axes else list(results)


def manual_axes() -> tuple[str, ...]:
    """Of the mesh, inside of shard_map."""
    return tuple(jax.sharding.get_abstract_mesh().manual_axes)
