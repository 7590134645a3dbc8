#!/usr/bin/env python3
"""python_door.py LIBRARY: postern.jax beside JAX's own callbacks and a bare FFI handler,
in one process; a JSON object a line.
"""

import ctypes
import os
import sys
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "4")
import jax
import jax.numpy as jnp
import numpy as np
import postern
from jax.experimental import io_callback
import postern.jax as pj
import rows

F32 = jax.ShapeDtypeStruct((), jnp.float32)


def report(name, value, unit, peer, peer_value, note):
    rows.report(f"jax_door/{name}", value, peer, peer_value, note, unit)


def race(acts, rounds):
    """Seconds of each at best, by turns, so that what else the machine does meets all of them."""
    took = [[] for _ in acts]
    for act in acts:
        act()
    for _ in range(rounds):
        for act, out in zip(acts, took):
            start = time.perf_counter()
            act()
            out.append(time.perf_counter() - start)
    return [min(t) for t in took]


def loop(steps, body, x=np.float32(0)):
    f = jax.jit(lambda x: jax.lax.fori_loop(0, steps, lambda _, v: body(v), x))
    return lambda: f(x).block_until_ready()


def per_step(steps, bodies, rounds=40):
    """Nanoseconds of a step of each body, without those of the loop.
    Callbacks of JAX go fewer rounds.
    """
    bare, *took = race([loop(steps, lambda v: v + 1), *[loop(steps, b) for b in bodies]], rounds)
    return [(t - bare) / steps * 1e9 for t in took]


def increment(v):
    return v + np.float32(1)


def calls(library):
    jax.local_devices()
    jax.ffi.register_ffi_target(
        "bench_bare", jax.ffi.pycapsule(ctypes.CDLL(library).bare_next), platform="cpu"
    )
    plain, ordered, bare = per_step(
        4000,
        [
            lambda v: pj.call("bench.next", F32, v, effect="unordered"),
            lambda v: pj.call("bench.next", F32, v, effect="ordered"),
            lambda v: jax.ffi.ffi_call("bench_bare", F32, has_side_effect=True)(v),
        ],
        100,
    )
    python, by_name, callback = per_step(
        200,
        [
            lambda v: pj.call(increment, F32, v),
            lambda v: pj.call("bench.python", F32, v),
            lambda v: jax.pure_callback(increment, F32, v),
        ],
    )
    for name, ns in [("call", plain), ("call_ordered", ordered)]:
        report(
            name,
            ns,
            "ns",
            "pure_callback",
            callback,
            "a C++ function of a scalar in a compiled loop; at most 150 is the aim, and 0.005",
        )
        report(
            name + "/bare",
            ns,
            "ns",
            "a bare FFI handler",
            bare,
            "the same beside a handler that does nothing else",
        )
    for name, ns in [("python", python), ("python/by_name", by_name)]:
        report(
            name,
            ns / 1e3,
            "us",
            "pure_callback",
            callback / 1e3,
            "a Python function of a scalar in such a loop; at most 3 is the aim, and 0.1",
        )


def taps():
    seen = []
    ours, _ = per_step(
        1000,
        [
            lambda v: pj.tap(v + 1, lambda x: None, mode="async"),
            lambda v: pj.tap(v + 1, seen.append, mode="async"),
        ],
    )
    pj.barrier()
    (theirs,) = per_step(200, [lambda v: (jax.debug.callback(lambda x: None, v), v + 1)[1]])
    report(
        "tap_async",
        ours / 1e3,
        "us",
        "debug.callback",
        theirs / 1e3,
        "an asynchronous tap of a scalar, the program's side; at most 0.3 is the aim",
    )


def tracing():
    def traced(body):
        def program(x):
            for _ in range(1000):
                x = body(x)
            return x

        # A function of its own, since JAX keeps what it has traced.
        return lambda: jax.jit(lambda x: program(x)).trace(np.float32(0))

    def lowered(body):
        trace = traced(body)
        return lambda: trace().lower()

    bodies = [
        lambda x: pj.call(increment, F32, x),
        lambda x: pj.call("bench.next", F32, x),
        lambda x: jax.pure_callback(increment, F32, x),
    ]
    for name, act in [("trace", traced), ("trace_and_lower", lowered)]:
        python, native, theirs = race([act(b) for b in bodies], 7)
        report(
            name,
            python * 1e3,
            "ms",
            "pure_callback",
            theirs * 1e3,
            "1,000 calls of a Python function traced; at most 1.0 is the aim",
        )
        report(
            name + "/native",
            native * 1e3,
            "ms",
            "pure_callback",
            theirs * 1e3,
            "1,000 calls of a registered function traced; at most 1.0 is the aim",
        )


