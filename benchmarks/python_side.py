#!/usr/bin/env python3
"""python_side.py FILE STEPS: microseconds for a call of a NumPy function from the saved loop,
by the package of bindings/python.
"""
import statistics
import sys
import time

import numpy as np
import postern

postern.register("bench.negative", lambda v: np.negative(v))
program, steps = postern.load(sys.argv[1]), int(sys.argv[2])
x = np.ones(4, np.float32)
times = []
for _ in range(18):
    start = time.perf_counter_ns()
    program(x)
    times.append((time.perf_counter_ns() - start) / steps / 1e3)
print(statistics.median(times[3:]))
