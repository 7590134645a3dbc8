"""How JAX starts programs with calls, checks them, and lets go of them."""

import gc
import os
import subprocess
import sys
import textwrap
import weakref

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import postern
import postern.jax as pj
from postern import _postern
from postern.jax import _compat, host_callback as hcb

F32 = jax.ShapeDtypeStruct((), jnp.float32)


def add_one(x):
    return np.asarray(x) + np.float32(1)


def run(program, **environment):
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    return ended.stdout.splitlines()


SHOWN = {
    "pure": lambda x: pj.call(add_one, F32, x),
    "unordered": lambda x: pj.call(add_one, F32, x, effect="unordered"),
    "ordered": lambda x: pj.call(add_one, F32, x, effect="ordered"),
    "tap": lambda x: pj.tap(x + 1, lambda v: None),
    "ordered tap": lambda x: pj.tap(x + 1, lambda v: None, ordered=True),
    "async": lambda x: pj.tap(x + 1, lambda v: None, mode="async"),
    "async ordered": lambda x: pj.tap(x + 1, lambda v: None, mode="async", ordered=True),
    "print": lambda x: (pj.print("{}", x, ordered=True), x + 1)[1],
    "hcb.call": lambda x: hcb.call(add_one, x, result_shape=F32),
    "hcb.id_tap": lambda x: hcb.id_tap(lambda v, transforms: None, x + 1),
}


@pytest.mark.parametrize("kind", SHOWN)
def test_programs_compiled_ahead_of_time_run_again(kind):
    compiled = jax.jit(SHOWN[kind]).lower(jnp.float32(1)).compile()
    assert [float(compiled(jnp.float32(i))) for i in range(4)] == [1, 2, 3, 4]
    pj.barrier()


@pytest.mark.parametrize("kind", SHOWN)
def test_exported_programs_run_again(kind):
    exported = jax.export.export(jax.jit(SHOWN[kind]))(F32)
    f = jax.jit(exported.call)
    assert [float(f(jnp.float32(i))) for i in range(3)] == [1, 2, 3]
    compiled = f.lower(jnp.float32(1)).compile()
    assert [float(compiled(jnp.float32(i))) for i in range(3)] == [1, 2, 3]
    pj.barrier()


@pytest.mark.parametrize("kind", ["ordered", "ordered tap", "hcb.call"])
def test_ordered_programs_compiled_ahead_of_time_on_two_devices(kind):
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:2]), ("i",))
    spec = jax.sharding.PartitionSpec("i")
    body = lambda x: SHOWN[kind](x[0])[None]
    f = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec))
    x = jax.device_put(jnp.arange(2.0), jax.sharding.NamedSharding(mesh, spec))
    compiled = f.lower(x).compile()
    for _ in range(4):
        assert np.array_equal(compiled(x), [1, 2])
    pj.barrier()


@pytest.mark.parametrize("named", [False, True])
def test_a_pure_call_is_started_by_jaxs_fast_path(named):
    test_util = pytest.importorskip("jax._src.test_util")
    if not hasattr(test_util, "count_pjit_cpp_cache_miss"):
        pytest.skip("JAX counts no misses")
    postern.register("programs.add_one", add_one, replace=True)
    function = "programs.add_one" if named else add_one
    f = jax.jit(lambda x: pj.call(function, F32, x))
    x = jnp.float32(1)
    with test_util.count_pjit_cpp_cache_miss() as misses:
        for _ in range(10):
            assert float(f(x)) == 2
    assert (misses() if callable(misses) else misses[0]) == 1


KINDS = {
    "unordered": lambda f, x: pj.call(f, F32, x, effect="unordered"),
    "tap": lambda f, x: pj.tap(x, f) + 1,
    "async": lambda f, x: pj.tap(x, f, mode="async") + 1,
}


def misses_of(f, x, runs):
    """How many runs of them JAX's Python starts."""
    test_util = pytest.importorskip("jax._src.test_util")
    if not hasattr(test_util, "count_pjit_cpp_cache_miss"):
        pytest.skip("JAX counts no misses")
    with test_util.count_pjit_cpp_cache_miss() as misses:
        for _ in range(runs):
            f(x)
    return misses() if callable(misses) else misses[0]


