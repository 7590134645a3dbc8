#!/usr/bin/env python3
"""python_jax.py EXAMPLES: the Python package beside JAX in one process, a JSON object a line;
and real packages beside what examples/jax makes of them on postern.jax.
"""

import ast
import inspect
import io
import os
import pathlib
import sys
import textwrap
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import numpy as np
import postern
import postern.jax as pj
from rows import report


def race(acts, times, rounds):
    """Microseconds of each at its best of many rounds, by turns:
    what else the machine does only adds.
    """
    took = [[] for _ in acts]
    for _ in range(rounds):
        for act, out in zip(acts, took):
            start = time.perf_counter_ns()
            for _ in range(times):
                act()
            out.append((time.perf_counter_ns() - start) / times / 1e3)
    return [min(t) for t in took]


def dispatch():
    f = jax.jit(lambda x: x * 2 + 1)
    array = np.float32([1, 2, 3])
    x, tensor = jnp.asarray(array), postern.Tensor(array)
    program = postern.load_text(f.lower(x).as_text())
    ours, theirs, ours_numpy, theirs_numpy = race(
        [
            lambda: program.run(tensor),
            lambda: f(x).block_until_ready(),
            lambda: program(array),
            lambda: np.asarray(f(array)),
        ],
        500,
        25,
    )
    report(
        "python/dispatch",
        ours,
        "jax.jit",
        theirs,
        "a run of x * 2 + 1 on f32[3], a tensor of one's own; at most 1.0 is the aim",
    )
    report(
        "python/dispatch_numpy", ours_numpy, "jax.jit", theirs_numpy, "the same from and to NumPy"
    )


def host_function():
    steps, x = 2000, jnp.ones(4)
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)

    def looped(call):
        f = jax.jit(lambda x: jax.lax.fori_loop(0, steps, lambda _, v: call(v), x))
        f(x).block_until_ready()
        return lambda: f(x).block_until_ready()

    ours, theirs = race(
        [
            looped(lambda v: pj.call(np.negative, like, v, effect="unordered")),
            looped(lambda v: jax.pure_callback(np.negative, like, v)),
        ],
        1,
        15,
    )
    report(
        "python/jax_call",
        ours / steps,
        "jax.pure_callback",
        theirs / steps,
        "np.negative of f32[4] in a loop that JAX compiled; 3 us is the aim",
    )


def lines_of(source, names=None):
    """Lines of code, without comments, blank lines and what documents."""
    tree = ast.parse(source)
    found = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            found.update(range(body[0].lineno, body[0].end_lineno + 1))
    parts = [n for n in tree.body if names is None or getattr(n, "name", None) in names]
    lines = source.splitlines()
    return sum(
        1
        for part in parts
        for at in range(part.lineno, part.end_lineno + 1)
        if at not in found and lines[at - 1].strip() and not lines[at - 1].strip().startswith("#")
    )


def progress_bars(examples):
    import jax_tqdm
    import progress

    n = 20_000

    def scan(decorate):
        def step(x, i):
            return x + jnp.sin(x * i), None

        f = jax.jit(lambda x: jax.lax.scan(decorate(step), x, jnp.arange(n))[0])

        def run():
            f(1.0).block_until_ready()
            pj.barrier()

        run()
        return run

    options = {"file": io.StringIO()}
    bare, ours, theirs = race(
        [
            scan(lambda step: step),
            scan(progress.progress(n, **options)),
            scan(jax_tqdm.scan_tqdm(n, **options)),
        ],
        1,
        15,
    )
    report(
        "jax_tqdm",
        (ours - bare) / n,
        "jax-tqdm 0.4.0",
        (theirs - bare) / n,
        "what a progress bar adds to a step of a scan of 20,000",
    )
    folder = pathlib.Path(jax_tqdm.__file__).parent
    report(
        "jax_tqdm/lines",
        lines_of((examples / "progress.py").read_text(), {"progress"}),
        "jax-tqdm 0.4.0",
        sum(lines_of((folder / name).read_text()) for name in ("base.py", "scan_pbar.py")),
        "lines of code for scan",
        "lines",
    )


def metrics_loggers(examples):
    import metrics
    from jax.experimental import io_callback

    def with_io_callback(write):
        def log(values, every):
            jax.lax.cond(
                values["step"] % every == 0,
                lambda: io_callback(write, None, values, ordered=True),
                lambda: None,
            )

        return log

    def with_tap(write):
        return lambda values, every: pj.tap(values, write, mode="async", every=every)

    steps = 2000

    def training(log):
        f = metrics.compiled(log, steps)

        def run():
            f().block_until_ready()
            jax.effects_barrier()
            pj.barrier()

        run()
        return run

    out = io.StringIO()
    bare, ours, theirs = race(
        [
            training(lambda *_: None),
            training(with_tap(metrics.logger(out))),
            training(with_io_callback(metrics.logger(out))),
        ],
        1,
        11,
    )
    report(
        "jax_metrics",
        (ours - bare) / steps,
        "io_callback in a cond",
        (theirs - bare) / steps,
        "what logging three metrics each tenth step adds to a training step",
    )
    source = (examples / "metrics.py").read_text()
    report(
        "jax_metrics/lines",
        lines_of(source, {"logger", "tapped"}),
        "io_callback in a cond",
        lines_of(source, {"logger"})
        + lines_of(textwrap.dedent(inspect.getsource(with_io_callback))),
        "lines of code for the logger",
        "lines",
    )


if __name__ == "__main__":
    examples = pathlib.Path(sys.argv[1])
    sys.path.insert(0, str(examples))
    dispatch()
    host_function()
    progress_bars(examples)
    metrics_loggers(examples)
