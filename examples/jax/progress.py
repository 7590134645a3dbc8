"""A progress bar for jax.lax.scan, as the package jax-tqdm has it, on postern.jax.

    @progress(1000)
    def step(carry, i): ...
    jax.lax.scan(step, carry, jnp.arange(1000))
"""

import functools

import jax
import postern.jax as pj
from tqdm.auto import tqdm


def progress(n, every=None, **options):
    """A decorator for a scan's step over `jnp.arange(n)`, or over a tuple that begins with it."""
    every, bars = every or max(n // 20, 1), []

    def show(i):
        if not bars:
            bars.append(tqdm(total=n, **{"desc": f"Running for {n:,} iterations", **options}))
        bars[0].update(int(i) + 1 - bars[0].n)
        if i + 1 == n:
            bars.pop().close()

    def decorate(step):
        @functools.wraps(step)
        def shown(carry, x):
            i = x[0] if isinstance(x, tuple) else x
            out = step(carry, x)
            jax.lax.cond(
                (i % every == 0) | (i + 1 == n),
                lambda: pj.tap(i, show, name="progress", mode="async"),
                lambda: i,
            )
            return out

        return shown

    return decorate


if __name__ == "__main__":
    import jax.numpy as jnp

    @progress(100_000)
    def step(x, i):
        return x + jnp.sin(x * i), None

    print(jax.jit(lambda x: jax.lax.scan(step, x, jnp.arange(100_000))[0])(1.0))
    pj.barrier()