@pytest.mark.parametrize("kind", KINDS)
def test_effects_are_started_by_jaxs_fast_path(kind):
    seen = []

    def function(v):
        seen.append(float(v))
        return v + 1 if kind == "unordered" else None

    f = jax.jit(lambda x: KINDS[kind](function, x))
    assert misses_of(f, jnp.float32(1), 10) == 1
    pj.barrier()
    assert seen == [1.0] * 10


def test_effects_that_are_not_reached_at_first():
    seen = []

    def branch(x):
        return jax.lax.cond(x > 0, lambda x: pj.tap(x, lambda v: seen.append(float(v))) + 1, abs, x)

    f = jax.jit(branch)
    for x in (-1, 1, -1, 2, 3):
        f(jnp.float32(x))
    pj.barrier()
    assert seen == [1, 2, 3]


def test_a_failure_of_the_fast_path_is_raised_once():
    fails = []

    def check(v):
        if fails:
            raise LookupError("of the tap")

    f = jax.jit(lambda x: pj.tap(x, check) + 1)
    x = jnp.float32(1)
    for _ in range(3):
        f(x)
    fails.append(1)
    with pytest.raises(jax.errors.JaxRuntimeError, match="of the tap") as e:
        f(x)
    assert isinstance(e.value.__cause__, LookupError)
    pj.barrier()
    fails.clear()
    assert float(f(x)) == 2


def test_a_barrier_waits_for_a_small_program_behind_a_large_one():
    """Which XLA does not run on the thread that starts it, as it did before."""
    seen = []
    small = jax.jit(lambda x: pj.tap(x[0, 0], lambda v: seen.append(float(v))) + 1)
    large = jax.jit(lambda x: jax.lax.fori_loop(0, 40, lambda _, v: jnp.tanh(v @ v), x))
    x = jnp.eye(300)
    y = large(x)
    for _ in range(3):
        small(x)
    pj.barrier()
    seen.clear()
    for count in range(1, 4):
        small(large(y))
        pj.barrier()
        assert len(seen) == count


# --- NaN


@pytest.mark.parametrize("how", ["jit", "outside", "disable_jit", "fori", "vmap", "infs"])
def test_a_nan_of_a_call_is_named(how):
    told = run(
        f"""
        import contextlib, io, jax, jax.numpy as jnp, numpy as np, postern.jax as pj
        F32 = jax.ShapeDtypeStruct((), jnp.float32)
        how = {how!r}
        jax.config.update("jax_debug_infs" if how == "infs" else "jax_debug_nans", True)
        bad = np.float32("inf" if how == "infs" else "nan")
        call = lambda x: pj.call(lambda v: bad if v > 1 else v, F32, x)
        f = {{"jit": jax.jit(call), "outside": call, "disable_jit": call, "infs": jax.jit(call),
             "fori": lambda x: jax.lax.fori_loop(0, 3, lambda i, c: call(c), x),
             "vmap": jax.jit(lambda x: jax.vmap(call)(jnp.stack([x, x]))[0])}}[how]
        with jax.disable_jit() if how == "disable_jit" else contextlib.nullcontext():
            assert f(1.0) == 1
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    f(2.0)
            except FloatingPointError as e:
                print("encountered in" in str(e), how == "fori" or "postern_call" in str(e))
    """
    )
    assert told == ["True True"]


# --- derivatives


def rule_that(shows):
    @jax.custom_jvp
    def square(x):
        return x * x

    @square.defjvp
    def _(primals, tangents):
        shows(tangents[0])
        return square(*primals), 2 * primals[0] * tangents[0]

    return square


SHOWS = {
    "tap": lambda t: pj.tap(t, lambda v: None),
    "async": lambda t: pj.tap(t, lambda v: None, mode="async"),
    "ordered": lambda t: pj.tap(t, lambda v: None, ordered=True),
    "every": lambda t: pj.tap(t, lambda v: None, every=3),
    "listener": lambda t: pj.tap(t, pj.listen.stats()),
    "print": lambda t: pj.print("{}", t),
    "hook": lambda t: pj.with_hooks(lambda v: pj.hook("t", v), {"t": lambda v: None})(t),
    "id_tap": lambda t: hcb.id_tap(lambda v, transforms: None, t),
    "derivatives": lambda t: pj.tap(t, lambda v: None, derivatives=True),
    "call of nothing": lambda t: pj.call(lambda v: None, None, t, effect="unordered"),
}


