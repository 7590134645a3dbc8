"""postern.jax, in functions that JAX has jitted."""

import copy
import functools
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import postern
import postern.jax as pj

F32 = jax.ShapeDtypeStruct((), jnp.float32)


if hasattr(jax, "shard_map"):
    shard_map = jax.shard_map
else:
    from jax.experimental.shard_map import shard_map


def like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def doubled(x, **options):
    return pj.call(lambda v: 2 * v, like(x), x, **options)


def test_a_call_computes_on_with_what_the_function_returns():
    assert jax.jit(lambda x: doubled(x) + 1)(3.0) == 7
    assert doubled(jnp.float32(3)) == 6  # outside of jit too


def test_trees_come_and_go():
    def swap(given):
        return {"y": given["x"], "x": given["y"] + 1}

    def f(x, y):
        return pj.call(swap, {"x": like(y), "y": like(x)}, {"x": x, "y": y})

    out = jax.jit(f)(jnp.arange(3), jnp.float32(2))
    assert out["x"] == 3 and np.array_equal(out["y"], [0, 1, 2])


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "int32", "float16", "bfloat16", "float32", "complex64"]
)
def test_dtypes_and_shapes(dtype):
    for shape in [(), (0,), (3,), (2, 3)]:
        x = jnp.ones(shape, dtype)
        out = jax.jit(lambda x: pj.call(lambda v: v, like(x), x))(x)
        assert out.dtype == x.dtype and np.array_equal(out, x)


def test_the_arrays_of_a_function_are_its_own():
    kept = []

    def count(v):
        kept.append(v)
        v += 1  # which nobody sees but the function
        return v

    for x in [jnp.float32(0), jnp.arange(6.0).reshape(2, 3), jnp.zeros(3, "bfloat16")]:
        kept.clear()
        f = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, v: pj.call(count, like(v), v), x))
        assert np.array_equal(f(x), x + 3)
        assert [np.array_equal(v, x + n + 1) for n, v in enumerate(kept)] == [True] * 3
        kept.clear()
        jax.jit(lambda x: pj.tap(x, count))(x).block_until_ready()
        jax.jit(lambda x: pj.tap([x], lambda v: count(v[0]), mode="async")[0])(
            x
        ).block_until_ready()
        pj.barrier()
        assert [np.array_equal(v, x + 1) for v in kept] == [True] * 2


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "float32", "float64", "complex64"]
)
def test_a_function_may_return_a_scalar_of_its_dtype(dtype):
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        one, like_one = jnp.dtype(dtype).type(1), jax.ShapeDtypeStruct((), dtype)
        for returned in [one, np.asarray(one)]:
            out = jax.jit(lambda: pj.call(lambda: returned, like_one))()
            assert out.dtype == dtype and out == 1
        other = np.float32(1) if dtype != "float32" else np.float64(1)
        with pytest.raises(
            postern.CallbackError,
            match=f"result 0 must be {dtype}\\[\\], the function returned {other.dtype}",
        ):
            jax.jit(lambda: pj.call(lambda: other, like_one))().block_until_ready()
        with pytest.raises(
            postern.CallbackError,
            match=f"result 0 must be {dtype}\\[2\\], the function returned {dtype}\\(\\)",
        ):
            jax.jit(
                lambda: pj.call(lambda: one, jax.ShapeDtypeStruct((2,), dtype))
            )().block_until_ready()


def test_arrays_in_another_order_are_taken():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for returned in [
        np.asfortranarray(x),
        np.repeat(x, 2, 1)[:, ::2],
        np.ma.array(x),
        np.frombuffer(b"?" + x.tobytes(), "f4", 6, 1).reshape(2, 3),
    ]:
        assert np.array_equal(jax.jit(lambda: pj.call(lambda: returned, like(x)))(), x)
    with pytest.raises(postern.CallbackError, match="must be float32"):
        jax.jit(lambda: pj.call(lambda: x.astype(">f4"), like(x)))().block_until_ready()


