"""The primitives: custom calls of the library's, which enter host functions."""

from __future__ import annotations

import dataclasses
import functools
import operator
import os
import sys
import typing

import jax
import jax.export
import numpy as np

from . import _checks, _compat, _lowering, _packed, _parts, _version
from ._functions import Function, Python, Registered

_TARGET = "postern_guest"
_HERE = os.path.dirname(os.path.abspath(__file__))
_JAX = os.path.join(os.path.dirname(os.path.abspath(jax.__file__)), "")


@functools.cache
def _is_ours(file: str) -> bool:
    path = os.path.abspath(file)
    return os.path.dirname(path) == _HERE or path.startswith(_JAX)


def caller() -> tuple[str, int]:
    """Where in the user's source this package was entered, also by way of JAX."""
    frame: typing.Any = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _attribute(value: typing.Any) -> typing.Any:
    """Numbers are i64 and f64, lists of them arrays."""
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, tuple):
        return np.asarray(value, np.int64 if all(type(v) is int for v in value) else np.float64)
    return np.int64(value) if isinstance(value, int) else np.float64(value)


@dataclasses.dataclass(frozen=True)
class Site:
    """What a custom call says of itself."""

    function: Function
    name: str
    file: str
    line: int
    kind: str = "call"
    timeout: int = 0
    every: int = 1
    ordered: bool = False
    pure: bool = False
    vmap_method: str = "sequential"
    # of vmap, outermost first: size, and which operands have it in front
    levels: tuple[tuple[int, tuple[bool, ...]], ...] = ()
    transforms: tuple[typing.Any, ...] = ()
    # what vmap gives the batch as it is, and makes another function of the transforms until then
    of_transforms: typing.Callable[[typing.Any], Function] | None = None
    # attributes of the function's own, and how they are written, since 1 == 1.0
    own: tuple[tuple[str, typing.Any, str], ...] = ()
    paths: tuple[str, ...] = ()  # the operands' names
    results: tuple[typing.Any, ...] = ()  # their types
    partitioned: bool = False  # where JAX cuts the program, each device calls with its part
    # there else how many devices call with the whole, and which of them enters the function
    meets: int = 0
    leader: int = 0

    @functools.cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in dataclasses.fields(self)))

    def __hash__(self) -> int:  # which JAX asks for whenever it meets the call
        return self._hash

    def __str__(self) -> str:
        return (
            f"{self.kind if self.kind == 'call' else 'tap'} '{self.name}' "
            f"at {os.path.basename(self.file)}:{self.line}"
        )

    @property
    def effect(self) -> typing.Any:
        """None for a pure call: JAX starts programs without effects by its fast path."""
        if self.pure:
            return None
        return _compat.ORDERED if self.ordered else _compat.UNORDERED

    @property
    def effects(self) -> set[typing.Any]:
        """An ordered one is both: of programs compiled ahead of time JAX sees no ordered ones."""
        return set() if self.pure else {self.effect, _compat.UNORDERED}

    def attributes(self, for_export: bool) -> dict[str, typing.Any]:
        """Those of guest/call_attributes; what has its default is left out."""
        said: dict[str, typing.Any] = {
            "function": self.function.name_for(for_export),
            "name": self.name,
            "file": self.file,
            "kind": self.kind,
            "line": np.int64(self.line),
        }
        if isinstance(self.function, Registered) and not for_export:
            said["kept"] = np.int64(1)
        for key in ("timeout", "every", "meets", "leader"):
            if getattr(self, key) != getattr(Site, key):
                said[key] = np.int64(getattr(self, key))
        if any(jax.export.is_symbolic_dim(size) for size, _ in self.levels):
            raise NotImplementedError(
                f"postern.jax: {self} is under a vmap whose size is symbolic, {self.levels[0][0]}: "
                "give it vmap_method='expand_dims' or 'broadcast_all'"
            )
        if self.levels:
            said["levels"] = ",".join(
                f"{size}:{''.join('FT'[m] for m in mapped)}" for size, mapped in self.levels
            )
            said["parallel"] = np.int64(self.vmap_method == "parallel")
        if self.transforms and self.of_transforms is None:
            said["transforms"] = ",".join(self.transforms)
        if any(self.paths):
            said["paths"] = "\n".join(self.paths)
        said.update((f"with_{key}", _attribute(value)) for key, value, _ in self.own)
        return said

    def batched(self, size: int, mapped: typing.Sequence[bool]) -> Site:
        return dataclasses.replace(self, levels=((size, tuple(mapped)), *self.levels))

    def for_any(self) -> Site:
        """The same for the function that a last operand says."""
        return dataclasses.replace(
            self,
            function=typing.cast(Python, self.function).late(self),
            every=1,
            levels=tuple((size, (*mapped, False)) for size, mapped in self.levels),
            transforms=() if self.of_transforms else self.transforms,
            of_transforms=None,
        )