@pytest.mark.parametrize("shows", SHOWS)
def test_what_is_shown_of_a_tangent_has_a_transpose(shows):
    square = rule_that(SHOWS[shows])
    assert jax.grad(square)(3.0) == 6
    assert jax.grad(jax.jit(square))(3.0) == 6 and jax.jit(jax.grad(square))(3.0) == 6
    assert np.array_equal(jax.vmap(jax.grad(square))(jnp.arange(2.0)), [0, 2])
    loop = lambda x: jax.lax.scan(lambda c, _: (square(c), None), x, None, length=2)[0]
    assert jax.grad(loop)(2.0) == 32
    assert jax.jvp(square, (3.0,), (1.0,)) == (9, 6)
    linear = lambda t: (SHOWS[shows](t), 2 * t)[1]
    assert jax.linear_transpose(linear, 1.0)(3.0) == (6.0,)
    pj.barrier()


def test_a_call_on_a_tangent_says_how_it_gets_a_derivative():
    linear = lambda t: pj.call(lambda v: v, F32, t)
    with pytest.raises(ValueError, match="has no derivative; give it one by jax.custom_jvp"):
        jax.linear_transpose(linear, 1.0)(3.0)


# --- lives


class Held:
    pass


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize(
    "kind",
    ["pure", "ordered", "tap", "ordered tap", "async", "vmap", "grad", "id_tap", "timeout", "told"],
)
def test_functions_go_with_what_was_traced(kind, jit):
    def one():
        held = Held()
        look = lambda v, *_, **__: (held, v)[1]
        f = {
            "pure": lambda x: pj.call(look, F32, x),
            "ordered": lambda x: pj.call(look, F32, x, effect="ordered"),
            "timeout": lambda x: pj.call(look, F32, x, timeout=100),
            "told": lambda x: pj.call(pj.with_info(look), F32, x),
            "tap": lambda x: pj.tap(x, look),
            "ordered tap": lambda x: pj.tap(x, look, ordered=True),
            "async": lambda x: pj.tap(x, look, mode="async"),
            "vmap": lambda x: jax.vmap(lambda v: pj.call(look, F32, v))(jnp.stack([x, x])),
            "grad": jax.grad(lambda x: pj.tap(x, look, derivatives=True)),
            "id_tap": lambda x: hcb.id_tap(look, x),
        }[kind]
        jax.block_until_ready((jax.jit(f) if jit else f)(jnp.float32(1)))
        return weakref.ref(held)

    refs = [one() for _ in range(6)]
    pj.barrier()
    gc.collect()
    postern._postern.lent_count()  # lets go of what was given back
    assert [ref() for ref in refs] == [None] * 6


def test_a_program_under_way_keeps_its_functions():
    seen = []

    def begin():
        f = jax.jit(
            lambda x: jax.lax.fori_loop(
                0, 300, lambda i, c: pj.call(lambda v: seen.append(1) or v + 1, F32, c), x
            )
        )
        return f(1.0)

    x = begin()
    gc.collect()
    assert x == 301 and len(seen) == 300


def test_a_call_outside_of_jit_with_a_function_of_its_own_each_time():
    events = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: events.append(event) if "backend_compile" in event else None
    )
    seen = []
    x = jnp.float32(1)
    for i in range(20):
        pj.tap(x, lambda v, i=i: seen.append(i))
        pj.tap(x, lambda v, i=i: seen.append(i), mode="async")
        assert pj.call(lambda v, i=i: v + i, F32, x) == 1 + i
        f = jax.vmap(lambda v, i=i: pj.call(lambda w: w + i, F32, v))
        assert np.array_equal(f(jnp.stack([x, x])), [1 + i] * 2)
    jax.monitoring.clear_event_listeners()
    pj.barrier()
    assert sorted(seen) == sorted([*range(20)] * 2)
    assert len(events) < 20