def per_run(bodies, x, times, rounds=15):
    """Microseconds of a run of each, with what it calls and shows."""

    def runs(body):
        f = jax.jit(body)

        def act():
            for _ in range(times):
                f(x).block_until_ready()
            jax.effects_barrier()

        return act

    return [t / times * 1e6 for t in race([runs(body) for body in bodies], rounds)]


def one_call_a_run():
    def ours(effect):
        return lambda x: pj.call(increment, F32, x * 2, effect=effect)

    def theirs(ordered):
        return lambda x: io_callback(increment, F32, x * 2, ordered=ordered)

    bodies = [
        lambda x: x * 2 + 1,
        ours("pure"),
        lambda x: jax.pure_callback(increment, F32, x * 2),
        ours("unordered"),
        theirs(False),
        ours("ordered"),
        theirs(True),
        lambda x: pj.tap(x * 2, lambda v: None) + 1,
        lambda x: (jax.debug.callback(lambda v: None, x * 2), x * 2 + 1)[1],
    ]
    bare, pure, pure_callback, *pairs = per_run(bodies, jnp.float32(1), 200)
    given = np.zeros((), np.float32)
    (own,) = race([lambda: [increment(given) for _ in range(1000)]], 15)  # milliseconds
    note = "a run of a small program that calls a Python function once"
    report("run", pure, "us", "pure_callback", pure_callback, note)
    report("run/bare", pure, "us", "program and function apart", bare + own * 1e3, note)
    for name, peer, took, other in [
        ("unordered", "io_callback", *pairs[:2]),
        ("ordered", "io_callback, ordered", *pairs[2:4]),
        ("tap", "debug.callback", *pairs[4:]),
    ]:
        report(f"run/{name}", took, "us", peer, other, note)


def cut():
    devices = jax.devices("cpu")
    spread = jax.sharding.NamedSharding(
        jax.sharding.Mesh(np.array(devices), ("x",)), jax.sharding.PartitionSpec("x")
    )
    x = jax.device_put(jnp.zeros(4 * len(devices)), spread)
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)

    def shown(show):
        return lambda x: (show(x * 2), x * 2 + 1)[1]

    def debug(partitioned):
        return shown(lambda x: jax.debug.callback(lambda v: None, x, partitioned=partitioned))

    def tap(partitioned):
        return shown(lambda x: pj.tap(x, lambda v: None, partitioned=partitioned))

    took = per_run(
        [
            lambda x: pj.call(increment, like, x * 2),
            lambda x: jax.pure_callback(increment, like, x * 2),
            tap(False),
            debug(False),
            tap(True),
            debug(True),
        ],
        x,
        100,
    )
    note = f"a run of a small program that JAX cuts for {len(devices)} devices"
    for name, peer, i in [
        ("call", "pure_callback", 0),
        ("tap", "debug.callback", 2),
        ("tap_of_parts", "debug.callback(partitioned=True)", 4),
    ]:
        report(f"cut/{name}", took[i], "us", peer, took[i + 1], note)


def devices():
    mesh, spec = (
        jax.sharding.Mesh(np.array(jax.devices("cpu")), ("x",)),
        jax.sharding.PartitionSpec("x"),
    )
    count, steps = len(jax.devices("cpu")), 2000

    def part(x):
        return jax.lax.fori_loop(
            0,
            steps,
            lambda _, v: pj.call("bench.work", jax.ShapeDtypeStruct(v.shape, v.dtype), v),
            x,
        )

    one, all_of_them = (
        jax.jit(part),
        jax.jit(jax.shard_map(part, mesh=mesh, in_specs=spec, out_specs=spec)),
    )
    x, xs = jnp.zeros(1), jax.device_put(jnp.zeros(count), jax.sharding.NamedSharding(mesh, spec))
    single, together = race(
        [lambda: one(x).block_until_ready(), lambda: all_of_them(xs).block_until_ready()], 40
    )
    at_once = min(count, len(os.sched_getaffinity(0)))
    report(
        "devices",
        count * steps / together / 1e6,
        "M/s",
        f"{at_once} times a single device",
        at_once * steps / single / 1e6,
        f"calls of a C++ function of a microsecond on {count} devices of {at_once} cores; "
        "at least 0.7 is the aim",
    )


if __name__ == "__main__":
    postern.load_library(sys.argv[1])
    postern.register("bench.python", increment)
    calls(sys.argv[1])
    taps()
    tracing()
    one_call_a_run()
    cut()
    devices()
