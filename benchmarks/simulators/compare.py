#!/usr/bin/env python3
"""compare.py SIDE [PYTHON]: rollouts and PPO of MuJoCo's HalfCheetah by a pool, beside the limit
and, where there is a Python with these, EnvPool and gymnasium with JAX. The sides take turns; each
counts with its best round, for what else the machine does only adds.
"""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from rows import report

SIDE, PYTHON, ROUNDS = sys.argv[1], sys.argv[2:], 3
sides = {"ours": [SIDE]}
if PYTHON:
    for kind in ("envpool", "gymnasium"):
        sides[kind] = [*PYTHON, "-W", "ignore", str(HERE / "jax_side.py"), kind]


def race(threads):
    best = {}
    for _ in range(ROUNDS):
        for side, command in sides.items():
            out = subprocess.run([*command, str(threads)], stdout=subprocess.PIPE, text=True)
            for line in out.stdout.splitlines():
                kind, value = line.split()
                best[side, kind] = max(best.get((side, kind), 0), float(value))
    return best


for threads in (1, 2):
    best = race(threads)
    together = lambda *kinds: 1 / sum(1 / best["ours", kind] for kind in kinds)
    limits = {"rollout": together("bare", "network"), "ppo": together("bare", "learning")}
    for kind, limit in limits.items():
        value, name = best["ours", kind], f"simulators/{kind}/{threads} threads"
        note = "steps a second of 32 HalfCheetahs; {} is the aim"
        report(name, value, "a bare loop and the network", limit, note.format("at least 0.9"), "")
        for side, aim in (("envpool", 1.3), ("gymnasium", 5)):
            if (side, kind) in best:
                report(f"{name}/{side}", value, f"{side} with JAX", best[side, kind],
                       note.format(f"at least {aim}"), "")
    for kind in ("bare", "network"):
        report(f"simulators/{kind}/{threads} threads", best["ours", kind], None, 0,
               "steps a second", "")
