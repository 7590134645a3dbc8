"""postern.jax on a GPU: on the first one that JAX has, or, with POSTERN_TEST_STAND_IN, on CPUs by
the handlers for GPUs.
"""

import gc
import os
import threading
import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import postern
import postern.jax as pj
from postern import _postern
from postern.jax import host_callback as hcb

STAND_IN = "POSTERN_TEST_STAND_IN" in os.environ
F32 = jax.ShapeDtypeStruct((), jnp.float32)


def find_device():
    if STAND_IN:
        return jax.devices("cpu")[0]
    try:
        return jax.devices("cuda")[0]
    except RuntimeError:
        return None


DEVICE = find_device()
pytestmark = pytest.mark.skipif(DEVICE is None, reason="JAX finds no GPU, and no stand-in is there")


@pytest.fixture(autouse=True)
def on_the_device():
    with jax.default_device(DEVICE):
        yield
        pj.barrier()


def like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def doubled(x, **options):
    return pj.call(lambda v: 2 * v, like(x), x, **options)


def raised(f, *args):
    with pytest.raises(postern.CallbackError) as caught:
        jax.block_until_ready(f(*args))
    return caught.value


# --- calls


def test_a_call_between_kernels():
    f = jax.jit(lambda x: doubled(jnp.sin(x) + 1) * 3)
    x = jnp.arange(1000, dtype=jnp.float32)
    out = f(x)
    assert out.devices() == {DEVICE}
    for _ in range(3):
        assert np.allclose(f(x), 6 * (np.sin(np.arange(1000, dtype=np.float32)) + 1), atol=1e-4)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "int32", "float16", "bfloat16", "float32", "complex64"]
)
def test_dtypes_and_shapes(dtype):
    for shape in [(), (0,), (3,), (2, 3), (129, 257)]:
        x = jnp.asarray(np.random.default_rng(0).integers(0, 2, shape), dtype)
        out = jax.jit(lambda x: pj.call(lambda v: v, like(x), x))(x)
        assert out.dtype == x.dtype and out.shape == shape
        assert np.array_equal(np.asarray(out), np.asarray(x))


def test_many_operands_and_results():
    def parts(given):
        return {"sum": sum(given), "all": np.stack(given), "none": np.zeros(0, np.float32)}

    def f(x):
        given = [x + i for i in range(6)]
        types = {
            "sum": like(x),
            "all": jax.ShapeDtypeStruct((6, *x.shape), x.dtype),
            "none": jax.ShapeDtypeStruct((0,), x.dtype),
        }
        return pj.call(parts, types, given)

    x = np.arange(5, dtype=np.float32)
    out = jax.jit(f)(x)
    assert np.array_equal(out["sum"], 6 * x + 15)
    assert np.array_equal(out["all"], np.stack([x + i for i in range(6)]))


def test_large_arrays():
    x = jnp.arange(4 << 20, dtype=jnp.float32)
    assert np.array_equal(jax.jit(doubled)(x), 2 * np.arange(4 << 20, dtype=np.float32))


@pytest.mark.parametrize("effect", ["pure", "unordered", "ordered"])
def test_each_step_of_a_loop_calls(effect):
    seen = []

    def plus(v, i):
        seen.append(int(i))
        return v + 1

    def step(i, x):
        return pj.call(plus, F32, x, i, effect=effect) * 2

    f = jax.jit(lambda x: jax.lax.fori_loop(0, 10, step, x))
    assert f(jnp.float32(0)) == 2046
    assert seen == list(range(10))
    assert f(jnp.float32(0)) == 2046 and len(seen) == 20


def test_branches_and_while_loops():
    def show(v):
        seen.append(float(v))

    seen = []

    @jax.jit
    def f(x):
        x = jax.lax.cond(x > 0, lambda x: pj.tap(x, show), lambda x: x - 1, x)
        return jax.lax.while_loop(
            lambda x: pj.call(lambda v: v < 20, jax.ShapeDtypeStruct((), bool), x),
            lambda x: doubled(x),
            x,
        )

    assert f(3.0) == 24 and seen == [3]
    assert f(19.0) == 38 and seen == [3, 19]


def test_ordered_ones_are_in_order():
    seen = []

    @jax.jit
    def f(x):
        for i in range(4):
            pj.tap(x + i, lambda v: seen.append(float(v)), ordered=True)
            pj.print("at {}", x + i, ordered=True)
            x = pj.call(lambda v: (seen.append(-float(v)), v)[1], F32, x, effect="ordered")
        return x

    for _ in range(2):
        f(jnp.float32(1))
        pj.barrier()
        assert seen == [1, -1, 2, -1, 3, -1, 4, -1]
        seen.clear()
    compiled = f.lower(jnp.float32(1)).compile()
    for _ in range(2):
        compiled(jnp.float32(1))
        pj.barrier()
        assert seen == [1, -1, 2, -1, 3, -1, 4, -1]
        seen.clear()


