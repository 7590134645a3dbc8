#!/usr/bin/env python3
"""peers.py NAME...: what JAX takes for the programs of ./bench, one JSON object a line:
name, value, unit, note.

The leanest form of each: a pure_callback whose function returns its argument as it came.
"""
import json
import statistics
import sys
import time

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np

NOTE = f"jax {jax.__version__}, this run"


def emit(name, value, unit, note=""):
    print(json.dumps({"name": name, "value": value, "unit": unit, "note": NOTE + note}), flush=True)


def timed(f, *args):
    start = time.perf_counter_ns()
    jax.block_until_ready(f(*args))
    return time.perf_counter_ns() - start


def median_ns(f, *args, rounds=15, round_ns=2e7):
    """Nanoseconds of one f(*args): the median over rounds of many."""
    for _ in range(3):
        once = timed(f, *args)
    times = max(1, int(round_ns / once))

    def many():
        for _ in range(times):
            f(*args).block_until_ready()

    return statistics.median(timed(many) / times for _ in range(rounds))


def same(x):
    return jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def call_loop():
    steps = 2000
    f = jax.jit(lambda x: jax.lax.fori_loop(0, steps, lambda i, v: same(v), x))
    emit("call_loop", median_ns(f, jnp.ones(4, jnp.float32)) / steps, "ns")


def call_execute():
    emit(
        "call_execute",
        median_ns(jax.jit(lambda x: same(x * 2) + 1), jnp.ones(4, jnp.float32)) / 1e3,
        "us",
    )


def dispatch():
    emit("dispatch", median_ns(jax.jit(lambda x: x + 1), jnp.ones(4, jnp.float32)) / 1e3, "us")