@pytest.mark.parametrize(
    "returned, text",
    [
        (lambda v: v[:1], r"result 0 must be float32\[3\], the function returned float32\(1,\)"),
        (
            lambda v: v.astype(np.float16),
            r"result 0 must be float32\[3\], the function returned float16\(3,\)",
        ),
        (
            lambda v: (v, v),
            r"the function must return PyTreeDef\(\*\), it returned PyTreeDef\(\(\*, \*\)\)",
        ),
        (
            lambda v: None,
            r"the function must return PyTreeDef\(\*\), it returned PyTreeDef\(None\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(returned, text):
    with pytest.raises(postern.CallbackError, match=text):
        jax.jit(lambda x: pj.call(returned, like(x), x))(jnp.ones(3)).block_until_ready()


@pytest.mark.parametrize("wanted", [None, (), {}])
def test_what_is_returned_for_nothing_is_refused(wanted):
    with pytest.raises(postern.CallbackError, match="the function must return PyTreeDef"):
        pj.call(lambda v: v, wanted, 1.0, effect="unordered")
        pj.barrier()


def test_an_exception_arrives_as_it_was_thrown():
    def fails(v):
        raise KeyError("gone")

    f = jax.jit(lambda x: pj.call(fails, like(x), x, name="reader"))
    for _ in range(2):
        with pytest.raises(
            postern.CallbackError, match=r"call 'reader' at test_jax.py:\d+.*KeyError: 'gone'"
        ) as caught:
            f(1.0).block_until_ready()
        assert isinstance(caught.value.__cause__, KeyError)
        assert isinstance(caught.value, jax.errors.JaxRuntimeError)
    assert jax.jit(doubled)(1.0) == 2  # the next program runs


def test_errors_can_be_pickled_and_copied():
    for function, kind in (
        (lambda v: 1 / 0, postern.CallbackError),
        (lambda v: time.sleep(2) or v, postern.TimeoutError),
    ):
        with pytest.raises(kind) as caught:
            pj.call(function, F32, 1.0, timeout=0.1).block_until_ready()
        made = caught.value
        made.note = "kept"
        for other in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
            assert isinstance(other, kind) and isinstance(other, jax.errors.JaxRuntimeError)
            assert (type(other), other.code, str(other), other.note) == (
                type(made),
                made.code,
                str(made),
                "kept",
            )


CTRL_C = """
    import _thread, signal, jax, jax.numpy as jnp, postern, postern.jax as pj
    for _ in range(2):
        try:
            jax.jit(lambda x: pj.tap(x, _thread.interrupt_main))(\
jnp.int32(signal.SIGINT)).block_until_ready()
            pj.barrier()
        except postern.CallbackError as e:
            print(type(e.__cause__).__name__)
        print(jnp.sin(0.0) + jax.jit(lambda x: pj.call(lambda v: v + 1, x, x))(1.0))
"""


def test_ctrl_c_in_a_native_function():
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CTRL_C)],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (ended.stdout.split(), ended.stderr) == (["KeyboardInterrupt", "2.0"] * 2, "")


class Context:
    """Has a trace as JAX's; Ctrl-C comes when it is set for the `at`th time."""

    def __init__(self, at):
        self.trace, self.left = "before", at

    def set_trace(self, trace):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        self.trace = trace


@pytest.mark.parametrize("at, error", [(1, postern.CallbackError), (2, KeyboardInterrupt)])
def test_ctrl_c_beside_a_function(at, error):
    context = Context(at)
    guard = postern._postern.guard(context, "within")
    try:
        with pytest.raises(error) as caught:
            pj.call(lambda v: v, F32, 1.0).block_until_ready()
            time.sleep(10)
    finally:
        postern._postern.guard(*guard)
    assert context.trace == "before"
    assert isinstance(caught.value if at == 2 else caught.value.__cause__, KeyboardInterrupt)


@pytest.mark.parametrize(
    "number, dtype",
    [
        (1.5, "int32"),
        (1.0, "int32"),
        (1.5, "bool"),
        (2, "bool"),
        (1j, "int32"),
        (1j, "bool"),
        (1j, "float32"),
        (1j, "bfloat16"),
    ],
)
def test_a_python_number_of_another_kind_is_refused(number, dtype):
    text = rf"result 0 must be {dtype}\[\], the function returned {np.asarray(number).dtype}\(\)"
    with pytest.raises(postern.CallbackError, match=text):
        pj.call(lambda: number, jax.ShapeDtypeStruct((), dtype)).block_until_ready()


@pytest.mark.parametrize(
    "dtype, numbers",
    [
        ("bool", [True]),
        ("int8", [True, -2]),
        ("uint32", [True, 2]),
        ("float16", [True, 2, 1.5]),
        ("bfloat16", [True, 2, 1.5]),
        ("complex64", [True, 2, 1.5, 1j]),
    ],
)
def test_a_python_number_of_its_kind_is_taken(dtype, numbers):
    for number in numbers:
        assert pj.call(lambda: number, jax.ShapeDtypeStruct((), dtype)) == number


def test_other_errors_of_jax_stay_what_they_are():
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")
    assert (
        type(caught.value) is jax.errors.JaxRuntimeError
        and str(caught.value) == "INTERNAL: something else"
    )
    gone = (
        f"INTERNAL: the call failed [postern failure {2 ** 60}]"  # of which 256 others came since
    )
    assert (
        type(made := jax.errors.JaxRuntimeError(gone)) is jax.errors.JaxRuntimeError
        and str(made) == gone
    )


def test_a_late_function_ends_its_program():
    f = jax.jit(lambda x: pj.call(lambda v: time.sleep(2) or v, like(x), x, timeout=0.02))
    with pytest.raises(postern.TimeoutError, match="no result within the limit of 20 ms"):
        f(1.0).block_until_ready()
    with pytest.raises(postern.TimeoutError):
        # less than is counted
        pj.call(lambda v: time.sleep(2) or v, F32, 1.0, timeout=1e-10).block_until_ready()


def test_control_flow():
    def step(c, x):
        return c + doubled(x), doubled(c)

    x = jnp.arange(4.0)
    c, ys = jax.jit(lambda x: jax.lax.scan(step, 0.0, x))(x)
    assert c == 12 and np.array_equal(ys, [0, 0, 4, 12])
    assert jax.jit(lambda x: jax.lax.while_loop(lambda v: v < 100, doubled, x))(3.0) == 192
    both = jax.jit(
        lambda x: jax.lax.cond(x > 0, doubled, lambda v: pj.call(lambda v: v - 1, like(v), v), x)
    )
    assert both(3.0) == 6 and both(-3.0) == -4
    assert jax.jit(jax.jit(doubled))(3.0) == 6
    seen = []
    assert (
        jax.grad(jax.remat(lambda x: pj.tap(jnp.sin(x), lambda v: seen.append(float(v)))))(0.0) == 1
    )
    pj.barrier()
    assert seen == [0]  # what is computed again is not shown again


@pytest.mark.parametrize("effect", ["unordered", "ordered"])
@pytest.mark.parametrize("policy", [None, jax.checkpoint_policies.nothing_saveable])
def test_a_call_with_an_effect_is_not_made_again_under_checkpoint(effect, policy):
    seen = []

    def triple(v):
        seen.append(float(v))
        return v * 3

    def f(x):
        c = pj.call(triple, like(x), jax.lax.stop_gradient(x), effect=effect)
        return jnp.sin(x * c) * c  # whose derivative needs c

    for act in (lambda g: g, jax.jit):
        seen.clear()
        got = act(jax.grad(jax.checkpoint(f, policy=policy)))(jnp.float32(2))
        assert got == pytest.approx(36 * np.cos(12), rel=1e-4)
        pj.barrier()
        assert seen == [2]


def test_ordered_calls_keep_their_order():
    seen = []

    @jax.jit
    def f(x):
        for i in range(5):
            pj.call(lambda v, i=i: seen.append(i), None, x, effect="ordered")
        return jax.lax.fori_loop(
            0,
            3,
            lambda i, c: (pj.tap(i, lambda v: seen.append(10 + int(v)), ordered=True), c)[1],
            x,
        )

    for _ in range(2):
        f(1.0)
    pj.barrier()
    assert seen == [0, 1, 2, 3, 4, 10, 11, 12] * 2


def test_effects():
    count = []

    def f(effect):
        @jax.jit
        def unused(x):
            pj.call(lambda v: (count.append(effect), v)[1], like(x), x, effect=effect)
            return x

        unused(1.0)
        pj.barrier()

    f("pure")
    f("unordered")
    f("ordered")
    assert count == ["unordered", "ordered"]


@pytest.mark.parametrize(
    "method, shapes",
    [
        ("sequential", [((), ())] * 3),
        ("expand_dims", [((3,), (1,))]),
        ("broadcast_all", [((3,), (3,))]),
    ],
)
def test_vmap(method, shapes):
    seen = []

    def add(x, y):
        seen.append((x.shape, y.shape))
        return x + y

    f = jax.vmap(lambda x, y: pj.call(add, F32, x, y, vmap_method=method), in_axes=(0, None))
    assert np.array_equal(jax.jit(f)(jnp.arange(3.0), 1.0), [1, 2, 3])
    assert seen == shapes


def test_a_tap_shows_values_under_transformations():
    seen = []

    def f(x):
        return pj.tap(x * x, lambda v: seen.append(float(v)), name="square")

    assert jax.grad(f)(3.0) == 6
    assert jax.jvp(f, (2.0,), (1.0,))[1] == 4
    jax.vmap(f)(jnp.arange(3.0)).block_until_ready()
    pj.barrier()
    assert seen == [9, 4, 0, 1, 4]


def test_a_call_has_no_derivative_of_itself():
    with pytest.raises(
        ValueError,
        match=r"call '<lambda>' at test_jax.py:\d+ has no derivative; "
        r"give it one by jax.custom_jvp",
    ):
        jax.grad(doubled)(1.0)

    @jax.custom_jvp
    def known(x):
        return doubled(x)

    known.defjvp(lambda x, t: (known(*x), 2 * t[0]))
    assert jax.jit(jax.grad(known))(1.0) == 2


def test_asynchronous_taps_come_in_order_and_barrier_collects_failures():
    seen = []
    f = jax.jit(
        lambda x: jax.lax.fori_loop(
            0, 1000, lambda i, c: c + pj.tap(i, lambda v: seen.append(int(v)), mode="async"), x
        )
    )
    f(0)
    assert pj.barrier()
    assert seen == list(range(1000))

    def fails(v):
        raise OSError("disk full")

    for count, told in ((1, r"disk full$"), (3, r"disk full.*2 more")):
        g = jax.jit(
            lambda x: jax.lax.fori_loop(
                0, count, lambda i, c: (pj.tap(i, fails, name="log", mode="async"), c)[1], x
            )
        )
        g(1.0).block_until_ready()
        with pytest.raises(
            postern.CallbackError, match=r"(?s)tap 'log' at test_jax.py.*" + told
        ) as caught:
            pj.barrier()
        assert isinstance(caught.value.__cause__, OSError)
        assert pj.barrier()


@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"mode": "async"}])
def test_a_barrier_waits_for_the_programs_of_other_threads(options):
    seen, x = [], jnp.ones((256, 256))

    @jax.jit
    def f(x):
        y = jax.lax.fori_loop(0, 100, lambda _, c: c @ c / 256, x)[0, 0]
        pj.tap(y, lambda v: (time.sleep(0.1), seen.append(float(v))), **options)
        return x

    begun = threading.Thread(target=lambda: f(x))
    begun.start()
    begun.join()
    assert pj.barrier() and seen == [1]


