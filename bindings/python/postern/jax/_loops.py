"""A while loop under vmap whose condition has effects."""

from __future__ import annotations

import typing

import jax

from . import _compat


def _batched_while(
    axis: typing.Any, args: typing.Any, dims: typing.Any, **params: typing.Any
) -> typing.Any:
    """JAX lets elements that have ended go on where the condition has ordered effects,
    and computes it twice where it has others; here that is computed in the body.
    """
    if not {_compat.ORDERED, _compat.UNORDERED} & set(params["cond_jaxpr"].effects):
        return _jax_batched_while(axis, args, dims, **params)
    cond, body = (
        _compat.jaxpr_as_fun(params["cond_jaxpr"]),
        _compat.jaxpr_as_fun(params["body_jaxpr"]),
    )
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


_jax_batched_while = _compat.fancy_primitive_batchers[jax.lax.while_p]
_compat.fancy_primitive_batchers[jax.lax.while_p] = _batched_while