_compat.held_weakly(Site)


def _lower(ctx: typing.Any, operands: typing.Any, results: typing.Any, site: Site) -> typing.Any:
    platforms = _compat.platforms_of(ctx)
    if others := set(platforms) - _lowering.PLATFORMS.keys():
        raise NotImplementedError(
            f"postern.jax: {site} is lowered for {', '.join(sorted(others))}: programs on CPUs and "
            "on NVIDIA's GPUs can call the host"
        )
    _lowering.register_handlers(_TARGET, platforms)
    _version.settle()
    mesh = _compat.mesh_of_cut(ctx)
    if mesh is not None and not _compat.for_export(ctx):
        return _for_all(ctx, operands, results, site, mesh)
    if not site.pure and (axes := _compat.axes_left(ctx)):
        shown = not (site.results or site.ordered or site.partitioned)
        bind = functools.partial(call_p.bind, site=site)
        return _compat.lower_bare(_parts.first(str(site), bind, axes, shown), ctx, operands)
    if site.partitioned and _compat.devices_in(ctx) > 1:
        raise NotImplementedError(
            f"postern.jax: {site} is partitioned, in an artifact that does not say for which "
            "devices: have it within jax.shard_map"
        )
    return _lowering.lower(
        ctx,
        _TARGET,
        operands,
        results,
        site.effect,
        site.attributes(_compat.for_export(ctx)),
        site.function,
        str(site),
        site.function.placed and not site.meets,
    )


def _for_all(
    ctx: typing.Any, operands: typing.Any, results: typing.Any, site: Site, mesh: typing.Any
) -> typing.Any:
    """In a program that JAX cuts: each device makes the call with the whole, and one enters the
    function. (If one alone made it, the others would wait in a collective when it fails, and XLA
    would end the process.)
    """
    if site.partitioned:
        return _of_parts(ctx, operands, results, site, mesh)
    ordinals = [d.local_hardware_id for d in mesh.devices.flat]
    if None in ordinals or len({d.process_index for d in mesh.devices.flat}) != 1:
        raise NotImplementedError(
            f"postern.jax: {site} is in a program that JAX cuts for the devices of several "
            "processes: have it within jax.shard_map"
        )
    whole = dataclasses.replace(
        site, results=_compat.bare(results), meets=mesh.size, leader=min(ordinals)
    )
    every = typing.cast(typing.Any, jax.sharding).PartitionSpec()
    made = jax.shard_map(
        lambda *x: call_p.bind(*x, site=whole),
        mesh=mesh,
        in_specs=every,
        out_specs=every,
        check_vma=False,
    )
    inner = ctx.replace(avals_in=_compat.bare(ctx.avals_in))
    out = _compat.lower_fun(made)(inner, *operands)
    ctx.set_tokens_out(inner.tokens_out)
    return out


