"""What postern.jax says of bad input: a typed exception each time,
before the program runs where that can be known; never a hang.
"""

import asyncio
import functools
import os
import subprocess
import sys
import textwrap

import jax
import jax.export
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
            lambda v: np.float16(2),
            F32,
            r"result 0 must be float32\[\], the function returned float16\(\)",
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


# --- functions and results


async def coroutine(v):
    return v


def generator(v):
    yield v


async def asynchronous_generator(v):
    yield v


class Coroutine:
    async def __call__(self, v):
        return v

    async def method(self, v):
        return v


LATE = [
    coroutine,
    generator,
    asynchronous_generator,
    Coroutine(),
    Coroutine().method,
    functools.partial(coroutine),
    pj.with_info(coroutine),
    pj.with_info(functools.partial(coroutine)),
    functools.partial(pj.with_info(functools.partial(coroutine))),
]


@pytest.mark.parametrize("fn", LATE)
def test_functions_that_only_begin_are_refused_by_name(fn):
    name = getattr(fn, "__qualname__", type(fn).__qualname__)
    for act in (
        lambda: jax.jit(lambda x: pj.call(fn, F32, x))(1.0),
        lambda: pj.tap(1.0, fn),
        lambda: postern.register("py.late", fn),
        lambda: pj.with_hooks(lambda x: pj.hook("late", x), {"late": fn})(1.0),
    ):
        with pytest.raises(TypeError, match=f"{name} is a function of kind"):
            act()


def test_a_callable_is_not_what_it_holds():
    class Runs:
        def __init__(self, func):
            self.func = func

        def __call__(self, v):
            return np.float32(asyncio.run(self.func(v)))

    assert pj.call(Runs(coroutine), F32, 2.0) == 2


def test_with_info_of_what_is_no_method():
    class Adds:
        def __call__(self, v, info):
            return v - info.element  # of no batch: -1

    class Holds:
        adds = pj.with_info(Adds())

    assert pj.call(Holds().adds, F32, 1.0) == 2


def test_a_callable_whose_comparison_is_an_array():
    class Compares:
        def __eq__(self, other):
            return np.array([True, False])

        __hash__ = None

        def __call__(self, v):
            return v

    assert pj.call(Compares(), F32, 2.0) == 2
    with pytest.raises(ValueError, match="must not be empty"):
        pj.call("", F32, 2.0)


@pytest.mark.parametrize("wanted", [(), None, [], {}])
def test_nothing_is_returned_for_nothing(wanted):
    got = jax.jit(lambda x: pj.call(lambda v: None, wanted, x, effect="unordered"))(1.0)
    assert got == wanted


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64", "complex128"])
def test_results_of_64_bits_without_x64(dtype):
    for wanted in (jax.ShapeDtypeStruct((), np.dtype(dtype)), np.zeros(2, dtype)):
        with pytest.raises(ValueError, match=f"64 bits, {dtype}, and jax_enable_x64 is off"):
            jax.jit(lambda x: pj.call(same, wanted, x))(1.0)
        with pytest.raises(ValueError, match="jax_enable_x64 is off"):
            hcb.call(same, 1.0, result_shape=wanted)


def test_texts_that_utf8_cannot_write():
    for act in (
        lambda: pj.call(same, F32, 1.0, name="a\ud800"),
        lambda: pj.call("a\ud800", F32, 1.0),
        lambda: pj.hook("a\ud800", 1.0),
        lambda: pj.call("a", F32, 1.0, attributes={"a\ud800": 1}),
        lambda: pj.call("a", F32, 1.0, attributes={"a": "\ud800"}),
    ):
        with pytest.raises(ValueError, match="postern.jax: .* UTF-8"):
            act()
    assert pj.call(same, F32, 1.0, name="ä😀") == 1


def test_attributes_of_numpys():
    def total(v, **given):
        assert given["list"] == [1, 2] and given["many"] == [1.5, 2.5]
        return np.float32(given["f32"] + given["i64"] + given["flag"])

    postern.register("py.total", total, replace=True)
    given = {
        "f32": np.float32(1.5),
        "i64": np.int64(2),
        "flag": np.bool_(True),
        "list": np.array([1, 2]),
        "many": [np.float64(1.5), np.float32(2.5)],
    }
    assert jax.jit(lambda x: pj.call("py.total", F32, x, attributes=given))(1.0) == 4.5
    for wrong, error in [(2**63, ValueError), (1j, TypeError), ([True], TypeError)]:
        with pytest.raises(error, match="attribute a must"):
            pj.call("py.total", F32, 1.0, attributes={"a": wrong})