def payload():
    for size, name in (
        (1 << 10, "1KiB"),
        (1 << 16, "64KiB"),
        (1 << 20, "1MiB"),
        (1 << 24, "16MiB"),
        (1 << 28, "256MiB"),
    ):
        x = jax.block_until_ready(jnp.arange(size // 4, dtype=jnp.float32))
        rounds = 15 if size < 1 << 24 else 5
        emit("payload/" + name, size / median_ns(jax.jit(same), x, rounds=rounds), "GB/s")


def lower_ms(chain, count):
    def once():
        jax.jit(lambda v: chain(v, count)).trace(jnp.ones(4, jnp.float32)).lower()

    return statistics.median(timed(once) for _ in range(3)) / 1e6


def chain_of(step):
    def chain(x, count):
        for _ in range(count):
            x = step(x)
        return x

    return chain


def trace_lower():
    sines, calls = (
        chain_of(jnp.sin),
        chain_of(
            lambda x: jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        ),
    )
    lower_ms(sines, 10), lower_ms(calls, 10)
    emit("trace_lower/1000_ops", lower_ms(sines, 1000), "ms")
    emit("trace_lower/10000_ops", lower_ms(sines, 10_000), "ms")
    emit("trace_lower/1000_calls", lower_ms(calls, 1000), "ms")


def compile_calls():
    calls = chain_of(
        lambda x: jax.experimental.io_callback(
            lambda v: v, jax.ShapeDtypeStruct(x.shape, x.dtype), x * 1.0001, ordered=True
        )
    )
    for count in (1000, 2000):
        emit(
            f"compile_calls/{count}",
            timed(
                lambda: jax.block_until_ready(
                    jax.jit(lambda v: calls(v, count))(jnp.ones(4, jnp.float32))
                )
            )
            / 1e9,
            "s",
        )


def python():
    steps = 2000
    x = jnp.ones(4, jnp.float32)
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    for name, call in (
        ("pure_callback", jax.pure_callback),
        ("io_callback", jax.experimental.io_callback),
    ):
        f = jax.jit(
            lambda v: jax.lax.fori_loop(
                0, steps, lambda i, w: call(lambda a: np.negative(a), like, w), v
            )
        )
        emit("python/" + name, median_ns(f, x) / steps / 1e3, "us")


def overlap():
    steps = 100
    like = jax.ShapeDtypeStruct((32,), jnp.float32)

    def fetch(i):  # of the step, or XLA takes it out of the loop
        time.sleep(0.001)
        return np.ones(32, np.float32)

    def program(calls):
        def step(i, carry):
            v, rounds = carry
            v = v + (jnp.sum(jax.pure_callback(fetch, like, i)) if calls else 32)
            return jax.lax.fori_loop(0, rounds, lambda i, w: jnp.sin(w) * 1.01, v), rounds

        return jax.jit(lambda x, rounds: jax.lax.fori_loop(0, steps, step, (x, rounds))[0])

    x = jnp.ones(4096, jnp.float32)
    alone, calling = program(False), program(True)
    for f in (alone, calling):
        timed(f, x, jnp.int32(1))
    rounds = jnp.int32(max(1, int(10 * steps * 1e6 / timed(alone, x, jnp.int32(10)))))
    median_of = lambda f, n: statistics.median(timed(f, x, n) for _ in range(5))
    longer = max(median_of(alone, rounds), median_of(calling, jnp.int32(0)))
    emit("overlap/times", median_of(calling, rounds) / longer, "times", ", pure_callback")


def tap_async():
    steps = 2000

    def step(i, v):
        v = v + 1
        jax.debug.callback(lambda x: None, v)
        return v

    f = jax.jit(lambda x: jax.lax.fori_loop(0, steps, step, x))

    def run(x):
        y = jax.block_until_ready(f(x))
        jax.effects_barrier()
        return y

    emit("tap_async/loop", median_ns(run, jnp.float32(0)) / steps / 1e3, "us", ", debug.callback")


def tap_overlap():
    taps = 200

    def program(tapped):
        def step(i, carry):
            v, rounds = carry
            v = jax.lax.fori_loop(0, rounds, lambda i, w: jnp.sin(w) * 1.01, v)
            if tapped:
                jax.debug.callback(lambda x: time.sleep(0.001), jnp.sum(v))
            return v, rounds

        return jax.jit(lambda x, rounds: jax.lax.fori_loop(0, taps, step, (x, rounds))[0])

    x = jnp.ones(4096, jnp.float32)
    alone, tapped = program(False), program(True)
    for f in (alone, tapped):
        timed(f, x, jnp.int32(1))
    rounds = jnp.int32(max(1, int(10 * 200e6 / timed(alone, x, jnp.int32(10)))))

    def total():
        timed(tapped, x, rounds)
        jax.effects_barrier()

    def listen():
        for _ in range(taps):
            time.sleep(0.001)

    def median_of(act):
        times = []
        for _ in range(5):
            start = time.perf_counter_ns()
            act()
            times.append(time.perf_counter_ns() - start)
        return statistics.median(times)

    longer = max(median_of(lambda: timed(alone, x, rounds)), median_of(listen))
    emit("tap_overlap", median_of(total) / longer, "times", ", debug.callback")


def status_kib(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key))


def memory():
    size = 1 << 28
    x = jax.block_until_ready(jnp.arange(size // 4, dtype=jnp.float32))
    f = jax.jit(same)
    f.lower(x).compile()
    peak = 0
    for _ in range(3):
        with open("/proc/self/clear_refs", "w") as refs:
            refs.write("5")
        before = status_kib("VmRSS:")
        jax.block_until_ready(f(x))
        peak = max(peak, (status_kib("VmHWM:") - before) * 1024 / size)
    emit("memory", peak, "payloads")


def vmap_call():
    x = jnp.arange(1000, dtype=jnp.float32)
    one = jax.ShapeDtypeStruct((), jnp.float32)
    for method in ("sequential", "expand_dims", "broadcast_all"):
        f = jax.jit(jax.vmap(lambda v: jax.pure_callback(lambda a: a, one, v, vmap_method=method)))
        emit("vmap_call/" + method, median_ns(f, x, rounds=7) / 1e3, "us")


def grad_trace():
    x = jnp.ones(4, jnp.float32)

    def chain(v):
        for _ in range(1000):
            v = jnp.sin(v)
        return jnp.sum(v)

    def steps(v):
        def step(c, _):
            for _ in range(100):
                c = jnp.sin(c)
            return c, None

        return jnp.sum(jax.lax.scan(step, v, None, length=1000)[0])

    for name, f in (("chain_1000", chain), ("scan_100", steps)):

        def once():
            jax.make_jaxpr(jax.grad(f))(x)

        emit("grad_trace/" + name, statistics.median(timed(once) for _ in range(3)) / 1e6, "ms")


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        globals().get(wanted, lambda: None)()
