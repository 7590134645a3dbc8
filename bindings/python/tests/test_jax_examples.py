"""examples/jax, and the packages that they are compared with."""

import io
import json
import os
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import postern.jax as pj

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "jax"
sys.path.insert(0, str(EXAMPLES))
import metrics  # noqa: E402

progress = pytest.importorskip("tqdm") and __import__("progress")


def scanned(decorate, n):
    def step(x, i):
        return x + i, None

    out = float(jax.jit(lambda x: jax.lax.scan(decorate(step), x, jnp.arange(n))[0])(1.0))
    jax.effects_barrier()
    pj.barrier()
    return out


@pytest.mark.parametrize("n, every", [(1000, None), (1000, 30), (7, 7), (1, None)])
def test_the_progress_bar_shows_what_jax_tqdms_does(n, every):
    jax_tqdm = pytest.importorskip("jax_tqdm")
    ours, theirs = io.StringIO(), io.StringIO()
    result = scanned(progress.progress(n, every, file=ours), n)
    assert (
        result
        == scanned(jax_tqdm.scan_tqdm(n, every, file=theirs), n)
        == scanned(lambda step: step, n)
    )
    for shown in (ours.getvalue(), theirs.getvalue()):
        assert f"Running for {n:,} iterations" in shown
    assert f"{n}/{n} [" in ours.getvalue()


def test_the_progress_bar_of_a_tuple_and_of_a_second_run():
    shown = io.StringIO()

    def step(c, x):
        return c + x[1], c

    f = jax.jit(
        lambda xs: jax.lax.scan(progress.progress(40, file=shown)(step), 0.0, (jnp.arange(40), xs))
    )
    for _ in range(2):
        assert f(jnp.ones(40))[0] == 40
        pj.barrier()
    assert len(re.findall("40/40 ", shown.getvalue())) == 2


def test_metrics_are_logged_as_io_callback_would():
    def by_callback(file):
        write = metrics.logger(file)

        def log(values, every):
            jax.lax.cond(
                values["step"] % every == 0,
                lambda: io_callback(write, None, values, ordered=True),
                lambda: None,
            )

        return log

    told = []
    for make in (metrics.tapped, by_callback):
        file = io.StringIO()
        loss = float(metrics.compiled(make(file), 200)())
        jax.effects_barrier()
        pj.barrier()
        lines = [json.loads(line) for line in file.getvalue().splitlines()]
        assert [line["step"] for line in lines] == list(range(0, 200, 10))
        told.append((loss, [(line["loss"], line["grad_norm"]) for line in lines]))
    np.testing.assert_allclose(told[0][1], told[1][1], rtol=1e-4)
    assert told[0][0] < told[0][1][0][0]


@pytest.mark.parametrize(
    "name, out",
    [("progress.py", r"^-?\d+\.\d+\n$"), ("metrics.py", r"^loss 0\.\d+; .* has 200 lines\n$")],
)
def test_the_examples_run(name, out, tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), str(tmp_path / "log")],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert re.match(out, done.stdout)