def test_batches():
    x = jnp.arange(6, dtype=jnp.float32)
    for method in ("sequential", "expand_dims", "broadcast_all"):
        f = jax.jit(jax.vmap(lambda v: doubled(v, vmap_method=method)))
        assert np.array_equal(f(x), 2 * np.arange(6))
    f = jax.jit(jax.vmap(lambda v: pj.call("gpu.twice", F32, v, vmap_method="parallel")))
    postern.register("gpu.twice", lambda v: 2 * v, replace=True)
    assert np.array_equal(f(x), 2 * np.arange(6))


# --- taps, prints, hooks


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_taps_see_each_value_in_order(mode):
    seen = []

    def step(x, i):
        y = x * 2
        return pj.tap(y, lambda v: seen.append(v[0]), mode=mode) - x + 1, y

    out, _ = jax.jit(lambda x: jax.lax.scan(step, x, None, length=200))(jnp.zeros(100))
    pj.barrier()
    assert seen == [2.0 * i for i in range(200)] and out[0] == 200


def test_asynchronous_taps_of_what_is_overwritten():
    seen = []

    @jax.jit
    def f(x):
        def step(_, x):
            pj.tap(x, lambda v: seen.append((v.min(), v.max())), mode="async")
            return x + 1

        return jax.lax.fori_loop(0, 50, step, x)

    jax.jit(f, donate_argnums=0)(jnp.zeros(1 << 18))
    pj.barrier()
    assert seen == [(i, i) for i in range(50)]


def test_every_and_with_derivatives():
    seen = []
    f = lambda x: pj.tap(x, lambda v: seen.append(float(v)), derivatives=True) ** 2
    assert jax.jit(jax.grad(f))(jnp.float32(3)) == 6
    assert sorted(seen) == [3, 6]  # unordered
    seen.clear()

    def step(x, _):
        return pj.tap(x, lambda v: seen.append(float(v)), every=3) + 1, None

    jax.block_until_ready(jax.jit(lambda x: jax.lax.scan(step, x, None, length=7))(0.0))
    pj.barrier()
    assert seen == [0, 3, 6]


def test_prints_and_hooks(capfd):
    seen = []

    def f(x):
        pj.print("x is {} and {:.1f}", x, x.sum())
        return pj.hook("h", x + 1)

    out = jax.jit(pj.with_hooks(f, {"h": lambda v: seen.append(v.tolist())}))(jnp.arange(3.0))
    pj.barrier()
    assert capfd.readouterr().out == "x is [0. 1. 2.] and 3.0\n"
    assert seen == [[1, 2, 3]] and out.devices() == {DEVICE}


def test_host_callback_names_the_device():
    seen = []

    @jax.jit
    def f(x):
        hcb.id_tap(lambda v, _, device: seen.append((float(v), device)), x, tap_with_device=True)
        return hcb.call(lambda v: v + 1, x, result_shape=x)

    assert f(jnp.float32(1)) == 2
    hcb.barrier_wait()
    assert seen == [(1, DEVICE)]


# --- failures


def test_what_fails_is_the_programs_error_and_the_next_run_is_well():
    fails = True

    def may_fail(v):
        if fails:
            raise KeyError("no such row")
        return v

    f = jax.jit(lambda x: pj.call(may_fail, F32, x * 2) + 1)
    for _ in range(3):
        error = raised(f, 1.0)
        assert isinstance(error.__cause__, KeyError) and "test_jax_gpu.py" in str(error)
        assert isinstance(error, jax.errors.JaxRuntimeError)
    fails = False
    assert f(1.0) == 3


def test_the_barrier_raises_what_nobody_has_seen():
    fails = []

    def check(v):
        if fails:
            raise LookupError("of the tap")

    f = jax.jit(lambda x: pj.tap(x, check) + 1)
    for _ in range(3):
        f(jnp.float32(1))
    pj.barrier()
    fails.append(1)
    with pytest.raises(postern.CallbackError, match="of the tap"):
        f(jnp.float32(1))
        pj.barrier()
    fails.clear()
    assert f(jnp.float32(1)) == 2


@pytest.mark.parametrize("effect", ["unordered", "ordered"])
def test_failures_with_effects(effect):
    def fails(v):
        raise ValueError("a bad one")

    def f(x):
        def step(i, x):
            return pj.call(fails, F32, x, effect=effect)

        return jax.lax.fori_loop(0, 3, step, x)

    error = raised(jax.jit(f), 1.0)
    assert isinstance(error.__cause__, ValueError)
    assert jax.jit(lambda x: doubled(x, effect=effect))(2.0) == 4