def _of_parts(
    ctx: typing.Any, operands: typing.Any, results: typing.Any, site: Site, mesh: typing.Any
) -> typing.Any:
    if site.levels:
        (_, mapped), *inner = site.levels
        types = tuple(_compat.ShapedArray(t.shape[1:], t.dtype) for t in results)
        element = dataclasses.replace(site, levels=tuple(inner), results=types)
        each = _parts.one_by_one(functools.partial(call_p.bind, site=element), mapped)
        return _compat.lower_bare(each, ctx, operands)
    spread = _parts.like(str(site), ctx.avals_in, results)
    part = dataclasses.replace(site, function=site.function.on_mesh(mesh.axis_names))

    def bind(parts: typing.Any, types: typing.Any) -> typing.Any:
        return call_p.bind(*parts, site=dataclasses.replace(part, results=tuple(types)))

    devices = [d.id for d in mesh.devices.flat]
    key = repr((sorted(part.attributes(False).items()), list(mesh.shape.items()), devices))
    inner = ctx.replace(avals_out=results)
    return _parts.lower(inner, key, bind, mesh, operands, spread, site.effect)


_compat.allow_export(_TARGET)
_compat.before_exported(_TARGET, _lowering.register_handlers)


def _primitive(name: str) -> typing.Any:
    made = _compat.Primitive(name)
    made.multiple_results = True
    _compat.ours.add(made)

    @_compat.cache(256)
    def jitted(site: Site, whole: bool) -> typing.Callable[..., typing.Any]:
        def program(*operands: typing.Any) -> typing.Any:
            made_of = made.bind(*operands, site=site)
            return made_of if whole else (made_of, operands[-1] + 1)

        program.__name__ = program.__qualname__ = name
        setattr(program, "_apply_primitive", True)  # so that JAX names it where it makes a NaN
        return jax.jit(program)

    def run(program: typing.Callable[..., typing.Any], *operands: typing.Any) -> typing.Any:
        if not typing.cast(typing.Any, jax.config).jax_disable_jit:
            return program(*operands)
        with jax.disable_jit(False):  # or it would come here again
            return program(*operands)

    def impl(*operands: typing.Any, site: Site) -> typing.Any:
        function: typing.Any = site.function
        if not isinstance(function, Python):
            return run(jitted(site, True), *operands)
        waiting = function.late(site)
        if site.partitioned:
            function = function.on_mesh(_compat.mesh_names(operands))
        number = waiting.expect(function, site, _compat.devices_of(operands))
        try:
            out, ended = run(jitted(site.for_any(), False), *operands, number)
            if site.kind != "async":
                ended.block_until_ready()
            return out[: len(operands)] if name == "postern_shown" else out
        finally:
            if site.kind != "async":
                waiting.forget(number)

    made.def_impl(impl)
    return made


def _in_front(operands: typing.Any, axes: typing.Any) -> tuple[int, list[typing.Any], list[bool]]:
    """The batch's size, the operands with its axis in front, and which have it."""
    size = next(x.shape[a] for x, a in zip(operands, axes) if a is not None)
    moved = [x if a is None else jax.numpy.moveaxis(x, a, 0) for x, a in zip(operands, axes)]
    return size, moved, [a is not None for a in axes]


# --- what goes in


def arrays(
    what: str, leaves: typing.Sequence[typing.Any], packed: bool = False
) -> list[typing.Any]:
    """The leaves as what a program can hand to the host: of keys, their data. Raises TypeError,
    also for elements of less than a byte, if not `packed`.
    """
    made: list[typing.Any] = []
    for leaf in leaves:
        if isinstance(leaf, jax.core.Tracer) and _kind_of(leaf.dtype) is None:
            made.append(leaf)
            continue
        dtype = getattr(leaf, "dtype", None)
        try:
            if getattr(dtype, "kind", None) in _checks.NO_NUMBERS:
                raise TypeError(f"arrays of {dtype} stay in Python")
            array = (
                jax.random.key_data(leaf)
                if dtype is not None and _kind_of(dtype) == "key"
                else jax.numpy.asarray(leaf)
            )
        except (TypeError, ValueError) as e:
            raise TypeError(
                f"postern.jax: {what} takes trees of arrays and numbers, got {leaf!r}; "
                "what is none goes in by functools.partial"
            ) from e
        if not packed:
            _packed.refuse(what, array.dtype)
        made.append(array)
    return made


