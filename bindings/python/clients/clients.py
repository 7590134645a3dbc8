#!/usr/bin/env python3
"""clients.py [NAME...]: packages of JAX's users, each with a host function in its inner loop by
JAX's own callbacks and by postern.jax, one line apart: the results are equal, and a step's time
stands beside. scripts/jax_clients brings the packages.
"""

import functools
import importlib.metadata
import os
import sys
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import numpy as np
import postern.jax as pj
from jax.experimental import io_callback


class Jax:
    call = staticmethod(functools.partial(jax.pure_callback, vmap_method="sequential"))
    ordered = staticmethod(functools.partial(io_callback, ordered=True))
    tap = staticmethod(lambda x, f: jax.debug.callback(f, x))


class Postern:  # the line that changes
    call = staticmethod(pj.call)
    ordered = staticmethod(functools.partial(pj.call, effect="ordered"))
    tap = staticmethod(pj.tap)


def of_host(door, f, slope):
    """A host function of an array, with its derivative."""

    @jax.custom_jvp
    def called(x):
        return door.call(f, jax.ShapeDtypeStruct((), x.dtype), x)

    @called.defjvp
    def _(primals, tangents):
        (x,), (t,) = primals, tangents
        return called(x), jnp.vdot(door.call(slope, jax.ShapeDtypeStruct(x.shape, x.dtype), x), t)

    return called


def log_density(door):
    return of_host(door, lambda x: np.float32(-0.5 * np.vdot(x, x)), lambda x: -np.asarray(x))


def numpyro(door):
    from numpyro.infer import HMC

    density = log_density(door)
    kernel = HMC(None, lambda x: -density(x), step_size=0.2, num_steps=4, trajectory_length=None)
    kernel._adapt_step_size = False
    state = kernel.init(jax.random.PRNGKey(0), 0, jnp.zeros(3), (), {})
    return jax.jit(lambda s: kernel.sample(s, (), {})), state, lambda s: s.z


def blackjax(door):
    import blackjax

    kernel = blackjax.hmc(log_density(door), 0.2, jnp.ones(3), 4)
    step = lambda s: (kernel.step(s[1], s[0])[0], jax.random.split(s[1])[0])
    start = kernel.init(jnp.zeros(3)), jax.random.PRNGKey(0)
    return jax.jit(step), start, lambda s: s[0].position


def diffrax(door):
    import diffrax

    field = lambda t, y, _: door.call(np.negative, jax.ShapeDtypeStruct(y.shape, y.dtype), y)

    def step(y):
        solved = diffrax.diffeqsolve(
            diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 0.1, 0.01, y, max_steps=16
        )
        return solved.ys[0]

    return jax.jit(step), jnp.ones(4), lambda y: y


def equinox(door):
    import equinox

    seen = []

    def loss(model, x):
        y = jax.vmap(model)(x)
        door.tap(jnp.mean(y), seen.append)
        return jnp.mean((y - 1) ** 2)

    def step(state):
        model, x = state
        slope = equinox.filter_grad(loss)(model, x)
        return equinox.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, slope)), x

    model = equinox.nn.Linear(3, 2, key=jax.random.PRNGKey(0))
    x = jnp.arange(12.0).reshape(4, 3) / 12
    return equinox.filter_jit(step), (model, x), lambda s: s[0].weight


def optimistix(door):
    import optimistix

    far = of_host(door, lambda x: np.float32(np.vdot(x, x) - 2), lambda x: 2 * np.asarray(x))
    solver = optimistix.LevenbergMarquardt(rtol=1e-4, atol=1e-4)

    def step(y):
        residuals = lambda y, _: jnp.stack([far(y), y[0] - y[1]])
        return optimistix.least_squares(residuals, solver, y, max_steps=8, throw=False).value

    return jax.jit(step), jnp.array([2.0, 1.0]), lambda y: y


def jaxopt(door):
    import jaxopt

    density = log_density(door)
    solver = jaxopt.GradientDescent(lambda x: -density(x), stepsize=0.1, acceleration=False)
    state = solver.init_state(jnp.ones(3))
    return jax.jit(lambda s: tuple(solver.update(*s))), (jnp.ones(3), state), lambda s: s[0]


def gymnasium(door):
    import gymnasium

    env = gymnasium.make("CartPole-v1").unwrapped
    first, _ = env.reset(seed=0)
    gymnasium.logger.min_level = gymnasium.logger.ERROR + 1  # it goes on when the pole has fallen
    like = jax.ShapeDtypeStruct(first.shape, jnp.float32)
    step = lambda obs: door.ordered(lambda a: env.step(int(a))[0], like, (obs[2] > 0).astype(int))
    return jax.jit(step), jnp.asarray(first), lambda obs: obs


CLIENTS = [numpyro, blackjax, diffrax, equinox, optimistix, jaxopt, gymnasium]


def ran(client, door, steps):
    step, state, value = client(door)
    start = state
    for _ in range(steps):
        state = step(state)
    made = np.asarray(value(jax.block_until_ready(state)))
    best = float("inf")
    for _ in range(5):
        state, began = start, time.perf_counter()
        for _ in range(20):
            state = step(state)
        jax.block_until_ready(state)
        best = min(best, (time.perf_counter() - began) / 20)
    jax.effects_barrier()
    pj.barrier()
    return made, best * 1e6


def main(names):
    failed = False
    for client in CLIENTS:
        name = client.__name__
        if names and name not in names:
            continue
        (theirs, jax_us), (ours, us) = (ran(client, door, 10) for door in (Jax, Postern))
        same = theirs.shape == ours.shape and np.array_equal(theirs, ours)
        failed |= not same
        version = importlib.metadata.version(name)
        told = "equal" if same else f"DIFFERS: {theirs} {ours}"
        print(f"{name} {version}: {us:.0f} us a step, {jax_us:.0f} by JAX's callbacks; {told}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
