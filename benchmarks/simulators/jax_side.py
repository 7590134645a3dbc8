#!/usr/bin/env python3
"""jax_side.py envpool|gymnasium THREADS: what side.cc measures, by JAX: a jitted rollout of 32 of
MuJoCo's HalfCheetahs, and whole iterations of PPO, in steps a second.

EnvPool steps them by its own operations of XLA; gymnasium's vector environments are stepped by
io_callback, one after the other in this process: the processes of AsyncVectorEnv take longer.
"""

import os
import sys
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import numpy as np

ELEMENTS, LENGTH, EPOCHS, MINIBATCHES = 32, 64, 10, 16
DISCOUNT, TRACE, CLIP, VALUE, RATE = 0.99, 0.95, 0.2, 0.5, 3e-4
F32 = jnp.float32


def envpool_steps(threads):
    import envpool

    jax.config.update("jax_enable_x64", True)  # its actions and observations are
    env = envpool.make(
        "HalfCheetah-v5",
        env_type="gymnasium",
        num_envs=ELEMENTS,
        num_threads=threads,
        max_episode_steps=1000,
    )
    first, _ = env.reset()
    handle, _, _, step = env.xla()

    def stepped(handle, action):
        handle, (seen, reward, terminated, truncated, _) = step(handle, action.astype("float64"))
        return handle, seen.astype(F32), reward.astype(F32), terminated, truncated

    return handle, first, stepped


def gymnasium_steps(_):
    import gymnasium

    env = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("HalfCheetah-v5")] * ELEMENTS)
    first, _ = env.reset(seed=0)
    flags = jax.ShapeDtypeStruct((ELEMENTS,), bool)
    like = (
        jax.ShapeDtypeStruct(first.shape, F32),
        jax.ShapeDtypeStruct((ELEMENTS,), F32),
        flags,
        flags,
    )

    def on_host(action):
        seen, reward, terminated, truncated, _ = env.step(np.asarray(action))
        return seen.astype(np.float32), reward.astype(np.float32), terminated, truncated

    def stepped(handle, action):
        return handle, *jax.experimental.io_callback(on_host, like, action, ordered=True)

    return jnp.int32(0), first, stepped


def network(key, widths, last):
    net = []
    for i, (a, b) in enumerate(zip(widths, widths[1:])):
        scale = last if i + 2 == len(widths) else 1
        key, one = jax.random.split(key)
        net.append((scale * jax.random.normal(one, (a, b), F32) / a**0.5, jnp.zeros(b, F32)))
    return net


def forward(net, x):
    for i, (weights, bias) in enumerate(net):
        x = x @ weights + bias
        if i + 1 < len(net):
            x = jnp.tanh(x)
    return x


def log_probability(mean, spread, action):
    off = (action - mean) * jnp.exp(-spread)
    return jnp.sum(-0.5 * off**2 - spread - 0.918938533, 1)


def with_rows(moments, rows):
    count, mean, variance = moments
    n, row_mean, row_variance = rows.shape[0], rows.mean(0), rows.var(0)
    total, off = count + n, row_mean - mean
    squares = variance * count + row_variance * n + off**2 * count * n / total
    return total, mean + off * n / total, squares / total


def scaled(moments, x):
    return jnp.clip((x - moments[1]) * jax.lax.rsqrt(moments[2] + 1e-8), -10, 10)


def choose(key, model, seen):
    mean = forward(model["actor"], seen)
    action = mean + jnp.exp(model["spread"]) * jax.random.normal(key, mean.shape, F32)
    return action, log_probability(mean, model["spread"], action)


def rollout(stepped, model):
    def act(now, key):
        handle, seen = now
        action, _ = choose(key, model, seen)
        handle, seen, *_ = stepped(handle, jnp.clip(action, -1, 1))
        return (handle, seen), None

    return jax.jit(
        lambda handle, seen, key: jax.lax.scan(act, (handle, seen), jax.random.split(key, LENGTH))[
            0
        ]
    )


