#!/usr/bin/env python3
"""control_side.py PROGRAM COUNTS STEPS [PYTHON]: the control loop of examples/control.cc on one
core, beside the same policy that Python asks of onnxruntime and of JAX for each step, where there
is a PYTHON with these. A row is how long it took from the sensors to the motors. STEPS: of the loop
without a pace.
"""

import gc
import json
import os
import re
import shutil
import subprocess
import sys
import time

from rows import report

if len(sys.argv) > 4:
    os.execv(sys.argv[4], sys.argv[4:] + sys.argv[:4])
PROGRAM, COUNTS, STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3])
RATES, SECONDS = (1000, 10_000, 50_000, 0), 3
NAMES = ("p50", "p99", "p99.9", "p99.999", "max")
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
try:  # before all that has no deadline; who may not measures what else the machine does too
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
except PermissionError:
    pass


def ours(hertz, steps, limit=0, command=(), **more):
    done = subprocess.run(
        [*command, PROGRAM, str(hertz), str(steps), str(limit)],
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        check=True,
    )
    figures = re.search(
        r"in ([\d.]+) s.*p50 ([\d.]+).*p99 ([\d.]+).*p99.9 ([\d.]+).*p99.999 ([\d.]+)"
        r".*most ([\d.]+)",
        done.stdout,
    )
    return list(map(float, figures.groups())), done.stderr


def paced(policy, hertz, steps):
    """The same loop in Python: the figures that `ours` has of the program."""
    import numpy as np

    took, x = np.zeros(steps), np.ones((1, 4), np.float32)
    now = time.perf_counter_ns
    for _ in range(100):
        policy(x)
    gc.collect()
    gc.disable()
    begin = due = now()
    for i in range(steps):
        if hertz:
            while now() < due:
                pass
            due = max(due + 1_000_000_000 // hertz, now())
        sensed = now()
        pushes = policy(x)
        took[i] = now() - sensed
        x[0, :2] += 1e-4 * pushes[0]
    seconds = (now() - begin) / 1e9
    gc.enable()
    return [seconds, *np.quantile(took, [0.5, 0.99, 0.999, 0.99999, 1]) / 1e3]


def weights():
    import numpy as np

    random = np.random.default_rng(1)
    return [
        random.normal(size=shape, scale=0.1).astype(np.float32)
        for shape in ((4, 32), (32, 32), (32, 2))
    ]


def onnxruntime_policy():
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper

    names = ("first", "second", "last")
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "second"], ["c"]),
        helper.make_node("Tanh", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "last"], ["y"]),
    ]
    value = lambda name, dims: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)
    graph = helper.make_graph(
        nodes,
        "policy",
        [value("x", [1, 4])],
        [value("y", [1, 2])],
        [numpy_helper.from_array(w, name) for w, name in zip(weights(), names)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda x: session.run(None, {"x": x})[0]


def jax_policy():
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    import jax.numpy as jnp
    import numpy as np

    first, second, last = map(jnp.asarray, weights())
    policy = jax.jit(lambda x: jnp.tanh(jnp.tanh(x @ first) @ second) @ last)
    return lambda x: np.asarray(policy(x))


def peers():
    found = {}
    for name, make in (("onnxruntime", onnxruntime_policy), ("jax", jax_policy)):
        try:
            policy = make()
        except ImportError:
            continue
        found[name] = lambda hertz, steps, policy=policy: paced(policy, hertz, steps)
    return found


def race():
    sides = peers()
    for hertz in RATES:
        steps = hertz * SECONDS or STEPS
        mine, _ = ours(hertz, steps)
        beside = {n: f(hertz, hertz * SECONDS or min(STEPS, 200_000)) for n, f in sides.items()}
        name = f"control/{hertz} Hz/" if hertz else "control/unpaced/"
        for i, which in enumerate(NAMES, 1):
            notes = [f"{steps} steps of {mine[0]:.2f} s"] if i == 1 else []
            notes += [f"{n}: {f[i]:.2f}" for n, f in beside.items()]
            peer = next(iter(beside), None)
            report(name + which, mine[i], peer, peer and beside[peer][i], "; ".join(notes))


def per_step(count, steps=20_000):
    few, many = count(steps), count(2 * steps)
    return {what: (many[what] - few[what]) / steps for what in few}


def counts(steps, limit=0):
    text = ours(0, steps, limit, LD_PRELOAD=COUNTS)[1]
    return json.loads(re.search("^counts: (.*)", text, re.M)[1])


def system_calls(steps):
    text = ours(0, steps, command=[shutil.which("strace"), "-f", "-c"])[1]
    return {"system calls": int(re.search(r"^100\.00.* (\d+) +\d* *total", text, re.M)[1])}


def count():
    found = per_step(counts)
    if shutil.which("strace"):
        found |= per_step(system_calls)
    for what, number in found.items():
        report(f"control/{what}", max(number, 0), None, 0, "of a step", "")


race()
count()
