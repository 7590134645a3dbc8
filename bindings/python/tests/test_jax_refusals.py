"""What postern.jax says of bad input: a typed exception each time,
before the program runs where that can be known; never a hang.
"""

import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import postern
import postern.jax as pj
from postern.jax import host_callback as hcb

F32 = jax.ShapeDtypeStruct((), jnp.float32)


def same(v):
    return v


def shape(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


@pytest.mark.parametrize(
    "act, error, text",
    [
        (
            lambda: pj.call(same, F32, 1.0, timeout=-1),
            ValueError,
            "timeout must be a positive number of seconds, or None, got -1",
        ),
        (
            lambda: pj.call(same, F32, 1.0, timeout=0),
            ValueError,
            "timeout must be a positive number",
        ),
        (
            lambda: pj.call(same, F32, 1.0, timeout=float("nan")),
            ValueError,
            "timeout must be a positive number",
        ),
        (
            lambda: pj.call(same, F32, 1.0, timeout="long"),
            TypeError,
            "timeout must be a positive number of seconds, or None, got 'long'",
        ),
        (
            lambda: pj.tap(1.0, same, every=0),
            ValueError,
            "every must be a whole number of at least 1, got 0",
        ),
        (lambda: pj.tap(1.0, same, every=1.5), TypeError, "every must be a whole number"),
        (lambda: pj.tap(1.0, same, every="2"), TypeError, "every must be a whole number"),
        (
            lambda: pj.tap(1.0, same, name=3),
            TypeError,
            "name must be text without null characters, got 3",
        ),
        (
            lambda: pj.tap(1.0, same, name="a\0b"),
            ValueError,
            "name must be text without null characters",
        ),
        (
            lambda: pj.call("", F32, 1.0),
            ValueError,
            "the registered name of a function must not be empty",
        ),
        (
            lambda: pj.call("a\0b", F32, 1.0),
            ValueError,
            "name must be text without null characters",
        ),
        (lambda: pj.with_hooks(3, {}), TypeError, "with_hooks takes a function"),
        (lambda: pj.with_hooks(same, [1]), TypeError, "and a dict of functions by names"),
        (lambda: pj.with_hooks(same, {"a": 5}), TypeError, "and a dict of functions by names"),
        (lambda: pj.print(3, 1.0), TypeError, "the format must be text, got 3"),
        (lambda: pj.print("{:d}", 1.5), ValueError, "Unknown format code 'd'"),
        (
            lambda: pj.call(same, shape(-1), 1.0),
            ValueError,
            "must have 'shape' and 'dtype' attributes",
        ),
        (
            lambda: pj.call(same, shape(1.5), 1.0),
            ValueError,
            "must have 'shape' and 'dtype' attributes",
        ),
        (
            lambda: pj.call(same, np.array(["a"]), 1.0),
            ValueError,
            "must have 'shape' and 'dtype' attributes",
        ),
        (
            lambda: pj.call(same, F32, np.array(["a"])),
            TypeError,
            "takes trees of arrays and numbers",
        ),
        (
            lambda: pj.call(same, F32, np.array([None])),
            TypeError,
            "takes trees of arrays and numbers",
        ),
        (lambda: hcb.call(3, 1.0, result_shape=1.0), TypeError, "must be a function, got 3"),
    ],
)
def test_what_is_refused_while_jax_traces(act, error, text):
    with pytest.raises(error, match=text):
        act()
    with pytest.raises(error, match=text):
        jax.jit(lambda x: (act(), x)[1])(1.0)


@pytest.mark.parametrize(
    "function, types, text, cause",
    [
        (
            lambda v: np.float64(2),
            F32,
            r"result 0 must be float32\[\], the function returned float64\(\)",
            None,
        ),
        (lambda v: "text", F32, r"result 0 must be float32\[\]", None),
        (lambda v: object(), F32, r"result 0 must be float32\[\]", None),
        (lambda v: v.astype(">f4"), F32, r"result 0 must be float32\[\]", None),
        (lambda v: [[1.0]], F32, r"the function must return PyTreeDef\(\*\)", TypeError),
        (lambda v: {"a": v}, {"b": F32}, "the function must return", TypeError),
        (lambda: 1.0, F32, "takes 0 positional arguments but 1 was given", TypeError),
        (lambda v: sys.exit(3), F32, "SystemExit: 3", SystemExit),
        (
            lambda v: (_ for _ in ()).throw(KeyboardInterrupt("x")),
            F32,
            "KeyboardInterrupt: x",
            KeyboardInterrupt,
        ),
        (lambda v: [][1], F32, "IndexError: list index out of range", IndexError),
    ],
)
def test_what_ends_a_program(function, types, text, cause):
    def one(x):
        return pj.call(function, types, x, effect="unordered")

    def in_loop(x):
        return jax.lax.fori_loop(0, 3, lambda i, c: (one(c), c)[1], x)

    for f, x in ((one, 1.0), (in_loop, 1.0), (jax.vmap(one), jnp.ones(2))):
        with pytest.raises(postern.CallbackError, match=text) as caught:
            jax.block_until_ready(jax.jit(f)(jnp.asarray(x)))
        assert (
            isinstance(caught.value.__cause__, cause) if cause else caught.value.__cause__ is None
        )
        assert jax.jit(lambda x: pj.call(same, F32, x))(2.0) == 2  # the next program runs


def test_tracers_that_escape_into_a_function():
    with pytest.raises(postern.CallbackError, match="Tracer") as caught:
        jax.block_until_ready(jax.jit(lambda x: pj.call(lambda v: x, F32, x))(1.0))
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_cause_has_its_traceback():
    def fails(v):
        raise KeyError("gone")

    with pytest.raises(postern.CallbackError) as caught:
        jax.block_until_ready(jax.jit(lambda x: pj.call(fails, F32, x))(1.0))
    frames = []
    trace = caught.value.__cause__.__traceback__
    while trace:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert frames[-1] == "fails"


def test_failures_of_programs_that_nobody_waits_for():
    for ordered in (False, True):
        with pytest.raises(postern.CallbackError, match="ZeroDivisionError"):
            # Small programs run at once.
            jax.jit(lambda x: pj.tap(x, lambda v: 1 / 0, ordered=ordered))(1.0)
            pj.barrier()
        assert pj.barrier()
    f = jax.jit(lambda x: pj.call(lambda v: 1 / int(v), F32, x, effect="ordered"))
    for x, fails in ((0, True), (2, False), (0, True), (4, False)):  # order is kept over failures
        if fails:
            with pytest.raises(postern.CallbackError, match="ZeroDivisionError"):
                f(jnp.int32(x)).block_until_ready()
        else:
            assert f(jnp.int32(x)) == 1 / x


def test_formats_with_a_specification(capfd):
    jax.jit(lambda x: pj.print("{:.2f} {n:d} {v}", x, n=3, v=x[None], ordered=True))(
        jnp.float32(1.234)
    )
    pj.barrier()
    sys.stdout.flush()
    assert capfd.readouterr().out == "1.23 3 [1.234]\n"
    with pytest.raises(ValueError, match="Unknown format code 'd'"):
        jax.jit(lambda x: pj.print("{:d}", x))(1.5)


CACHED = """
    import jax, jax.numpy as jnp, numpy as np, postern, postern.jax as pj, sys
    jax.config.update("jax_compilation_cache_dir", sys.argv[1])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    hits = []
    jax.monitoring.register_event_listener(\
lambda event, **_: hits.append(event) if event.endswith("cache_hits") else None)
    if sys.argv[2] == "with":
        postern.register("shop.price", lambda v: v + 1)
    try:
        out = float(jax.jit(lambda x: \
pj.call("shop.price", jax.ShapeDtypeStruct((), jnp.float32), x, name="price") * 2)(1.0))
    except postern.CallbackError as e:
        out = str(e)
    print(len(hits), out)
"""


def test_a_function_that_is_gone_when_a_cached_program_runs(tmp_path):
    told = []
    for registered in ("with", "with", "without"):
        ended = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(CACHED), str(tmp_path), registered],
            env=os.environ,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert ended.returncode == 0, ended.stderr
        told.append(ended.stdout.strip())
    assert told[:2] == ["0 4.0", "1 4.0"]
    assert (
        told[2].startswith("1 call 'price' at <string>:")
        and "no host function is registered under 'shop.price'" in told[2]
    )