def test_every():
    seen = []
    f = jax.jit(
        lambda x: jax.lax.fori_loop(
            0, 10, lambda i, c: c + pj.tap(i, lambda v: seen.append(int(v)), every=4), x
        )
    )
    f(0)
    pj.barrier()
    assert seen == [0, 4, 8]


def test_a_tap_shows_derivatives():
    seen = []

    @pj.with_info
    def shown(v, info):
        seen.append((info.transforms, {k: np.asarray(x).tolist() for k, x in v.items()}))

    def f(x, **options):
        return pj.tap({"x": x * x, "n": jnp.int32(3)}, shown, derivatives=True, **options)["x"]

    assert jax.jit(f)(3.0) == 9
    assert jax.grad(f)(3.0) == 6
    assert jax.jvp(f, (3.0,), (1.0,))[1] == 6
    pj.barrier()
    plain, nothing = ((), {"x": 9.0, "n": 3}), False
    assert seen == [
        plain,
        plain,
        (("jvp", "transpose"), {"x": 1.0, "n": nothing}),
        plain,
        (("jvp",), {"x": 6.0, "n": nothing}),
    ]
    for options in [{"mode": "async"}, {"ordered": True}]:
        seen.clear()
        jax.jit(jax.grad(lambda x: f(x, **options)))(3.0)
        pj.barrier()
        assert sorted(t for t, _ in seen) == [(), ("jvp", "transpose")]
    seen.clear()
    jax.jit(jax.vmap(jax.grad(lambda x: f(x) ** 2)))(jnp.arange(3.0))
    pj.barrier()
    assert [v["x"] for t, v in seen if not t] == [0, 1, 4] and (
        [v["x"] for t, v in seen if t] == [0, 2, 8]
    )
    seen.clear()
    jax.jit(jax.grad(lambda x: (jax.vmap(f)(x) ** 2).sum()))(jnp.arange(3.0))
    jax.jvp(jax.vmap(f), (jnp.arange(3.0),), (jnp.ones(3),))
    pj.barrier()
    for t, wanted in (
        ((), [0, 1, 4] * 2),
        (("jvp", "transpose"), [0, 2, 8]),
        (("jvp",), [0, 2, 4]),
    ):
        assert [v["x"] for told, v in seen if told == t] == wanted
    seen.clear()
    jax.jit(jax.grad(lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]))(2.0)
    pj.barrier()
    assert [(len(t), v["x"]) for t, v in seen] == [(0, 4), (0, 16), (2, 1), (2, 8)]


