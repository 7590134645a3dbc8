#!/usr/bin/env python3
"""jax_sides.py NAME[:ARGUMENT...]: one side of a race with ./bench.
Prints "ready" when NAME is compiled; then, for each number it reads,
does its program so many times and prints "done".
So both sides meet the same moments of a shared machine.
"""
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np


def chained(step, state, *data):
    """A training step whose state goes from one to the next."""
    step = jax.jit(step)
    now = jax.block_until_ready(step(state, *data))

    def run(times):
        nonlocal now
        for _ in range(times):
            now = step(now, *data)
        jax.block_until_ready(now)

    return run


def digits_step():
    batch, classes = 32, 10

    def scores(m, images):
        return jnp.maximum(images @ m[0] + m[1], 0) @ m[2] + m[3]

    def loss(m, images, labels):
        return (
            -jnp.sum(jax.nn.log_softmax(scores(m, images)) * jax.nn.one_hot(labels, classes))
            / batch
        )

    def step(s, images, labels):
        model, mean, square, count = s
        value, gradient = jax.value_and_grad(loss)(model, images, labels)
        count = count + 1
        part_mean, part_square = 1 - 0.9**count, 1 - 0.999**count
        mean = [0.9 * m + 0.1 * g for m, g in zip(mean, gradient)]
        square = [0.999 * q + 0.001 * g * g for q, g in zip(square, gradient)]
        model = [
            w - 2e-3 * (m / part_mean) / (jnp.sqrt(q / part_square) + 1e-8)
            for w, m, q in zip(model, mean, square)
        ]
        return model, mean, square, count

    sizes = [(64, 128), (128,), (128, 10), (10,)]
    model, zeros = (
        [jnp.full(s, 0.01, jnp.float32) for s in sizes],
        [jnp.zeros(s, jnp.float32) for s in sizes],
    )
    images = (jnp.arange(batch * 64, dtype=jnp.float32) % 17 / 16).reshape(batch, 64)
    return chained(
        step,
        (model, zeros, zeros, jnp.float32(0)),
        images,
        jnp.arange(batch, dtype=jnp.int32) % classes,
    )


def mlp_step():
    width, batch = 1024, 128

    def loss(m, x, y):
        for w, b in zip(m[::2], m[1::2]):
            x = jnp.tanh(x @ w + b)
        return jnp.mean(jnp.square(x - y))

    def step(m, x, y):
        return [w - 0.1 * g for w, g in zip(m, jax.grad(loss)(m, x, y))]

    weights = (jnp.arange(width * width, dtype=jnp.float32) % 31 / 31 - 0.5).reshape(
        width, width
    ) / 16
    x = (jnp.arange(batch * width, dtype=jnp.float32) % 13 / 13).reshape(batch, width)
    return chained(step, [weights, jnp.zeros(width, jnp.float32)] * 3, x, x / 2)


def linalg(name, label):
    """Whoever is fastest: NumPy, SciPy or JAX. `label`: the extent, or 1000x8 for a batch."""
    import scipy.linalg as sp

    shape = (1000, 8, 8) if label == "1000x8" else (int(label), int(label))
    a = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    t = np.swapaxes(a, -1, -2)
    if name == "cholesky":
        a = a @ t + shape[-1] * np.eye(shape[-1], dtype=np.float32)
    if name == "eigh":
        a = (a + t) / 2
    x = jnp.asarray(a)

    def awaited(f):
        compiled = jax.jit(f)
        return lambda: jax.tree.leaves(compiled(x))[0].block_until_ready()

    rivals = {
        "cholesky": [
            awaited(jnp.linalg.cholesky),
            lambda: np.linalg.cholesky(a),
            lambda: sp.cholesky(a, lower=True, check_finite=False),
        ],
        "lu": [awaited(jax.lax.linalg.lu), lambda: sp.lu_factor(a, check_finite=False)],
        "qr": [
            awaited(jnp.linalg.qr),
            lambda: np.linalg.qr(a),
            lambda: sp.qr(a, mode="economic", check_finite=False),
        ],
        "eigh": [
            awaited(jnp.linalg.eigh),
            lambda: np.linalg.eigh(a),
            lambda: sp.eigh(a, check_finite=False, driver="evd"),
        ],
        "svd": [
            awaited(lambda y: jnp.linalg.svd(y, full_matrices=False)),
            lambda: np.linalg.svd(a, full_matrices=False),
            lambda: sp.svd(a, full_matrices=False, check_finite=False),
        ],
    }[name]

    def quickest(f):
        f()  # compiles, warms up
        times = []
        while len(times) < 3 or (sum(times) < 0.05 and len(times) < 1000):
            start = time.perf_counter()
            f()
            times.append(time.perf_counter() - start)
        return min(times)

    best = min(rivals, key=quickest)

    def run(times):
        for _ in range(times):
            best()

    return run


if __name__ == "__main__":
    name, *arguments = sys.argv[1].split(":")
    run = globals()[name](*arguments)
    print("ready", flush=True)
    for line in sys.stdin:
        run(int(line))
        print("done", flush=True)