def test_limits_results_and_asynchronous_failures():
    f = jax.jit(lambda x: pj.call(lambda v: (time.sleep(2), v)[1], F32, x, timeout=0.02))
    with pytest.raises(postern.TimeoutError):
        jax.block_until_ready(f(1.0))
    time.sleep(2.2)
    error = raised(jax.jit(lambda x: pj.call(lambda v: np.zeros(2, np.float32), F32, x)), 1.0)
    assert "result 0" in str(error)

    def fails(v):
        raise RuntimeError("disk full")

    jax.block_until_ready(jax.jit(lambda x: pj.tap(x, fails, mode="async") + 1)(1.0))
    with pytest.raises(postern.CallbackError, match="disk full"):
        pj.barrier()


def test_jax_within_a_function():
    jnp.sin(jnp.float32(1)).block_until_ready()
    error = raised(jax.jit(lambda x: pj.call(lambda v: jnp.sin(v), F32, x)), 1.0)
    assert isinstance(error.__cause__, pj.ReentryError) and str(DEVICE) in str(error)
    # a copy to the device, and another platform or device
    out = jax.jit(lambda x: pj.call(lambda v: jax.device_put(np.asarray(v) * 3), F32, x))(2.0)
    assert out == 6
    try:
        others = [d for d in jax.devices("cpu") if d != DEVICE]
    except RuntimeError:
        others = []
    if others:
        with jax.default_device(others[0]):
            jnp.sin(jnp.float32(0)).block_until_ready()

        def on_another(v):
            with jax.default_device(others[0]):
                return np.asarray(jnp.sin(np.asarray(v)))

        assert jax.jit(lambda x: pj.call(on_another, F32, x))(0.0) == 0
    seen = []
    jax.block_until_ready(
        jax.jit(lambda x: pj.tap(x, lambda v: seen.append(jnp.sin(v)), mode="async"))(0.0)
    )
    pj.barrier()
    assert seen == [0]


# --- programs, devices, threads


def test_functions_are_told_the_device_and_the_place_on_a_mesh():
    seen = []
    mesh = jax.sharding.Mesh(np.array([DEVICE]), ("i",))
    every = jax.sharding.PartitionSpec("i")

    @pj.with_info
    def show(v, info):
        seen.append((_postern.guest_place(), info.device, info.part))
        return v + 1

    @postern.with_info
    def where(v, info):
        return v + 10 * sum(info.coordinates) + len(info.coordinates)

    postern.register("gpu.where", where, replace=True)

    def f(x):
        x = pj.call(show, like(x), x)
        return pj.call("gpu.where", like(x), x)

    for _ in range(2):
        out = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=every, out_specs=every))(jnp.arange(3.0))
        assert np.array_equal(out, [2, 3, 4])
    place = (DEVICE.platform.replace("gpu", "cuda"), DEVICE.local_hardware_id)
    assert seen == [(place, DEVICE.local_hardware_id, {"i": 0})] * 2
    assert _postern.guest_place() is None


def test_cpus_and_the_device_in_one_process():
    try:
        cpu = jax.devices("cpu")[-1]
    except RuntimeError:
        pytest.skip("JAX_PLATFORMS has no cpu")
    f = jax.jit(lambda x: jax.lax.fori_loop(0, 50, lambda i, x: doubled(x + 1) - x, x))
    out = {}

    def run(device):
        x = jax.device_put(jnp.zeros(8), device)
        for _ in range(5):
            got = f(x)
            assert got.devices() == {device}
            out[device] = np.asarray(got).tolist()

    threads = [threading.Thread(target=run, args=(d,)) for d in (cpu, DEVICE)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert out == {cpu: [100.0] * 8, DEVICE: [100.0] * 8}


def test_threads():
    f = jax.jit(lambda x: doubled(x) + 1)
    f(jnp.zeros(3))
    wrong = []

    def run(k):
        for i in range(50):
            if not np.array_equal(f(jnp.full(3, 100.0 * k + i)), [2 * (100.0 * k + i) + 1] * 3):
                wrong.append((k, i))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not wrong and not any(t.is_alive() for t in threads)


def test_functions_are_let_go_with_their_programs():
    class Held:
        pass

    def one():
        held = Held()
        f = jax.jit(lambda x: pj.tap(pj.call(lambda v: (held, v)[1], F32, x), lambda v: held))
        assert f(jnp.float32(1)) == 1
        return weakref.ref(held)

    refs = [one() for _ in range(4)]
    pj.barrier()
    gc.collect()
    _postern.lent_count()  # lets go of what was given back
    assert [ref() for ref in refs] == [None] * 4
