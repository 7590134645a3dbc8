"""A training loop in one jitted scan that logs its metrics while it runs:
each tenth step a line of JSON, in order, without waiting.

    python metrics.py LOG
"""

import json
import sys
import time

import jax
import jax.numpy as jnp
import postern.jax as pj

STEPS, EVERY = 2000, 10


def logger(file):
    """A tap's function: a line for each firing."""

    def log(metrics):
        file.write(
            json.dumps(
                {name: float(value) for name, value in metrics.items()} | {"time": time.time()}
            )
            + "\n"
        )

    return log


def compiled(log, steps=STEPS, every=EVERY):
    """The training of a network of two layers that learns a sine, which gives its loss.
    Each step calls `log(metrics, every)`.
    """
    x = jnp.linspace(-3, 3, 64)[:, None]
    keys = jax.random.split(jax.random.key(0))
    weights = {
        "in": jax.random.normal(keys[0], (1, 32)),
        "bias": jnp.zeros(32),
        "out": jax.random.normal(keys[1], (32, 1)) * 0.1,
    }

    def loss(w):
        return jnp.mean((jnp.tanh(x @ w["in"] + w["bias"]) @ w["out"] - jnp.sin(x)) ** 2)

    def step(w, i):
        value, grad = jax.value_and_grad(loss)(w)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grad)))
        log({"step": i, "loss": value, "grad_norm": norm}, every)
        return jax.tree.map(lambda p, g: p - 0.05 * g, w, grad), None

    train = jax.jit(lambda w: loss(jax.lax.scan(step, w, jnp.arange(steps))[0]))
    return lambda: train(weights)


def tapped(file):
    """What logs to a file as a tap, beside the program."""
    write = logger(file)
    return lambda metrics, every: pj.tap(metrics, write, name="metrics", mode="async", every=every)


if __name__ == "__main__":
    with open(sys.argv[1], "w") as file:
        end = float(compiled(tapped(file))())
        pj.barrier()
    print(f"loss {end:.5f}; {sys.argv[1]} has {sum(1 for _ in open(sys.argv[1]))} lines")