@functools.lru_cache(maxsize=256)
def _kind_of(dtype: typing.Any) -> str | None:
    """What makes it another than most: "key", of JAX's random numbers, and "packed"."""
    if jax.numpy.issubdtype(dtype, jax.dtypes.prng_key):
        return "key"
    return "packed" if _packed.carrier(dtype) else None


def types_of(
    what: str, tree: typing.Any, numbers: bool = False, packed: bool = True
) -> tuple[tuple[typing.Any, ...], typing.Any]:
    """The types that a tree of what has a shape and a dtype describes, and its structure.
    `numbers`: these too. `packed`: with elements of less than a byte.
    Raises ValueError.
    """
    leaves, structure = jax.tree.flatten(tree)
    types = []
    for leaf in leaves:
        try:
            if numbers and not hasattr(leaf, "dtype"):
                leaf = np.asarray(leaf, jax.dtypes.canonicalize_dtype(jax.numpy.result_type(leaf)))
            if np.dtype(leaf.dtype).kind in _checks.NO_NUMBERS or any(
                not jax.export.is_symbolic_dim(n) and operator.index(n) < 0 for n in leaf.shape
            ):
                raise TypeError("no type of an array")
            dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
        except Exception as e:
            needed = "must be either numeric scalars, or must have" if numbers else "must have"
            raise ValueError(
                f"postern.jax: {what} should be a tree of values with the structure "
                f"of what the function returns. The values {needed} 'shape' and 'dtype' "
                f"attributes, as jax.ShapeDtypeStruct; got {leaf!r}"
            ) from e
        if dtype != leaf.dtype:
            raise ValueError(
                f"postern.jax: {what} has a type of 64 bits, {leaf.dtype}, and jax_enable_x64 is "
                f"off: switch it on, or ask for {dtype}"
            )
        if not packed:
            _packed.refuse(what, dtype)
        types.append(_compat.ShapedArray(tuple(leaf.shape), dtype))
    return tuple(types), structure


def tap_whole(
    operands: typing.Sequence[typing.Any],
    of_transforms: typing.Callable[[typing.Any], Function],
    name: str,
) -> None:
    """A synchronous tap in the program's order, which vmap gives the whole batch."""
    file, line = caller()
    site = Site(
        of_transforms(()), name, file, line, kind="tap", ordered=True, of_transforms=of_transforms
    )
    call_p.bind(*operands, site=site)


# --- a call, and a tap that no derivative passes through

call_p = _primitive("postern_call")


def _call_types(*_: typing.Any, site: Site) -> typing.Any:
    return list(site.results), site.effects


def _call_lower(ctx: typing.Any, *operands: typing.Any, site: Site) -> typing.Any:
    return _lower(ctx, operands, ctx.avals_out, site)


def _no_derivative(site: Site) -> str:
    return (
        f"postern.jax: {site} has no derivative; "
        "give it one by jax.custom_jvp or jax.custom_vjp around it"
    )


def _call_jvp(primals: typing.Any, tangents: typing.Any, *, site: Site) -> typing.Any:
    if site.results and not all(isinstance(t, _compat.Zero) for t in tangents):
        raise ValueError(_no_derivative(site))
    return call_p.bind(*primals, site=site), [
        _compat.Zero(t.to_tangent_aval()) for t in site.results
    ]


def _call_transpose(cotangents: typing.Any, *operands: typing.Any, site: Site) -> list[typing.Any]:
    """Of values that nobody has there: a tap shows nothing."""
    if site.results:
        raise ValueError(_no_derivative(site))
    return [None] * len(operands)


