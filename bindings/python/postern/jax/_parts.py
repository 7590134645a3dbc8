"""Calls and taps of parts: in a program that JAX cuts, each device enters the function with its
own part of the operands, however XLA has spread them.
"""

from __future__ import annotations

import dataclasses
import functools
import typing

import jax

from . import _compat

_TARGET = "postern_parts"
_pending: dict[bytes, _Asked] = {}  # by what stands in the program


@dataclasses.dataclass(frozen=True)
class _Asked:
    bind: typing.Callable[..., typing.Any]  # of the parts, and the types of their results
    mesh: typing.Any
    like: tuple[int, ...]  # for each result the operand that it is spread as
    context: typing.Any


def like(what: str, operands: typing.Sequence[typing.Any], results: typing.Any) -> tuple[int, ...]:
    """For each result the first operand of its shape. Raises ValueError."""
    shapes = [tuple(x.shape) for x in operands]
    for result in results:
        if tuple(result.shape) not in shapes:
            raise ValueError(
                f"postern.jax: {what} is partitioned, and has a result of shape "
                f"{tuple(result.shape)}, which no operand has: its parts are spread as an operand's"
            )
    return tuple(shapes.index(tuple(r.shape)) for r in results)


def lower(
    ctx: typing.Any,
    key: str,
    bind: typing.Callable[..., typing.Any],
    mesh: typing.Any,
    operands: typing.Any,
    spread: tuple[int, ...],
    effect: typing.Any,
) -> typing.Any:
    """A custom call that becomes one for parts when XLA has said how the operands lie."""
    _register()
    name = key.encode()
    _pending[name] = asked = _Asked(bind, mesh, spread, ctx.module_context)
    ctx.module_context.add_keepalive(_Forgets(name, asked))
    return _compat.partitioned_call(
        _TARGET, key, operands, ctx.avals_in, ctx.avals_out, spread, effect is not None
    )


def one_by_one(
    bind: typing.Callable[..., typing.Any], mapped: typing.Sequence[bool]
) -> typing.Callable[..., typing.Any]:
    """`bind` of each element of a batch: XLA may cut vmap's axis as well."""

    def each(*operands: typing.Any) -> typing.Any:
        def fire(batch: typing.Any) -> typing.Any:
            given = iter(batch)
            return bind(*(next(given) if m else x for x, m in zip(operands, mapped)))

        return jax.lax.map(fire, [x for x, m in zip(operands, mapped) if m])

    return each


def first(
    what: str, bind: typing.Callable[..., typing.Any], axes: tuple[typing.Any, ...], shown: bool
) -> typing.Callable[..., typing.Any]:
    """`bind` on the first of the devices that have a part, in a shard_map that leaves `axes` to
    JAX. Raises NotImplementedError.
    """
    if not shown:
        raise NotImplementedError(
            f"postern.jax: {what} is in a shard_map that leaves {', '.join(map(str, axes))} to "
            "JAX, where pure calls are made, and unordered taps and prints of all that is there: "
            "name all axes of the mesh in axis_names"
        )

    def made(*operands: typing.Any) -> tuple[()]:
        is_first = jax.lax.axis_index(axes) == 0
        jax.lax.cond(is_first, lambda: (bind(*operands), ())[1], lambda: ())
        return ()

    spec = typing.cast(typing.Any, jax.sharding).PartitionSpec()
    return jax.shard_map(made, in_specs=spec, out_specs=(), check_vma=False)


class _Forgets:
    """Lives as long as the program."""

    def __init__(self, name: bytes, asked: _Asked) -> None:
        self._name, self._asked = name, asked

    def __del__(self) -> None:
        if _pending.get(self._name) is self._asked:
            _pending.pop(self._name, None)


@functools.cache
def _register() -> None:
    _compat.register_partitioner(_TARGET, _keep, _partition, _infer)


def _keep(sharding: typing.Any, shape: typing.Any, key: bytes) -> typing.Any:
    return sharding


def _results(asked: _Asked, shape: typing.Any, shardings: typing.Any) -> typing.Any:
    """Those of the operands that they are like."""
    return _compat.packed(shape, [shardings[i] for i in asked.like])


def _infer(shapes: typing.Any, shardings: typing.Any, shape: typing.Any, key: bytes) -> typing.Any:
    return _results(_pending[key], shape, shardings)


def _partition(
    shapes: typing.Any, shardings: typing.Any, shape: typing.Any, _: typing.Any, key: bytes
) -> typing.Any:
    asked = _pending[key]
    parts = [_compat.part_type(sharding, s) for sharding, s in zip(shardings, shapes)]
    wholes = shape.tuple_shapes() if shape.is_tuple() else (shape,)
    results = [_compat.part_type(shardings[i], s) for i, s in zip(asked.like, wholes)]
    module = _compat.module_of_parts(
        lambda *x: asked.bind(x, results), parts, asked.mesh, asked.context
    )
    return module, shardings, _results(asked, shape, shardings)