def test_nothing_is_said_at_the_end_of_a_process_that_exported():
    told = run(
        """
        import jax, jax.numpy as jnp, numpy as np, jax.export, postern, postern.jax as pj
        F32 = jax.ShapeDtypeStruct((), jnp.float32)
        postern.register("e.f", lambda v: v + np.float32(1))
        e = jax.export.export(jax.jit(\
lambda x: pj.call("e.f", F32, x) + pj.call(lambda v: v, F32, x)))(F32)
        pj.tap(1.0, lambda v: None)
        print(jax.jit(e.call)(1.0))
    """
    )
    assert told == ["3.0"]


def test_taps_outside_of_jit_count_for_each_function():
    class Equal:
        def __init__(self):
            self.got = []

        def __eq__(self, other):
            return isinstance(other, Equal)

        def __hash__(self):
            return 1

        def __call__(self, v):
            self.got.append(int(v))

        def method(self, v):
            self(v)

    for mode in ("sync", "async"):
        for shown in (lambda e: e, lambda e: e.method):
            first, second = Equal(), Equal()
            for i in range(7):
                for to in (first, second):
                    assert pj.tap(np.int32(i), shown(to), every=3, mode=mode) == i
            jax.vmap(lambda v: pj.tap(v, shown(first), every=3, mode=mode))(jnp.arange(7))
            pj.barrier()
            assert first.got == [0, 3, 6] * 2 and second.got == [0, 3, 6]


def test_a_listener_outside_of_jit_is_compiled_once():
    stats, other = pj.listen.stats(), pj.listen.stats()
    events = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: events.append(event) if "backend_compile" in event else None
    )
    x = jnp.float32(1)
    for _ in range(5):
        pj.tap(x, stats)
        pj.tap(x, other)
    jax.monitoring.clear_event_listeners()
    pj.barrier()
    assert len(events) == 2
    assert [s.series()[0]["firings"] for s in (stats, other)] == [5, 5]


def test_programs_for_gpus_are_made_without_one(capfd):
    """One call, whatever the platform is; it enters the same functions."""

    def f(x):
        return pj.call("programs.plus", F32, pj.tap(x, lambda v: print("x is", v))) * 2

    postern.register("programs.plus", lambda v: v + 1, replace=True)
    exported = jax.export.export(jax.jit(f), platforms=["cpu", "cuda"])(F32)
    assert exported.mlir_module().count("custom_call @postern_guest") == 2
    here = jax.jit(exported.call)
    assert here(jnp.float32(2)) == 6 and here(jnp.float32(3)) == 8
    assert capfd.readouterr().out == "x is 2.0\nx is 3.0\n"
    for platform in ("cpu", "cuda"):
        text = jax.jit(f).trace(F32).lower(lowering_platforms=(platform,)).as_text()
        assert text.count("custom_call @postern_guest") == 2


def test_a_gpus_handlers_need_its_driver(monkeypatch):
    try:
        _postern.guest("cuda")
        pytest.skip("there is a driver")
    except postern.Error as e:
        assert "NVIDIA driver" in str(e)
    monkeypatch.setattr(_compat, "has_platform", lambda name: True)
    f = jax.jit(lambda x: pj.call(add_one, F32, x))
    with pytest.raises(postern.Error, match="NVIDIA driver"):
        f.trace(F32).lower(lowering_platforms=("cuda",))
    assert f(1.0) == 2


def test_other_platforms_are_refused_by_name():
    f = jax.jit(lambda x: pj.call(add_one, F32, x, name="reader"))
    with pytest.raises(NotImplementedError, match="call 'reader' at .* is lowered for tpu: "):
        f.trace(F32).lower(lowering_platforms=("tpu",))


def test_a_function_that_is_called_again_is_lowered_once():
    f = lambda x: x + 1
    before = set(postern.registered())
    lowered = jax.jit(lambda x: sum(pj.call(f, F32, x + i) for i in range(5))).lower(1.0)
    assert len(set(postern.registered()) - before) == 1
    assert float(lowered.compile()(jnp.float32(1))) == 20
    others = [lambda x: x, lambda x: x]  # of one place, and others
    second = jax.jit(lambda x: [pj.call(g, F32, x) for g in others]).lower(1.0)
    assert len(set(postern.registered()) - before) == 3
    del lowered, second