def _call_batched(operands: typing.Any, axes: typing.Any, *, site: Site) -> typing.Any:
    if site.of_transforms is not None:
        transforms = (*site.transforms, ("batch", tuple(axes)))
        whole = dataclasses.replace(
            site, function=site.of_transforms(transforms), transforms=transforms
        )
        return call_p.bind(*operands, site=whole), []
    size, moved, mapped = _in_front(operands, axes)
    types = tuple(_compat.ShapedArray((size, *t.shape), t.dtype) for t in site.results)
    if site.vmap_method in ("sequential", "parallel"):
        site = site.batched(size, mapped)
    elif site.vmap_method == "expand_dims":
        moved = [x if m else x[None] for x, m in zip(moved, mapped)]
    else:
        moved = [
            x if m else jax.numpy.broadcast_to(x, (size, *x.shape)) for x, m in zip(moved, mapped)
        ]
    return call_p.bind(*moved, site=dataclasses.replace(site, results=types)), [0] * len(types)


call_p.def_effectful_abstract_eval(_call_types)
_compat.register_lowering(call_p, _call_lower)
_compat.takes_devices(call_p)
_compat.primitive_jvps[call_p] = _call_jvp
_compat.primitive_transposes[call_p] = _call_transpose
_compat.primitive_batchers[call_p] = _call_batched

# --- a tap that shows derivatives too: a linear function, its operands

shown_p = _primitive("postern_shown")


def _shown_types(*operands: typing.Any, site: Site) -> typing.Any:
    return list(operands), site.effects


def _shown_lower(ctx: typing.Any, *operands: typing.Any, site: Site) -> typing.Any:
    _lower(ctx, operands, [], site)
    return operands


def _shown_jvp(primals: typing.Any, tangents: typing.Any, *, site: Site) -> typing.Any:
    out = shown_p.bind(*primals, site=site)
    if all(isinstance(t, _compat.Zero) for t in tangents):
        return out, list(tangents)
    return out, show_derivatives([_compat.instantiate(t) for t in tangents], site, "jvp")


def _shown_transpose(cotangents: typing.Any, *_: typing.Any, site: Site) -> typing.Any:
    if all(isinstance(t, _compat.Zero) for t in cotangents):
        return list(cotangents)
    return show_derivatives([_compat.instantiate(t) for t in cotangents], site, "transpose")


def show_derivatives(values: list[typing.Any], site: Site, transform: str) -> list[typing.Any]:
    """`values`, shown as what they are; those of integers are nothing, and not shown."""
    real = [x for x in values if x.dtype != jax.dtypes.float0]
    given = [x.dtype != jax.dtypes.float0 for x in values]
    transforms = (*site.transforms, transform)
    derived = dataclasses.replace(
        site,
        transforms=transforms,
        function=site.function.derived(transforms, given),
        paths=tuple(p for p, g in zip(site.paths, given) if g),
        levels=tuple(
            (size, tuple(m for m, g in zip(mapped, given) if g)) for size, mapped in site.levels
        ),
    )
    shown = iter(shown_p.bind(*real, site=derived))
    return [next(shown) if g else x for x, g in zip(values, given)]


def _shown_batched(operands: typing.Any, axes: typing.Any, *, site: Site) -> typing.Any:
    size, moved, mapped = _in_front(operands, axes)
    return shown_p.bind(*moved, site=site.batched(size, mapped)), [0 if m else None for m in mapped]


shown_p.def_effectful_abstract_eval(_shown_types)
_compat.register_lowering(shown_p, _shown_lower)
_compat.takes_devices(shown_p)
_compat.primitive_jvps[shown_p] = _shown_jvp
_compat.primitive_transposes[shown_p] = _shown_transpose
_compat.primitive_batchers[shown_p] = _shown_batched
