"""A while loop under vmap whose elements end at different times, with effects."""

from __future__ import annotations

import typing

import jax

from . import _calls, _compat


def _batched_while(
    axis: typing.Any, args: typing.Any, dims: typing.Any, **params: typing.Any
) -> typing.Any:
    """JAX computes on with elements that have ended, and throws away what comes of it:
    a call that has an effect is not to be made for them.
    """
    both = [params["cond_jaxpr"], params["body_jaxpr"]]
    effects = set().union(*(jaxpr.effects for jaxpr in both))
    if not {_compat.ORDERED, _compat.UNORDERED} & effects or not _compat.has_batched_predicate(
        axis, dims, **params
    ):
        return _jax_batched_while(axis, args, dims, **params)
    if any(_shows_batches(jaxpr) for jaxpr in both):
        return _whole(axis, args, dims, **params)
    if _compat.names_axis(effects, axis.name):
        raise NotImplementedError(
            "postern.jax: a call or tap with an effect is in a while_loop whose elements end at "
            f"different times under vmap, beside a collective over vmap's axis {axis.name!r}: "
            "have one of them outside of the loop"
        )
    moved = [x if d is None else jax.numpy.moveaxis(x, d, 0) for x, d in zip(args, dims)]
    out = _one_by_one(moved, [d is not None for d in dims], axis.size, **params)
    return out, [0] * len(out)


def _whole(
    axis: typing.Any, args: typing.Any, dims: typing.Any, **params: typing.Any
) -> typing.Any:
    """JAX lets elements that have ended go on where the condition has ordered effects, and computes
    it twice where it has others; here that is computed in the body.
    """
    if not {_compat.ORDERED, _compat.UNORDERED} & set(params["cond_jaxpr"].effects):
        return _jax_batched_while(axis, args, dims, **params)
    cond, body = map(_compat.jaxpr_as_fun, (params["cond_jaxpr"], params["body_jaxpr"]))
    consts, inner = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]

    def loop(*given: typing.Any) -> typing.Any:
        def step(state: typing.Any) -> typing.Any:
            carry = body(*given[consts:inner], *state[1])
            return cond(*given[:consts], *carry)[0], carry

        start = cond(*given[:consts], *given[inner:])[0], list(given[inner:])
        return jax.lax.while_loop(lambda state: state[0], step, start)[1]

    out = jax.vmap(
        loop, tuple(dims), axis_name=axis.name, axis_size=axis.size, spmd_axis_name=axis.spmd_name
    )(*args)
    return out, [0] * len(out)


def _one_by_one(
    args: list[typing.Any],
    mapped: list[bool],
    size: int,
    cond_nconsts: int,
    cond_jaxpr: typing.Any,
    body_nconsts: int,
    body_jaxpr: typing.Any,
) -> typing.Any:
    """A step of each element that has not ended, one after the other."""
    cond, body = _compat.jaxpr_as_fun(cond_jaxpr), _compat.jaxpr_as_fun(body_jaxpr)
    inner = cond_nconsts + body_nconsts

    def of(i: typing.Any) -> list[typing.Any]:
        return [x[i] if m else x for x, m in zip(args, mapped)]

    def begin(i: typing.Any) -> typing.Any:
        given = of(i)
        return cond(*given[:cond_nconsts], *given[inner:])[0], given[inner:]

    def step(element: typing.Any) -> typing.Any:
        i, goes_on, carry = element
        given = of(i)

        def go_on(carry: typing.Any) -> typing.Any:
            carry = body(*given[cond_nconsts:inner], *carry)
            return cond(*given[:cond_nconsts], *carry)[0], carry

        return jax.lax.cond(goes_on, go_on, lambda carry: (goes_on, carry), carry)

    elements = jax.numpy.arange(size)
    return jax.lax.while_loop(
        lambda state: state[0].any(),
        lambda state: jax.lax.map(step, (elements, *state)),
        jax.lax.map(begin, elements),
    )[1]


def _shows_batches(jaxpr: typing.Any) -> bool:
    """As taps of host_callback do, those of elements that have ended with them."""
    return any(
        eqn.primitive is _calls.call_p and eqn.params["site"].of_transforms
        for eqn in _compat.equations(jaxpr)
    )


_jax_batched_while = _compat.fancy_primitive_batchers[jax.lax.while_p]
_compat.fancy_primitive_batchers[jax.lax.while_p] = _batched_while
