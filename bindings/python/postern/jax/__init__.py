"""Postern inside JAX: host functions that jitted functions call,
and values that they show, on CPUs and NVIDIA's GPUs.

    import jax, jax.numpy as jnp
    import postern.jax as pj

    @jax.jit
    def step(x):
        y = pj.tap(x * 2, print, name="y", mode="async")
        return pj.call(lookup, jax.ShapeDtypeStruct((), jnp.float32), y)

A function is a Python callable, or the name of one that postern.register
or a C++ library has registered.
What it throws arrives as postern.CallbackError, which is also a jax.errors.JaxRuntimeError,
with the exception as its cause.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import contextvars
import functools
import sys
import typing
import weakref

import jax
import numpy as np

from .. import _waits
from .._attributes import check_function, with_info
from .. import listen
from .._errors import CallbackError
from . import _version

with _version.all_there():
    from . import _checks, _compat, _failures, _loops as _loops, _lowering, _packed
    from . import _starts as _starts
    from ._blocks import block_path, has, overridden
    from ._calls import Site, arrays, call_p, caller, shown_p, types_of
    from ._functions import Entered, Function, Info, Same, function_of, is_native
    from ._guard import ReentryError, refuse_forked, refuse_inside

__all__ = [
    "Info",
    "ReentryError",
    "barrier",
    "block",
    "block_path",
    "call",
    "hook",
    "listen",
    "print",
    "tap",
    "with_hooks",
    "with_info",
]

Fn = typing.Union[typing.Callable[..., typing.Any], str, "listen.Listener", typing.Any]

Effect = typing.Literal["pure", "unordered", "ordered"]
VmapMethod = typing.Literal["sequential", "parallel", "expand_dims", "broadcast_all"]
Mode = typing.Literal["sync", "async"]


def _check(argument: str, value: str, allowed: typing.Any) -> None:
    if value not in typing.get_args(allowed):
        raise ValueError(
            f"postern.jax: {argument} must be one of {', '.join(typing.get_args(allowed))}, "
            f"got {value!r}"
        )


def _named(fn: typing.Any, name: str | None) -> str:
    if not callable(fn) and not is_native(fn):
        raise TypeError(
            f"postern.jax: the function must be callable, or a registered name, got {fn!r}"
        )
    if not is_native(fn):
        check_function("postern.jax", fn)
    for given in (name, fn):
        if given is not None and (given is name or isinstance(given, str)):
            _checks.check_name(given)
    if isinstance(fn, str) and not fn:
        raise ValueError("postern.jax: the registered name of a function must not be empty")
    if name or isinstance(fn, str):
        return name or fn
    return _checks.printable(str(getattr(fn, "__name__", type(fn).__name__)))


_LEAF = jax.tree.structure(0)


_NUMBERS = (int, float)


def _plain(value: typing.Any) -> typing.Any:
    """NumPy's numbers and arrays as Python's."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value


def _own(
    attributes: typing.Mapping[str, typing.Any] | None
) -> tuple[tuple[str, typing.Any, str], ...]:
    """Attributes as XLA takes them."""
    own = []
    for key, value in (attributes or {}).items():
        _checks.check_name(key)
        value = _plain(value)
        listed = isinstance(value, (list, tuple))
        value = tuple(map(_plain, value)) if listed else value
        numbers = [v for v in (value if listed else [value]) if type(v) in (int, float)]
        if not (
            len(numbers) == len(value) if listed else isinstance(value, (bool, str) + _NUMBERS)
        ):
            raise TypeError(
                f"postern.jax: attribute {key} must be a bool, number, text, or a list of numbers, "
                f"got {value!r}"
            )
        if any(type(v) is int and not -(2**63) <= v < 2**63 for v in numbers):
            raise ValueError(f"postern.jax: attribute {key} must fit into 64 bits, got {value!r}")
        if isinstance(value, str):
            _checks.check_text(f"attribute {key}", value)
        own.append((key, value, repr(value)))
    return tuple(own)


