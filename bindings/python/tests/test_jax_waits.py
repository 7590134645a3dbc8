"""postern.jax where a program, a barrier or a process would wait for itself:
it is refused, or goes on.
"""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import postern
import postern.jax as pj

shard_map = (
    getattr(jax, "shard_map", None)
    or __import__("jax.experimental.shard_map", fromlist=["shard_map"]).shard_map
)
F32 = jax.ShapeDtypeStruct((), jnp.float32)


def like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def run(program, *arguments, seconds=100, **environment):
    """What a process of its own prints; one that hangs ends, with where its threads were."""
    watched = (
        f"import faulthandler; faulthandler.dump_traceback_later({seconds}, exit=True)\n"
        + textwrap.dedent(program)
    )
    ended = subprocess.run(
        [sys.executable, "-c", watched, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=2 * seconds,
    )
    assert ended.returncode == 0, ended
    return ended.stdout.split("\n")[:-1]


def test_calls_and_taps_where_jit_is_switched_off():
    seen = []
    f = jax.jit(lambda x: pj.tap(pj.call(lambda v: v + 1, F32, x), lambda v: seen.append(float(v))))
    with jax.disable_jit():
        assert f(1.0) == 2
        assert jax.vmap(f)(jnp.arange(2.0)).tolist() == [1, 2]
        assert (
            jax.grad(lambda x: pj.tap(x * x, lambda v: seen.append(float(v)), derivatives=True))(
                3.0
            )
            == 6
        )
        assert jax.config.jax_disable_jit
        with pytest.raises(postern.CallbackError, match="ZeroDivisionError"):
            pj.call(lambda v: 1 / 0, F32, 1.0).block_until_ready()
        assert jax.config.jax_disable_jit
        pj.barrier()
    assert seen == [2, 1, 2, 9, 1]


@pytest.mark.parametrize("options", ["{}", '{"ordered": True}', '{"mode": "async"}'])
@pytest.mark.parametrize("barrier", ["pj.barrier()", "pj.barrier(1)", "hcb.barrier_wait()"])
def test_a_barrier_inside_of_a_function_is_refused(options, barrier):
    told = run(
        f"""
        import jax, jax.numpy as jnp, postern, postern.jax as pj
        from postern.jax import host_callback as hcb
        x = jnp.ones((256, 256))

        def f(x):  # runs on a thread of XLA's
            y = jax.lax.fori_loop(0, 100, lambda _, c: c @ c / 256, x)[0, 0]
            pj.tap(y, lambda v: {barrier}, **{options})
            return x

        for _ in range(2):
            try:
                jax.jit(f)(x)
                pj.barrier()
            except postern.CallbackError as e:
                print(type(e.__cause__).__name__, "wait outside of functions" in str(e))
        print(pj.barrier())
    """,
        seconds=60,
    )
    assert told == ["ReentryError True"] * 2 + ["True"]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_failure_is_raised_by_one_barrier(ordered):
    seen = []

    @jax.jit
    def f(x, scale):
        y = jax.lax.fori_loop(0, 20, lambda _, c: c @ c / 256, x)[0, 0]
        pj.tap(scale / y, lambda v: seen.append(1 / int(v)), ordered=ordered)
        return x

    x = jnp.ones((256, 256))
    for _ in range(2):
        f(x, 0.0)
        with pytest.raises(postern.CallbackError, match="ZeroDivisionError"):
            pj.barrier()
        assert pj.barrier()
        f(x, 2.0)
        assert pj.barrier()
    assert seen == [0.5, 0.5]


def computes(v):
    return np.asarray(jnp.sin(v))


def elsewhere(v):
    with jax.default_device(jax.devices()[1]):
        return np.asarray(jnp.sin(v))


def by_name_of_the_platform(v):
    with jax.default_device("cpu"):
        return np.asarray(jnp.sin(v))


@pytest.mark.parametrize("options", [{}, {"timeout": 20}, {"effect": "ordered"}])
@pytest.mark.parametrize("named", [False, True])
def test_jax_inside_of_a_function_is_refused(named, options):
    x = jnp.float32(0)

    def called(function):
        fn = "py.computes" if named else function
        postern.register("py.computes", function, replace=True)
        return jax.jit(lambda x: pj.call(fn, F32, x, **options))(x).block_until_ready()

    for function in (computes, by_name_of_the_platform):
        with pytest.raises(
            postern.CallbackError, match="compute with NumPy there, or on another device"
        ) as caught:
            called(function)
        assert isinstance(caught.value.__cause__, pj.ReentryError)
    assert called(elsewhere) == 0
    assert jnp.sin(0.0) == 0


def test_jax_inside_of_functions_that_nobody_waits_for():
    seen = []
    postern.register("py.shown", lambda v: seen.append(float(jnp.sin(v))), replace=True)
    jax.jit(lambda x: pj.tap(x, "py.shown", mode="async"))(0.0)
    pj.barrier()
    assert seen == [0]
    exported = jax.export.export(jax.jit(lambda x: pj.call("py.computes", F32, x, timeout=20)))(F32)
    postern.register("py.computes", computes, replace=True)
    loaded = postern.load_text(exported.mlir_module_serialized)
    assert loaded(np.float32(0))[0] == 0  # a program of Postern's

    def waited_for():
        with pytest.raises(postern.CallbackError, match="on another device"):
            jax.jit(lambda x: pj.call(lambda v: loaded(v)[0], F32, x))(0.0).block_until_ready()
        seen.append("refused")

    thread = threading.Thread(target=waited_for)  # where a call of the program starts no thread
    thread.start()
    thread.join()
    assert seen == [0, "refused"]


@pytest.mark.parametrize("devices", [1, 4])
def test_a_function_may_return_a_large_array_of_jaxs(devices):
    told = run(
        """
        import os, sys
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # so that XLA has no more \
threads than devices
        import jax, jax.numpy as jnp, numpy as np, postern.jax as pj
        try:
            from jax import shard_map
        except ImportError:
            from jax.experimental.shard_map import shard_map
        mesh, spec = jax.sharding.Mesh(np.array(jax.devices("cpu")), ("x",)), \
jax.sharding.PartitionSpec("x")

        def f(x, convert):
            y = jax.lax.fori_loop(0, 20, lambda _, c: c @ c / 512, x)  # runs on a thread of XLA's
            return pj.call(lambda v: convert(2 * v), jax.ShapeDtypeStruct(y.shape, y.dtype), y)

        for convert in (jnp.asarray, jax.device_put, lambda v: jnp.asarray(v.astype(np.float64))):
            cut = shard_map(lambda x: f(x, convert), mesh=mesh, in_specs=spec, out_specs=spec)
            out = jax.jit(cut)(jnp.ones((512 * len(jax.devices()), 512)))
            print(set(np.asarray(out).ravel().tolist()), out.dtype)
    """,
        JAX_NUM_CPU_DEVICES=str(devices),
    )
    assert told == ["{2.0} float32"] * 3


def test_a_failure_before_a_collective_may_be_told_by_a_flag():
    mesh, spec = (
        jax.sharding.Mesh(np.array(jax.devices("cpu")), ("x",)),
        jax.sharding.PartitionSpec("x"),
    )

    def careful(v):
        return (np.zeros_like(v), np.int32([1])) if v[0] == 2 else (v, np.int32([0]))

    def part(x):
        y, failed = pj.call(careful, (like(x), jax.ShapeDtypeStruct((1,), jnp.int32)), x)
        return jax.lax.psum(y, "x"), jax.lax.psum(failed, "x")

    _, failed = jax.jit(
        shard_map(part, mesh=mesh, in_specs=spec, out_specs=jax.sharding.PartitionSpec())
    )(jnp.arange(4.0))
    assert failed.tolist() == [1]


@pytest.mark.parametrize(
    "parent, child",
    [("jnp.sin(0.)", "refused"), ("jax.devices()", "refused"), ("jnp.float32", "ran")],
)
def test_a_process_forked_from_one_that_ran_plain_jax(parent, child):
    told = run(
        f"""
        import multiprocessing, jax, jax.numpy as jnp, postern, postern.jax as pj
        {parent}
        def work():
            try:
                pj.call(lambda v: v + 1, \
jax.ShapeDtypeStruct((), jnp.float32), 1.0).block_until_ready()
                print("ran", flush=True)
            except postern.Error as e:
                print("refused" if "spawn" in str(e) else e, flush=True)
        p = multiprocessing.get_context("fork").Process(target=work)
        p.start()
        p.join(60)
        if p.exitcode is None:
            p.kill()
        print(p.exitcode)
    """
    )
    assert told == [child, "0"]


def test_a_small_queue_loses_nothing():
    told = run(
        """
        import time, jax, jax.numpy as jnp, postern, postern.jax as pj
        postern.configure(tap_queue_bytes=4096)
        seen, ahead = [], []

        def show(v):
            time.sleep(0.001)
            seen.append(int(v[0]))

        def step(i, c):
            pj.tap(jnp.full(64, i), show, mode="async")
            pj.tap(i, lambda v: ahead.append(int(v) - len(seen)))
            return c

        jax.jit(lambda x: jax.lax.fori_loop(0, 300, step, x))(1.0).block_until_ready()
        pj.barrier()
        print(seen == list(range(300)), 0 < max(ahead) < 40)
    """
    )
    assert told == ["True True"]


class Held:
    pass


def test_failures_hold_their_frames_only_for_a_while():
    kept = []

    def fails(v):
        big = Held()  # such as an array
        kept.append(weakref.ref(big))
        raise KeyError("gone")

    f = jax.jit(lambda x: pj.call(fails, F32, x))
    for _ in range(40):
        with pytest.raises(postern.CallbackError, match="KeyError"):
            f(1.0).block_until_ready()
    postern.register("py.any", abs, replace=True)  # lets go of what was given back
    gc.collect()
    assert sum(ref() is not None for ref in kept) <= 17


def test_an_old_failure_keeps_its_type():
    told = run(
        """
        import jax, jax.numpy as jnp, postern, postern.jax as pj, time
        F32 = jax.ShapeDtypeStruct((), jnp.float32)
        numbers, look = [], postern._postern.guest_failure
        postern._postern.guest_failure = lambda number: (numbers.append(number), look(number))
        late = jax.jit(lambda x: pj.call(lambda v: time.sleep(2) or v, F32, x, timeout=0.01))
        fails = jax.jit(lambda x: pj.call(lambda v: 1 / 0, F32, x))
        for f in [late] + [fails] * 20:
            try:
                f(1.0).block_until_ready()
            except postern.CallbackError:
                pass
        postern._postern.guest_failure = look
        for number in (numbers[0], numbers[1], numbers[20], 22):  # as XLA tells them
            made = jax.errors.JaxRuntimeError(\
f"INTERNAL: the call failed [postern failure {number}]")
            kind = type(made) if isinstance(made, postern.Error) else None
            print(getattr(kind, "__name__", ""), type(made.__cause__).__name__, \
"'<lambda>' at <string>:" in str(made))
    """
    )
    assert told == [
        "TimeoutError NoneType True",
        "CallbackError NoneType True",
        "CallbackError ZeroDivisionError True",
        " NoneType False",
    ]


def test_the_process_ends_though_a_function_does_not():
    told = run(
        """
        import jax, jax.numpy as jnp, postern, postern.jax as pj, time
        try:
            pj.call(lambda v: time.sleep(1000), \
jax.ShapeDtypeStruct((), jnp.float32), 1.0, timeout=0.1).block_until_ready()
        except postern.TimeoutError:
            print("late")
    """
    )
    assert told == ["late"]


@pytest.mark.parametrize("fails", ["call", "tap", "late"])
def test_an_ordered_failure_in_shard_map_is_raised_once(fails):
    told = run(
        f"""
        import jax, jax.numpy as jnp, numpy as np, postern, postern.jax as pj, time
        mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")), ("x",))
        spec = jax.sharding.PartitionSpec("x")
        like = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)

        def no_fives(x):
            if (x == 5).any():
                if {fails!r} == "late":
                    time.sleep(2)
                raise ValueError("No fives.")
            return x

        def step(x):
            if {fails!r} == "tap":
                return pj.tap(x, lambda v: no_fives(v) is None, ordered=True)
            limit = 0.1 if {fails!r} == "late" else None
            return pj.call(no_fives, like(x), x, effect="ordered", timeout=limit)

        cut = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=spec, out_specs=spec))
        other = jax.jit(lambda x: pj.call(lambda v: v + 1, like(x), x, effect="ordered"))
        good, bad = jnp.array([1, 2, 3, 4]), jnp.array([3, 4, 5, 6])
        for use in (True, False, True):
            cut(good).block_until_ready()
            try:
                out = cut(bad)
                if use:
                    out.block_until_ready()
                    print("no failure")
                del out
            except postern.CallbackError as e:
                print(type(e).__name__)
            cut(good).block_until_ready()
            print(other(jnp.array([7])))
            if not use:  # what nobody has seen is the barrier's
                try:
                    pj.barrier()
                except postern.CallbackError as e:
                    print("barrier", type(e).__name__)
            print(pj.barrier())
    """,
        seconds=100,
    )
    kind = "TimeoutError" if fails == "late" else "CallbackError"
    seen = [kind, "[8]", "True"]
    assert told == [*seen, "[8]", f"barrier {kind}", "True", *seen]


def test_failures_of_asynchronous_taps_are_jaxs_errors_too():
    for _ in range(2):
        pj.tap(1.0, lambda v: 1 / 0, mode="async")
        with pytest.raises(jax.errors.JaxRuntimeError, match="ZeroDivisionError") as caught:
            pj.barrier()
        assert isinstance(caught.value, postern.CallbackError)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert pj.barrier()


SLOW = """
import jax, jax.numpy as jnp, sys, threading, time
x = jnp.ones((256, 256))

def slow(x):  # runs on a thread of XLA's
    return jax.lax.fori_loop(0, 100, lambda _, c: c @ c / 256, x)[0, 0]
"""


def test_a_failure_before_a_program_that_succeeds_is_raised():
    told = run(
        SLOW
        + """
import postern, postern.jax as pj

def write(v):
    if v == 0:
        raise OSError("disk full")

log = jax.jit(lambda x, step: (pj.tap(slow(x) * step, write), x)[1])
for _ in range(2):
    for steps in ((1, 0, 1), (0, 1, 0, 1)):
        for step in steps:
            log(x, step)
        for _ in range(2):
            try:
                print(pj.barrier())
            except postern.CallbackError as e:
                print(type(e.__cause__).__name__)
try:
    log(x, 0).block_until_ready()
except postern.CallbackError:
    print("seen")
log(x, 1)
print(pj.barrier())
"""
    )
    assert told == ["OSError", "True"] * 4 + ["seen", "True"]


@pytest.mark.parametrize("by", ["pj.tap", "jax.debug.callback"])
@pytest.mark.parametrize("seen", [False, True])
def test_a_failure_that_nobody_waited_for_is_told_at_the_end(by, seen):
    told = run(
        SLOW
        + f"""
import numpy as np, postern.jax as pj
sys.stderr = sys.stdout

def fails(v):
    raise LookupError("of the function")

def show(x):  # over two devices also JAX's own runs on threads of XLA's
    pj.tap(slow(x), fails) if {by!r} == "pj.tap" else jax.debug.callback(fails, slow(x))
    return x * 2

mesh, spec = jax.sharding.Mesh(np.array(jax.devices()), ("x",)), jax.sharding.PartitionSpec("x")
out = jax.jit(jax.shard_map(show, mesh=mesh, in_specs=spec, out_specs=spec))(jnp.ones((512, 256)))
if {seen}:
    try:
        out.block_until_ready()
    except jax.errors.JaxRuntimeError:
        print("seen")
""",
        JAX_NUM_CPU_DEVICES="2",
    )
    unseen = by != "pj.tap" or not seen  # JAX's own are raised by each wait
    lines = [line for line in told if line.startswith("postern: a failure that nobody waited for")]
    assert len(lines) == unseen and told.count("seen") == seen, told
    assert any("LookupError: of the function" in line for line in told) == unseen


class Token:
    """In place of a program's."""

    def __init__(self, waited):
        self.waited = waited

    def block_until_ready(self):
        self.waited(self)


def test_a_barrier_waits_for_threads_that_have_ended():
    begun, waited = [], []

    def begin():
        begun.append(Token(waited.append))
        pj._compat.dispatch.runtime_tokens.set_output_runtime_token("a device", begun[-1])

    for _ in range(20):  # some have another one's ident
        thread = threading.Thread(target=begin)
        thread.start()
        thread.join()
    assert pj.barrier() and waited == begun and len(begun) == 20


def test_taps_of_no_elements_are_not_waited_for():
    late = pj._functions.late.values()
    pj.barrier()
    before = sum(len(each._waiting) for each in late)
    jax.vmap(lambda v: pj.tap(v, lambda v: None, mode="async"))(jnp.zeros(0))
    jax.vmap(lambda v: pj.tap(v, lambda v: None, mode="async", every=2))(jnp.zeros(0))
    pj.barrier()
    assert sum(len(each._waiting) for each in late) <= before


def test_programs_of_threads_that_have_ended_are_not_kept_for_ever(monkeypatch):
    compat = pj._compat
    monkeypatch.setattr(compat._Retiring, "limit", 10)
    f = jax.jit(lambda x: (pj.tap(x, lambda v: None), x)[1])
    for _ in range(40):
        thread = threading.Thread(target=f, args=(1.0,))
        thread.start()
        thread.join()
    end = time.monotonic() + 60
    while len(compat._begun) > 30 and time.monotonic() < end:
        time.sleep(0.01)
    assert len(compat._begun) <= 30
    pj.barrier()
    assert not compat._begun


def test_ctrl_c_in_a_barrier_loses_no_failure():
    begun, missed, interrupted = pj._compat._begun, pj._compat._missed, []

    def interrupts(token):
        if not interrupted:
            interrupted.append(token)
            raise KeyboardInterrupt

    begun[-1, "a device"] = Token(interrupts)
    missed.append(LookupError("of a program"))
    with pytest.raises(KeyboardInterrupt):
        pj.barrier()
    with pytest.raises(LookupError, match="of a program"):
        pj.barrier()
    assert pj.barrier() and (-1, "a device") not in begun


def test_ctrl_c_beside_a_registration(monkeypatch):
    register, interrupted = postern._postern.register, []

    def interrupts(*arguments):
        if not interrupted:
            interrupted.append(arguments)
            raise KeyboardInterrupt
        return register(*arguments)

    monkeypatch.setattr(postern._postern, "register", interrupts)
    f = jax.jit(lambda x: pj.call(lambda v: v + 1, F32, x))
    with pytest.raises(KeyboardInterrupt):
        f(1.0)
    assert f(1.0) == 2