def test_hooks_that_nobody_has():
    def net(x):
        return pj.hook("py.known", x)

    with pytest.raises(ValueError, match="functions for py.unknown, and no hook of that name"):
        pj.with_hooks(net, {"py.unknown": same})(1.0)
    for _ in range(2):  # also where JAX has traced it before
        assert jax.jit(pj.with_hooks(jax.jit(net), {"py.known": lambda v: None}))(1.0) == 1


def test_keywords_go_to_the_function():
    def scaled(v, *, by, plus):
        return np.float32(by * v + plus["one"])

    f = lambda x: pj.call(scaled, F32, x, by=x, plus={"one": 1.0})
    assert jax.jit(f)(3.0) == 10 and f(3.0) == 10
    assert np.array_equal(jax.vmap(f)(jnp.arange(2.0)), [1, 2])
    with pytest.raises(TypeError, match="by: keywords are for functions of Python"):
        pj.call("py.total", F32, 1.0, by=1)


def test_a_program_that_calls_what_one_process_knows_is_not_serialized():
    from jax.experimental import serialize_executable

    def again(f):
        compiled = jax.jit(f).lower(jnp.float32(1)).compile()
        parts = serialize_executable.serialize(compiled)
        loaded = serialize_executable.deserialize_and_load(
            *parts, execution_devices=jax.devices()[:1]
        )
        return loaded(jnp.float32(1))

    postern.register("py.same", same, replace=True)
    assert again(lambda x: pj.call("py.same", F32, x)) == 1
    with pytest.raises(TypeError, match="calls 'same', which this process alone knows"):
        again(lambda x: pj.call(same, F32, x))


def test_symbolic_shapes():
    (b,) = jax.export.symbolic_shape("b")

    def exported(f):
        e = jax.export.export(jax.jit(f))(jax.ShapeDtypeStruct((b,), jnp.float32))
        return np.array(jax.jit(e.call)(jnp.arange(3.0)))

    like = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)
    assert np.array_equal(exported(lambda x: pj.call(same, like(x), x)), [0, 1, 2])
    assert np.array_equal(exported(lambda x: pj.tap(x, lambda v: None)), [0, 1, 2])
    whole = lambda x: jax.vmap(lambda v: pj.call(same, F32, v, vmap_method="expand_dims"))(x)
    assert np.array_equal(exported(whole), [0, 1, 2])
    for refused, text in [
        (lambda x: pj.call(same, like(x), x, effect="ordered"), "ordered, and has arrays of sym"),
        (lambda x: jax.vmap(lambda v: pj.call(same, F32, v))(x), "vmap whose size is symbolic, b"),
    ]:
        with pytest.raises(NotImplementedError, match=text):
            exported(refused)


# --- print


def printed(capfd, act):
    jax.jit(act)(jnp.arange(2.0))
    pj.barrier()
    sys.stdout.flush()
    return capfd.readouterr().out.rstrip("\n")


def test_prints_what_jax_prints(capfd):
    for text, args, kwargs in [
        ("{}: {}", lambda x: ("loss", x), {}),
        ("{} {d} {n}", lambda x: (x,), {"d": np.dtype("float32"), "n": None}),
        ("{0} {0}", lambda x: (x,), {}),
        ("{a[0]} {a[1]}", lambda x: (), {"a": (1, "two")}),
        ("{} {}", lambda x: (x[1], len), {}),
        ("nothing", lambda x: (), {}),
    ]:
        ours = printed(capfd, lambda x: (pj.print(text, *args(x), **kwargs), x)[1])
        jaxs = printed(capfd, lambda x: (jax.debug.print(text, *args(x), **kwargs), x)[1])
        assert ours == jaxs != ""


def test_prints_by_the_options_of_where_it_stands(capfd):
    def act(x):
        with np.printoptions(precision=2, suppress=True):
            pj.print("{}", x / 3)
        return x

    assert printed(capfd, act) == "[0.   0.33]"
    assert printed(capfd, lambda x: (pj.print("{}", x / 3), x)[1]) == "[0.         0.33333334]"


@pytest.mark.parametrize(
    "act", [lambda x: pj.print(f"f-string {x}", x=x), lambda x: pj.print("forgotten", x)]
)
def test_arguments_that_the_format_does_not_use(act):
    with pytest.raises(ValueError, match="unused .* is it an f-string?"):
        jax.jit(lambda x: (act(x), x)[1])(1.0)