def call(
    fn: Fn,
    result_shape_dtypes: typing.Any,
    *args: typing.Any,
    effect: Effect = "pure",
    vmap_method: VmapMethod = "sequential",
    timeout: float | None = None,
    name: str | None = None,
    attributes: typing.Mapping[str, typing.Any] | None = None,
    partitioned: bool = False,
    **kwargs: typing.Any,
) -> typing.Any:
    """What `fn(*args, **kwargs)` returns, called with NumPy arrays while the program runs.

    `result_shape_dtypes` is a pytree of what has a shape and a dtype, and what `fn` must return.
    `effect`: "pure" calls may be left out or made again, "unordered" ones happen once each,
    "ordered" ones in the program's order too.
    `vmap_method`: "sequential", an element after the other; "parallel", several at a time on
    threads, for functions of C++; "expand_dims" and "broadcast_all" give the function the whole
    batch in front, as jax.pure_callback does.
    `timeout` is in seconds.
    In place of `fn`: the name of a registered function, or a capsule (see postern.register);
    it gets the leaves of `args` as operands, and `attributes`.
    `partitioned`: in a program that JAX cuts for several devices, each calls with its part of the
    operands, and returns its part of results that are spread as the first operand of their shape;
    else one device calls with the whole.
    Raises ValueError where a derivative is asked for:
    give it one by jax.custom_jvp or jax.custom_vjp around the call, or by `block`.
    At the run: CallbackError, TimeoutError.
    """
    refuse_forked()
    _check("effect", effect, Effect)
    _checks.check_partitioned(partitioned, effect == "ordered")
    _check("vmap_method", vmap_method, VmapMethod)
    told = _named(fn, name)
    if attributes and not is_native(fn):
        raise TypeError(
            "postern.jax: attributes are for registered functions and capsules; "
            "give others theirs by functools.partial"
        )
    if kwargs and is_native(fn):
        raise TypeError(
            f"postern.jax: {', '.join(kwargs)}: keywords are for functions of Python; "
            "registered functions and capsules have `attributes`"
        )
    operands, structure = jax.tree.flatten((args, kwargs))
    packed = not is_native(fn)
    types, wanted = types_of("result_shape_dtypes", result_shape_dtypes, packed=packed)
    axes = _axes(fn)
    operands = arrays(f"call of '{told}'", operands, packed)
    function, given, carried = _function(fn, told, structure, wanted, axes, operands, types)
    site = Site(
        function,
        told,
        *caller(),
        timeout=_checks.limit_of(timeout),
        ordered=effect == "ordered",
        pure=effect == "pure",
        vmap_method=vmap_method,
        own=_own(attributes),
        results=carried,
        partitioned=partitioned,
    )
    given += _places(axes)
    made = _lowering.vary(call_p.bind(*given, site=site), given)
    return jax.tree.unflatten(wanted, _packed.restored(made, types))


# Of those that are called again as they were JAX lowers the call once.
_made: weakref.WeakValueDictionary[typing.Any, Function] = weakref.WeakValueDictionary()


def _function(
    fn: typing.Any,
    told: str,
    structure: typing.Any,
    wanted: typing.Any,
    axes: tuple[str, ...],
    operands: list[typing.Any],
    types: tuple[typing.Any, ...],
) -> tuple[Function, list[typing.Any], tuple[typing.Any, ...]]:
    """The function that a call enters, and its operands and types as they stand in the program."""
    narrow = not typing.cast(typing.Any, jax.config).jax_enable_x64
    key = None
    if not is_native(fn) and not _packed.any_of((*operands, *types)):
        key = (Same(fn), told, structure, wanted, axes, narrow)
        if (known := _made.get(key)) is not None:
            return known, operands, types
    entered, given, carried = _packed.carried(
        _entered(fn, structure, wanted, axes, narrow), operands, types
    )
    function = function_of(fn, entered, told)
    if key is not None:
        function = _made.setdefault(key, function)
    return function, given, carried


def _entered(
    fn: typing.Any, structure: typing.Any, wanted: typing.Any, axes: tuple[str, ...], narrow: bool
) -> Entered:
    """`fn` as a function of leaves, and the check of what it returns."""

    def finish(made: typing.Any) -> tuple[typing.Any, ...]:
        if made is None and wanted.num_leaves == 0:
            return ()
        leaves, got = jax.tree.flatten(made)
        if got != wanted:
            raise TypeError(f"the function must return {wanted}, it returned {got}")
        return tuple(leaves)

    return Entered(_of_leaves(fn, structure), finish, wanted == _LEAF, axes=axes, narrow=narrow)