def test_cotangents_go_to_a_listener():
    stats = pj.listen.stats()
    jax.jit(jax.grad(lambda x: 3 * pj.tap(x, stats, name="weights", derivatives=True)))(2.0)
    pj.barrier()
    assert [(s["transforms"], s["last"]["mean"]) for s in stats.series()] == [
        ("", 2),
        ("jvp,transpose", 3),
    ]


def test_order_over_programs():
    seen = []
    programs = [
        jax.jit(
            lambda x, i=i: jax.lax.fori_loop(
                0,
                20,
                lambda k, c: (
                    (pj.tap(k, lambda v: seen.append((i, int(v))), ordered=True), c @ c)[1]
                ),
                x,
            )
        )
        for i in range(3)
    ]
    for program in programs * 2:
        program(jnp.eye(64))  # JAX goes on while it runs
    pj.barrier()
    assert seen == [(i, k) for i in [0, 1, 2] * 2 for k in range(20)]


def test_a_python_function_that_computes_with_jax_is_refused():
    shown = []
    functions = {
        "an operation": lambda v: np.asarray(jnp.sin(v) + 1),
        "a jitted function": lambda v: np.asarray(jax.jit(lambda x: x @ x)(v)),
        "a derivative": lambda v: np.asarray(jax.nn.relu(v)),
    }
    x = jnp.ones((1000, 1000))
    for f in functions.values():
        f(np.asarray(x))  # compiled before
    for what, f in functions.items():
        for _ in range(2):
            with pytest.raises(
                postern.CallbackError, match="compute with NumPy there, or on another device"
            ) as caught:
                jax.jit(lambda x: pj.call(f, like(x), x))(x).block_until_ready()
            assert isinstance(caught.value.__cause__, pj.ReentryError), what

    def elsewhere(v):
        with jax.default_device(jax.devices()[1]):
            return np.asarray(jnp.sin(jnp.asarray(v)))

    assert np.allclose(jax.jit(lambda x: pj.call(elsewhere, like(x), x))(x), np.sin(1))
    # not waited for
    jax.jit(lambda x: pj.tap(x, lambda v: shown.append(float(jnp.sum(v))), mode="async"))(x)
    pj.barrier()
    assert shown == [1e6]
    assert (
        jax.jit(lambda x: pj.call(lambda v: v + jnp.asarray(v).shape[0], like(x), x))(jnp.ones(2))[
            0
        ]
        == 3
    )
    assert jnp.sin(0.0) == 0  # and outside of functions all is as before


