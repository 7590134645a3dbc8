#!/usr/bin/env python3
"""jax_artifact.py write FILE: exports a function with 50 MB of weights.
jax_artifact.py FILE: prints how many ms JAX takes to read, compile and run it first, and how many
MB of memory more than before.
"""
import resource
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import export


def write(file):
    w = [np.full((1024, 1024), 0.001 * i, np.float32) for i in range(1, 13)]

    def f(x):
        for i, one in enumerate(w):
            x = jnp.tanh(x @ jnp.asarray(one + np.eye(1024, dtype=np.float32) * i))
        return x

    exported = export.export(jax.jit(f))(jax.ShapeDtypeStruct((4, 1024), jnp.float32))
    with open(file, "wb") as out:
        out.write(exported.serialize())


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def read(file):
    jax.jit(lambda v: v + 1)(jnp.ones(3)).block_until_ready()
    x = jnp.ones((4, 1024))
    before, begin = peak(), time.time()
    with open(file, "rb") as artifact:
        f = jax.jit(export.deserialize(bytearray(artifact.read())).call)
    f(x).block_until_ready()
    print((time.time() - begin) * 1e3, peak() - before)


if sys.argv[1] == "write":
    write(sys.argv[2])
else:
    read(sys.argv[1])