def _of_leaves(fn: typing.Any, structure: typing.Any) -> typing.Any:
    """`fn`, which takes `structure`, of what args and kwargs it is, as a function of its leaves.
    Trees take a microsecond.
    """
    if structure == jax.tree.structure(((0,) * structure.num_leaves, {})):
        return fn

    def of_leaves(*leaves: typing.Any, **info: typing.Any) -> typing.Any:
        args, kwargs = jax.tree.unflatten(structure, leaves)
        return fn(*args, **kwargs, **info)

    return of_leaves


def block(
    name: str,
    default: typing.Callable[..., typing.Any],
    *args: typing.Any,
    vmap_method: VmapMethod = "parallel",
    attributes: typing.Mapping[str, typing.Any] | None = None,
) -> typing.Any:
    """`default(*args)`, a step of JAX's operations; or, where a function of that name is registered
    when the step is traced, what that function makes of the leaves of `args` and of `attributes`,
    of the same types.

    The derivative is the default's, unless a function `name + ".vjp"` is registered too: it gets
    the leaves of the arguments, the results and the cotangents,
    and gives the cotangents of those arguments that are not integers.
    See `block_path`.
    """
    if not has(name):
        return default(*args)

    def kernel(function: str, types: typing.Any, *leaves: typing.Any) -> typing.Any:
        return call(function, types, *leaves, vmap_method=vmap_method, attributes=attributes)

    return overridden(name, default, kernel, jax.tree.map(jax.numpy.asarray, args))


def _axes(fn: typing.Any) -> tuple[str, ...]:
    """Those of shard_map's mesh, for a function that wants to know its place there."""
    return _lowering.manual_axes() if isinstance(fn, with_info) else ()


def _places(axes: tuple[str, ...]) -> list[typing.Any]:
    return [jax.lax.axis_index(axis) for axis in axes]


def tap(
    value: typing.Any,
    fn: Fn,
    *,
    name: str | None = None,
    mode: Mode = "sync",
    ordered: bool = False,
    every: int = 1,
    derivatives: bool = False,
    partitioned: bool = False,
) -> typing.Any:
    """`value`, a pytree of arrays, which `fn` is shown
    as NumPy arrays whenever the program comes by.

    `mode`: "sync" waits for the function; "async" copies the value to a bounded queue,
    which another thread empties in order (see `barrier`).
    `every`: firings 0, every, 2 * every, ... of each device are shown.
    Under derivatives the value is shown once; with `derivatives` its tangent and cotangent are
    shown too, by firings whose `info.transforms` is ("jvp",) and ("jvp", "transpose").
    Under vmap an element is shown after the other.
    `partitioned`: in a program that JAX cuts for several devices, each shows its part; else one
    device shows the whole.
    `fn` may be a listener of postern.listen.
    A function that fails ends the program with CallbackError;
    one of mode "async" makes the next `barrier` raise it.
    """
    _check("mode", mode, Mode)
    every = _checks.count_of(every)
    _checks.check_partitioned(partitioned, ordered)
    refuse_forked()
    told = _named(fn, name)
    leaves, structure = jax.tree.flatten(((value,), {}))
    file, line = caller()
    axes = () if derivatives else _axes(fn)
    entered, given, _ = _packed.carried(
        Entered(_of_leaves(fn, structure), axes=axes),
        arrays(f"tap of '{told}'", leaves, packed=not is_native(fn) and not derivatives),
    )
    site = Site(
        function_of(fn, entered, told),
        told,
        file,
        line,
        kind="tap" if mode == "sync" else "async",
        every=every,
        ordered=ordered,
        paths=_paths(value) if is_native(fn) else (),
        partitioned=partitioned,
    )
    if derivatives:
        ((shown,), _) = jax.tree.unflatten(structure, shown_p.bind(*given, site=site))
        return shown
    call_p.bind(*given, *_places(axes), site=site)
    return value