class Computed:
    pass


jax.tree_util.register_pytree_node(
    Computed, lambda c: ((jnp.sin(1.0),), None), lambda *_: Computed()
)


def test_a_tree_that_computes_with_jax_is_refused():
    with pytest.raises(postern.CallbackError) as caught:
        jax.jit(lambda x: pj.call(lambda v: Computed(), [F32], x))(1.0)[0].block_until_ready()
    assert isinstance(caught.value.__cause__, pj.ReentryError)


def test_registered_functions_by_name():
    postern.register("jax.tripled", lambda v: 3 * v, replace=True)
    f = jax.jit(lambda x: pj.call("jax.tripled", like(x), x))
    assert f(2.0) == 6
    postern.unregister("jax.tripled")
    with pytest.raises(
        postern.CallbackError, match="no host function is registered under 'jax.tripled'"
    ):
        f(2.0).block_until_ready()


def with_version(version, program, folder, **environment):
    """The end of a process in which JAX says that it is of that version."""
    before = f"import jax; jax.__version_info__ = {version}; jax.__version__ = 'of the test'\n"
    return subprocess.run(
        [sys.executable, "-c", before + textwrap.dedent(program)],
        env={**os.environ, "POSTERN_CACHE_DIR": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )


CALLS = """
    import jax.numpy as jnp, postern.jax as pj
    F32 = jax.ShapeDtypeStruct((), jnp.float32)
    print(jax.jit(lambda x: pj.call(lambda v: 2 * v, F32, x))(jnp.float32(3)))
"""


def test_a_version_that_is_too_old_is_refused(tmp_path):
    ended = with_version("(0, 8, 3)", "import postern.jax", tmp_path)
    assert ended.returncode == 1
    assert "is too old: this version of Postern is tried with JAX 0.9 to 0.12" in ended.stderr


def test_a_version_that_is_not_known_is_tried_once(tmp_path):
    for _ in range(2):
        ended = with_version("(0, 99, 0)", CALLS, tmp_path)
        assert (ended.returncode, ended.stdout) == (0, "6.0\n"), ended.stderr
        assert "UserWarning: postern.jax: JAX of the test is untested" in ended.stderr
        (outcome,) = tmp_path.glob("jax-self-test-*")
        assert outcome.read_text() == ""
    outcome.write_text("AssertionError: values of calls")  # what another process has found
    ended = with_version("(0, 99, 0)", CALLS, tmp_path)
    assert ended.returncode == 1
    assert "its self-test failed: AssertionError: values of calls; have pip" in ended.stderr


def test_a_version_that_lacks_something_is_refused(tmp_path):
    ended = with_version(
        "(0, 99, 0)",
        "import jax._src.core\ndel jax._src.core.pvary\n" "import postern.jax",
        tmp_path,
    )
    assert ended.returncode == 1
    assert "ImportError: postern.jax: JAX of the test is newer than" in ended.stderr
    assert "lacks what is needed: AttributeError" in ended.stderr and "pvary" in ended.stderr


@pytest.mark.parametrize(
    "broken, told",
    [
        ("_guard._InFunction.refusal = lambda *_: LookupError()", "the cause of JAX within"),
        ("_calls.Site.attributes = lambda *_: {}", "names no function"),
        ("_calls.Site.batched = lambda site, *_: site", "a batch of calls"),
    ],
)
def test_a_version_that_fails_the_self_test_is_refused(tmp_path, broken, told):
    program = f"from postern.jax import _calls, _guard\n{broken}\n" + textwrap.dedent(CALLS)
    for _ in range(2):
        ended = with_version("(0, 99, 0)", program, tmp_path)
        assert ended.returncode == 1 and ended.stdout == "", ended.stderr
        assert "its self-test failed: " in ended.stderr and told in ended.stderr, ended.stderr
    (outcome,) = tmp_path.glob("jax-self-test-*")
    assert told in outcome.read_text() != ""


def test_a_call_outside_of_jit_is_compiled_once():
    def twice(v):
        return 2 * v

    def compiled(act):
        events = []
        jax.monitoring.register_event_duration_secs_listener(
            lambda event, *_, **__: events.append(event) if "backend_compile" in event else None
        )
        for _ in range(3):
            act()
        jax.monitoring.clear_event_listeners()
        return len(events)

    x = jnp.float32(1)
    assert compiled(lambda: pj.call(twice, F32, x)) == 1
    assert compiled(lambda: pj.tap(x, print)) == 1
    assert compiled(lambda: pj.print("{}", x)) == 1


class Unhashable:
    __hash__ = None

    def __call__(self, v):
        return v + 1


def test_functions_that_cannot_be_hashed():
    assert jax.jit(lambda x: pj.call(Unhashable(), like(x), x))(1.0) == 2
    assert pj.call(Unhashable(), F32, jnp.float32(1)) == 2


CACHED = """
    import jax, jax.numpy as jnp, numpy as np, postern.jax as pj, sys
    jax.config.update("jax_compilation_cache_dir", sys.argv[1])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    hits = []
    jax.monitoring.register_event_listener(\
lambda event, **_: hits.append(event) if event.endswith("cache_hits") else None)
    added = float(sys.argv[2])
    def add(v):
        return v + np.float32(added)
    def program(x):
        return pj.call(add, jax.ShapeDtypeStruct((), jnp.float32), x) * 2 + \
pj.call(lambda v: v, jax.ShapeDtypeStruct((), jnp.float32), x)
    print(len(hits), jax.jit(program)(1.0), len(hits))
"""


def test_programs_of_the_compile_cache_call_this_processs_functions(tmp_path):
    out = []
    for added in ("1", "10"):
        ended = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(CACHED), str(tmp_path), added],
            env=os.environ,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert ended.returncode == 0, ended.stderr
        out.append(ended.stdout.split())
    assert out[0] == ["0", "5.0", "0"]
    assert out[1][1] == "23.0" and int(out[1][2]) >= 1  # compiled by the first process


