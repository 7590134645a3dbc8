#!/usr/bin/env python3
"""jax_gpu.py: what a call or tap adds to a step of a loop that JAX runs on its first device, a GPU
where there is one, and to a program that makes one call; beside JAX's own callbacks. A table.
"""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import postern.jax as pj
from jax.experimental import io_callback

STEPS, ROUNDS = 300, 7


def same(v):
    return v


def nothing(v):
    pass


def best(acts, rounds=ROUNDS):
    """Microseconds of each at its best, by turns."""
    took = [[] for _ in acts]
    for act in acts:
        act()
    for _ in range(rounds):
        for act, out in zip(acts, took):
            start = time.perf_counter_ns()
            act()
            out.append((time.perf_counter_ns() - start) / 1e3)
    return [min(t) for t in took]


def finished(act):
    def whole():
        act()
        pj.barrier()
        jax.effects_barrier()

    return whole


def tapped(v, **options):
    pj.tap(v, nothing, **options)
    return v


def debugged(v):
    jax.debug.callback(nothing, v)
    return v


KINDS = {
    "call": lambda v: pj.call(same, v, v, effect="unordered"),
    "call, ordered": lambda v: pj.call(same, v, v, effect="ordered"),
    "jax.pure_callback": lambda v: jax.pure_callback(same, v, v),
    "io_callback, ordered": lambda v: io_callback(same, v, v, ordered=True),
    "tap": tapped,
    "tap, async": functools.partial(tapped, mode="async"),
    "jax.debug.callback": debugged,
}


def in_a_loop(x):
    def loop(body):
        f = jax.jit(lambda x: jax.lax.fori_loop(0, STEPS, lambda _, v: body(v + 1), x))
        return finished(lambda: f(x).block_until_ready())

    bare, *others = best([loop(lambda v: v), *map(loop, KINDS.values())])
    return [bare / STEPS, *((t - bare) / STEPS for t in others)]


def once(x):
    def program(body):
        f = jax.jit(lambda x: body(x + 1))
        return finished(lambda: f(x).block_until_ready())

    bare, *others = best([program(lambda v: v), *map(program, KINDS.values())], 200)
    return [bare, *(t - bare for t in others)]


def main():
    device = jax.devices()[0]
    print(f"JAX {jax.__version__} on {device.device_kind}, microseconds that are added")
    sizes = {"4 B": 1, "1 MiB": 1 << 18}
    columns = [
        (f"{what}, {size}", of(jnp.zeros(elements, np.float32)))
        for what, of in (("a step", in_a_loop), ("a program", once))
        for size, elements in sizes.items()
    ]
    print(f"{'':22}" + "".join(f"{name:>18}" for name, _ in columns))
    for row, name in enumerate(["without, in all", *KINDS]):
        print(f"{name:22}" + "".join(f"{times[row]:18.1f}" for _, times in columns))


main()
