#!/usr/bin/env python3
"""python_side.py: a step of gymnasium's environments in a loop that JAX compiled, by postern.jax
and by io_callback, as docs/simulators.md has it. By turns; each counts with its best round.
"""

import os
import pathlib
import sys
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import postern.jax as pj
from jax.experimental import io_callback

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from rows import report

STEPS, ROUNDS = 1000, 15


def loop(name, call):
    env = gymnasium.make(name)
    first, _ = env.reset(seed=1)
    like = (
        jax.ShapeDtypeStruct(first.shape, jnp.float32),
        jax.ShapeDtypeStruct((), jnp.float32),
        jax.ShapeDtypeStruct((), bool),
    )
    weights = jnp.full((*env.action_space.shape, first.size), 0.1)
    discrete = env.action_space.shape == ()

    def step(action):
        action = int(action > 0) if discrete else np.asarray(action)
        seen, reward, terminated, truncated, _ = env.step(action)
        if ended := terminated or truncated:
            seen, _ = env.reset()
        return np.float32(seen), np.float32(reward), np.bool_(ended)

    def act(seen, _):
        seen, reward, _ = call(step, like, jnp.tanh(weights @ seen))
        return seen, reward

    f = jax.jit(lambda seen: jax.lax.scan(act, seen, length=STEPS))
    f(np.float32(first))

    def run():
        start = time.perf_counter_ns()
        jax.block_until_ready(f(np.float32(first)))
        return (time.perf_counter_ns() - start) / STEPS / 1e3

    def alone():
        start = time.perf_counter_ns()
        for _ in range(STEPS):
            step(np.zeros(env.action_space.shape, np.float32))
        return (time.perf_counter_ns() - start) / STEPS / 1e3

    return run, alone


for name in ("CartPole-v1", "HalfCheetah-v5"):
    ours, alone = loop(name, lambda f, like, x: pj.call(f, like, x, effect="ordered"))
    theirs, _ = loop(name, lambda f, like, x: io_callback(f, like, x, ordered=True))
    best = [min(times) for times in zip(*((ours(), theirs(), alone()) for _ in range(ROUNDS)))]
    note = f"a step in a compiled loop; {best[2]:.1f} us in a loop of Python"
    report(f"simulators/python/{name}", best[0], "io_callback", best[1], note)