def _paths(value: typing.Any) -> tuple[str, ...]:
    """As listeners name leaves: ".loss", ".layers[0].w"."""

    def step(key: typing.Any) -> str:
        return (
            f"[{key.idx}]"
            if hasattr(key, "idx")
            else f".{getattr(key, 'key', getattr(key, 'name', ''))}"
        )

    return tuple(
        _checks.printable("".join(step(k) for k in path))
        for path, _ in jax.tree_util.tree_flatten_with_path(value)[0]
    )


def print(
    format: str,
    *args: typing.Any,
    ordered: bool = False,
    partitioned: bool = False,
    **kwargs: typing.Any,
) -> None:
    """Prints `format.format(*args, **kwargs)` with the values of the run, and what is no array as
    it is, by the numpy.printoptions of now. `ordered` and `partitioned` are those of `tap`.
    Raises ValueError for an argument that the format does not use.
    """
    _checks.check_format(format, args, kwargs)
    arrays_of, filled = _checks.split(args, kwargs)
    options = typing.cast(typing.Any, np.get_printoptions())

    def show(shown: typing.Any) -> None:
        given = filled(shown)
        with np.printoptions(**options):
            text = format.format(*given[0], **given[1])
        builtins.print(text + "\n", end="")  # in one write: several devices may print

    tap(arrays_of, show, name="print", ordered=ordered, partitioned=partitioned)


_hooks: contextvars.ContextVar[
    dict[str, typing.Callable[..., typing.Any]]
] = contextvars.ContextVar("hooks", default={})


_met: set[str] = set()  # names of hooks
_traced_with = _compat.user_context()  # hooks are part of what JAX keeps of a function


def hook(name: str, value: typing.Any) -> typing.Any:
    """`value`, which a function of `with_hooks` may look at;
    without one it is nothing at all in the program.
    """
    _checks.check_name(name)
    _met.add(name)
    fn = _hooks.get().get(name)
    return value if fn is None else tap(value, fn, name=name)


def with_hooks(
    f: typing.Callable[..., typing.Any], hooks: dict[str, typing.Callable[..., typing.Any]]
) -> typing.Callable[..., typing.Any]:
    """`f` with functions for its hooks, by name.
    Hooks are set while `f` is traced: put it outside of `f`, and inside of jax.jit.
    Raises ValueError for names of which no hook has been traced.
    What JAX has traced without them, or with others, it traces anew.
    """
    _checks.check_hooks(f, hooks, lambda fn: callable(fn) or is_native(fn))

    @functools.wraps(f)
    def hooked(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        with _set(hooks):
            out = f(*args, **kwargs)
        if unknown := hooks.keys() - _met:
            raise ValueError(
                f"postern.jax: with_hooks has functions for {', '.join(sorted(unknown))}, and no "
                f"hook of that name was traced; there were {', '.join(sorted(_met)) or 'none'}"
            )
        return out

    return hooked


@contextlib.contextmanager
def _set(hooks: dict[str, typing.Callable[..., typing.Any]]) -> typing.Iterator[None]:
    now = {**_hooks.get(), **hooks}
    token = _hooks.set(now)
    try:
        with _traced_with(tuple((name, Same(now[name])) for name in sorted(now))):
            yield
    finally:
        _hooks.reset(token)


@atexit.register
def _finish() -> None:
    # The package's own end, which comes next, knows of no programs of JAX's;
    # of failures that are told here JAX knows no more.
    told: set[str] = set()
    while not _waits._forked:
        try:
            _failures.barrier()
            return
        except Exception as e:
            if str(e) in told:  # JAX's own, which it raises in its turn
                return
            told.add(str(e))
            builtins.print(f"postern: a failure that nobody waited for: {e}", file=sys.stderr)


def barrier(timeout: float | None = None) -> bool:
    """Waits for the programs that JAX has begun, then for what their asynchronous taps show;
    at most `timeout` seconds for these.
    Whether all was delivered.
    Raises CallbackError with the failures of taps that nobody has seen,
    and ReentryError inside of a function.
    """
    refuse_inside("barrier")
    _failures.barrier()
    try:
        return _waits.barrier(timeout)
    except CallbackError as e:
        raise _failures.as_jax_error(e) from e.__cause__