@pytest.mark.parametrize("effect", ["ordered", "unordered"])
def test_a_while_under_vmap_whose_condition_has_effects(effect):
    seen = []

    def cond(v):
        return pj.call(
            lambda v: (seen.append(int(v)), v < 2)[1],
            jax.ShapeDtypeStruct((), bool),
            v,
            effect=effect,
        )

    f = jax.jit(jax.vmap(lambda x: jax.lax.while_loop(cond, lambda v: v + 1, x)))
    assert np.array_equal(f(jnp.arange(5)), [2, 2, 2, 3, 4])
    # for each element, before each of its own steps and after
    assert seen == [0, 1, 2, 3, 4, 1, 2, 2]
    assert np.array_equal(jax.jit(lambda x: jax.lax.while_loop(cond, lambda v: v + 1, x))(0), 2)


def test_one_place_in_the_source_outside_of_shard_map_and_inside():
    @pj.with_info
    def placed(v, info):
        return v + (info.part or {"i": 10})["i"]

    def both(v):
        return pj.call(placed, like(v), v)

    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:1]), ("i",))
    spec = jax.sharding.PartitionSpec("i")
    assert jax.jit(both)(jnp.zeros(1)) == 10
    assert jax.jit(shard_map(both, mesh=mesh, in_specs=spec, out_specs=spec))(jnp.zeros(1)) == 0


def test_a_run_has_the_number_that_xla_gives_it():
    seen = []
    noted = pj.with_info(lambda v, info: (seen.append(info.run), v + 1)[1])
    f = jax.jit(lambda x: pj.call(noted, like(x), x))
    assert [float(f(jnp.zeros(1))[0]) for _ in range(2)] == [1, 1]
    assert len(seen) == 2 and all(0 <= run < 2**48 for run in seen)


