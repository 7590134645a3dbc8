"""The sums of `./bench processes` by mpi4jax, under mpirun; one JSON object a line."""

import json
import statistics
import time

import jax
import jax.numpy as jnp
import mpi4jax
from mpi4py import MPI

comm = MPI.COMM_WORLD


def median_ns(run, times, rounds=9):
    taken = []
    for _ in range(rounds + 1):
        comm.Barrier()
        begin = time.perf_counter()
        run()
        taken.append(comm.allreduce(time.perf_counter() - begin, op=MPI.MAX) / times * 1e9)
    return statistics.median(taken[1:])  # the first warms up


def total(v):
    out = mpi4jax.allreduce(v, op=MPI.SUM, comm=comm)
    return out[0] if isinstance(out, tuple) else out


for name, count, times in [
    ("4B", 1, 5000),
    ("1024B", 256, 5000),
    ("64KiB", 1 << 14, 200),
    ("1MiB", 1 << 18, 50),
    ("64MiB", 1 << 24, 3),
]:
    x = jnp.zeros(count, jnp.float32)
    if count <= 256:
        f = jax.jit(lambda x: jax.lax.fori_loop(0, times, lambda i, v: total(v), x))
        ns = median_ns(lambda: f(x).block_until_ready(), times)
    else:
        f = jax.jit(total)
        ns = median_ns(lambda: [f(x).block_until_ready() for _ in range(times)], times)
    if comm.rank == 0:
        print(
            json.dumps({"name": f"processes/mpi4jax/{name}", "value": ns, "unit": "ns"}), flush=True
        )