def ppo(stepped):
    """An iteration, of the state that `begin` makes."""

    def act(now, key):
        seen = scaled(now["observations"], now["seen"])
        action, log_p = choose(key, now["model"], seen)
        value = forward(now["model"]["critic"], seen)[:, 0]
        handle, after, reward, terminated, truncated = stepped(
            now["handle"], jnp.clip(action, -1, 1)
        )
        ended, returns = terminated | truncated, now["returns"] + reward
        discounted = DISCOUNT * now["discounted"] + reward
        made = {
            "seen": now["seen"],
            "action": action,
            "log_p": log_p,
            "value": value,
            "reward": reward,
            "terminated": terminated,
            "ended": ended,
            "counts": (~now["begins"]).astype(F32),
            "episode_return": jnp.where(ended, returns, 0),
            "discounted": discounted,
        }
        later = {
            "handle": handle,
            "seen": after,
            "begins": ended,
            "returns": jnp.where(ended, 0, returns),
            "discounted": jnp.where(ended, 0, discounted),
        }
        return now | later, made

    def advantages(steps, last):
        def back(later, s):
            advantage, value = later
            delta = s["reward"] + DISCOUNT * jnp.where(s["terminated"], 0, value) - s["value"]
            here = delta + DISCOUNT * TRACE * jnp.where(s["ended"], 0, advantage)
            return (here, s["value"]), here

        return jax.lax.scan(back, (jnp.zeros_like(last), last), steps, reverse=True)[1]

    def loss(model, s, advantage):
        count = jnp.maximum(s["counts"].sum(), 1)
        mean = lambda x: (x * s["counts"]).sum() / count
        centred = advantage - mean(advantage)
        weighed = centred / (jnp.sqrt(mean(centred**2)) + 1e-8)
        chosen = forward(model["actor"], s["seen"])
        ratio = jnp.exp(log_probability(chosen, model["spread"], s["action"]) - s["log_p"])
        gain = mean(jnp.minimum(ratio * weighed, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * weighed))
        error = mean((forward(model["critic"], s["seen"])[:, 0] - (advantage + s["value"])) ** 2)
        return VALUE * error - gain

    def update(learner, picked):
        model, first, second, count = learner
        gradient = jax.grad(loss)(model, *picked)
        norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(gradient)))
        gradient = jax.tree.map(lambda g: g * jnp.minimum(1, 0.5 / norm), gradient)
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
        a, b = 1 - 0.9 ** count.astype(F32), 1 - 0.999 ** count.astype(F32)
        move = lambda p, m, v: p - RATE * (m / a) / (jnp.sqrt(v / b) + 1e-8)
        return (jax.tree.map(move, model, first, second), first, second, count), None

    def iterate(before):
        keys = jax.random.split(before["key"], 3)
        now, steps = jax.lax.scan(act, before, jax.random.split(keys[0], LENGTH))
        old = before["observations"]
        last = forward(now["model"]["critic"], scaled(old, now["seen"]))[:, 0]
        flat = lambda x: x.reshape(-1, *x.shape[2:])
        sums = with_rows(now["sums"], flat(steps["discounted"]))
        steps["reward"] = jnp.clip(steps["reward"] * jax.lax.rsqrt(sums[2] + 1e-8), -10, 10)
        observations = with_rows(old, flat(steps["seen"]))
        steps["seen"] = scaled(old, steps["seen"])
        every = jax.tree.map(flat, (steps, advantages(steps, last)))
        rows = LENGTH * ELEMENTS

        def epoch(learner, key):
            order = jax.random.permutation(key, jnp.arange(rows, dtype=jnp.int32))
            pick = lambda learner, which: update(
                learner, jax.tree.map(lambda x: jnp.take(x, which, 0), every)
            )
            return jax.lax.scan(pick, learner, order.reshape(MINIBATCHES, -1))

        learner, _ = jax.lax.scan(
            epoch, (now["model"], *now["adam"]), jax.random.split(keys[2], EPOCHS)
        )
        return now | {
            "model": learner[0],
            "adam": learner[1:],
            "key": keys[1],
            "observations": observations,
            "sums": sums,
        }

    return jax.jit(iterate)


def begin(model, handle, first):
    zeros = jax.tree.map(jnp.zeros_like, model)
    none = lambda shape: (jnp.float32(1e-4), jnp.zeros(shape, F32), jnp.ones(shape, F32))
    return {
        "model": model,
        "adam": (zeros, zeros, jnp.int32(0)),
        "key": jax.random.PRNGKey(2),
        "handle": handle,
        "seen": first,
        "begins": jnp.zeros(ELEMENTS, bool),
        "returns": jnp.zeros(ELEMENTS, F32),
        "discounted": jnp.zeros(ELEMENTS, F32),
        "observations": none(first.shape[1:]),
        "sums": none(()),
    }


def measure(kind, work):
    work()
    best = 0
    for _ in range(50):
        start = time.perf_counter()
        work()
        best = max(best, ELEMENTS * LENGTH / (time.perf_counter() - start))
    print(f"{kind} {best:.0f}", flush=True)


def main(kind, threads):
    handle, first, stepped = {"envpool": envpool_steps, "gymnasium": gymnasium_steps}[kind](threads)
    key = jax.random.PRNGKey(1)
    model = {
        "actor": network(key, (17, 64, 64, 6), 0.01),
        "critic": network(key, (17, 64, 64, 1), 1),
        "spread": jnp.zeros(6, F32),
    }
    first = jnp.asarray(first, F32)
    roll, now = rollout(stepped, model), (handle, first)
    state, iterate = begin(model, handle, first), ppo(stepped)

    def act():
        nonlocal now
        now = jax.block_until_ready(roll(*now, key))

    def learn():
        nonlocal state
        state = jax.block_until_ready(iterate(state))

    measure("rollout", act)
    state["handle"] = now[0]
    measure("ppo", learn)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