def test_several_devices():
    seen = []
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")), ("x",))

    def part(x):
        return pj.call(
            pj.with_info(lambda v, info: (seen.append((info.device, float(v[0]))), 2 * v)[1]),
            like(x),
            x,
            effect="unordered",
        )

    f = jax.jit(
        shard_map(
            part,
            mesh=mesh,
            in_specs=jax.sharding.PartitionSpec("x"),
            out_specs=jax.sharding.PartitionSpec("x"),
        )
    )
    assert np.array_equal(f(jnp.arange(8.0)), 2 * np.arange(8))
    assert sorted(seen) == [(0, 0), (1, 2), (2, 4), (3, 6)]


@pytest.mark.parametrize("effect", ["unordered", "ordered"])
def test_ordered_calls_on_several_devices(effect):
    seen, mesh, spec = (
        [],
        jax.sharding.Mesh(np.array(jax.devices("cpu")), ("x",)),
        jax.sharding.PartitionSpec("x"),
    )

    def part(x):
        for i in range(3):
            x = pj.call(
                pj.with_info(lambda v, info, i=i: (seen.append((info.device, i)), v + 1)[1]),
                like(x),
                x,
                effect=effect,
            )
        return x

    f = jax.jit(shard_map(part, mesh=mesh, in_specs=spec, out_specs=spec))
    for _ in range(2):
        assert np.array_equal(f(jnp.zeros(4)), [3, 3, 3, 3])
    assert [[i for d, i in seen if d == device] for device in range(4)] == [[0, 1, 2] * 2] * 4


def test_a_function_is_told_its_part():
    seen = []
    mesh, spec = (
        jax.sharding.Mesh(np.array(jax.devices("cpu")).reshape(2, 2), ("x", "y")),
        jax.sharding.PartitionSpec("x", "y"),
    )

    def part(x):
        pj.tap(x, pj.with_info(lambda v, info: seen.append((info.device, info.part, v.tolist()))))
        return pj.call(
            pj.with_info(lambda v, info: v + 10 * info.part["x"] + info.part["y"]), like(x), x
        )

    f = jax.jit(shard_map(part, mesh=mesh, in_specs=spec, out_specs=spec))
    assert np.array_equal(f(jnp.zeros((2, 2))), [[0, 1], [10, 11]])
    pj.barrier()
    assert sorted(seen, key=str) == [
        (2 * i + j, {"x": i, "y": j}, [[0.0]]) for i in range(2) for j in range(2)
    ]
    same = jax.sharding.PartitionSpec()
    f = shard_map(
        lambda x: pj.call(pj.with_info(lambda v, info: v + info.part["x"]), like(x), x),
        mesh=mesh,
        in_specs=same,
        out_specs=same,
    )
    # What is made of the part is not the same everywhere.
    with pytest.raises(ValueError, match="out_specs"):
        jax.jit(f)(jnp.zeros(1))


def test_pmap():
    seen = []

    def part(x):
        pj.tap(
            x,
            pj.with_info(lambda v, info: seen.append((info.device, info.part, float(v)))),
            mode="async",
        )
        return pj.call(pj.with_info(lambda v, info: v + 10 * info.device), like(x), x)

    assert np.array_equal(jax.pmap(part, axis_name="i")(jnp.arange(4.0)), [0, 11, 22, 33])
    pj.barrier()
    assert sorted(seen, key=str) == [(i, {"i": i}, i) for i in range(4)]


def run(program, **environment):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_functions_go_with_their_programs():
    told = run(
        """
        import gc, jax, jax.numpy as jnp, postern, postern.jax as pj
        F32 = jax.ShapeDtypeStruct((), jnp.float32)

        def work():
            programs = [jax.jit(lambda x, i=i: \
pj.call(lambda v: v + i, F32, x) + pj.tap(x, lambda v: None)) for i in range(20)]
            for program in programs:
                program(1.0).block_until_ready()
            pj.barrier()
            held = postern._postern.lent_count()
            programs.clear()
            del program
            jax.clear_caches()
            gc.collect()
            return held, postern._postern.lent_count()

        before = work()[1]
        held, after = work()
        print(held - before, after - before)
    """
    )
    assert told.stdout.split() == ["40", "0"], told


def test_the_compile_cache(tmp_path):
    program = """
        import jax, jax.numpy as jnp, numpy as np, postern, postern.jax as pj
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
        hits = []
        jax.monitoring.register_event_listener(\
lambda event, **_: hits.append(event) if "cache_hits" in event else None)
        F32 = jax.ShapeDtypeStruct((), jnp.float32)
        def f(x):
            return pj.call(lambda v: v + 1, F32, x) + pj.call("by.name", F32, x, effect="ordered")
        if {register}:
            postern.register("by.name", lambda v: 10 * v)
        try:
            print(jax.jit(f)(2.0))
        except postern.CallbackError as e:
            print("by.name" in str(e))
        print(len(hits) > 0)
    """
    told = [
        run(program.replace("{register}", str(there)), JAX_COMPILATION_CACHE_DIR=str(tmp_path))
        for there in (True, True, False)
    ]
    assert [t.stdout.split() for t in told] == [
        ["23.0", "False"],
        ["23.0", "True"],
        ["True", "True"],
    ], told


def test_a_forked_process_is_refused():
    ended = run(
        """
        import multiprocessing, jax, jax.numpy as jnp, numpy as np, postern, postern.jax as pj
        F32 = jax.ShapeDtypeStruct((), jnp.float32)
        f = jax.jit(lambda x: pj.call(lambda v: v + 1, F32, x))
        g = jax.jit(lambda x: x + 1)
        assert f(1.0) == 2 and g(1.0) == 2
        def child():
            for run in (lambda: f(1.0), lambda: f(np.float32(1)), lambda: pj.tap(1.0, print)):
                try:
                    run()
                except postern.Error as e:
                    print("spawn" in str(e), flush=True)
        p = multiprocessing.get_context("fork").Process(target=child)
        p.start()
        p.join(60)
        print(p.exitcode, f(1.0))
    """
    )
    assert ended.stdout.split() == ["True"] * 3 + ["0", "2.0"], ended


def test_prints_and_hooks(capfd):
    jax.jit(lambda x: pj.print("x is {}, {y}", x, y=x + 1, ordered=True))(1.0)
    pj.barrier()
    sys.stdout.flush()
    assert capfd.readouterr().out == "x is 1.0, 2.0\n"
    with pytest.raises(IndexError):
        pj.print("{} {}", 1)
    for maybe_jit in (lambda f: f, jax.jit):
        maybe_jit(lambda k: pj.print("{} {last:d}", k, last=1, ordered=True))(jax.random.key(3))
        pj.barrier()
        sys.stdout.flush()
        assert capfd.readouterr().out == "[0 3] 1\n"

    def net(x):
        return pj.hook("middle", x + 1) * 2

    seen = []
    assert "postern_call" not in str(jax.make_jaxpr(net)(1.0))
    assert jax.jit(pj.with_hooks(net, {"middle": lambda v: seen.append(float(v))}))(1.0) == 4
    pj.barrier()
    assert seen == [2]


def test_hooks_of_what_jax_has_traced_before():
    seen, others = [], []

    def body(c, _):
        return pj.hook("c", c + 1), None

    inner = jax.jit(lambda x: pj.hook("x", x))

    def net(x):
        return jax.lax.scan(body, inner(x), None, length=2)[0]

    def fired(f):
        seen.clear()
        others.clear()
        f(0.0)
        pj.barrier()
        return seen[:], others[:]

    plain = jax.jit(net)
    hooked = jax.jit(
        pj.with_hooks(
            net, {"c": lambda v: seen.append(float(v)), "x": lambda v: seen.append(float(v))}
        )
    )
    other = jax.jit(pj.with_hooks(net, {"c": lambda v: others.append(float(v))}))
    for _ in range(2):
        assert (
            fired(plain) == ([], [])
            and sorted(fired(hooked)[0]) == [0, 1, 2]
            and sorted(fired(other)[1]) == [1, 2]
        )
    assert fired(jax.jit(lambda x: net(x))) == ([], [])


@pytest.mark.parametrize(
    "act, error",
    [
        (lambda: pj.call(3, F32, 1.0), TypeError),
        (lambda: pj.call(abs, F32, 1.0, effect="some"), ValueError),
        (lambda: pj.call(abs, F32, 1.0, vmap_method="all"), ValueError),
        (lambda: pj.tap(1.0, abs, mode="later"), ValueError),
        (lambda: pj.tap(1.0, abs, every=0), ValueError),
        (lambda: pj.tap("text", abs), TypeError),
        (lambda: pj.tap([1.0, object()], abs), TypeError),
        (lambda: pj.call(abs, F32, "text"), TypeError),
        (lambda: pj.call(abs, "text", 1.0), ValueError),
        (lambda: pj.call(abs, [3.5], 1.0), ValueError),
    ],
)
def test_bad_arguments(act, error):
    with pytest.raises(error, match="postern.jax: "):
        act()


def test_the_process_ends_with_taps_under_way():
    program = textwrap.dedent(
        """
        import time, jax, postern.jax as pj
        f = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda i, c: \
c + pj.tap(i, lambda v: time.sleep(0.01), mode="async"), x))
        g = jax.jit(lambda x: jax.lax.fori_loop(0, 40, lambda i, c: c @ c / 512, x))
        h = jax.jit(lambda x: (pj.print("seen {}", g(x)[0, 0]), x)[1])
        f(0)
        h(jax.numpy.ones((512, 512)))
    """
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], env=os.environ, capture_output=True, text=True, timeout=100
    )
    assert (ended.returncode, ended.stdout) == (0, "seen 1.0\n"), ended.stderr
