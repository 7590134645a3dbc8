"""postern.jax.host_callback beside what the module that JAX removed did, behaviour by behaviour."""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import postern.jax as pj
from postern.jax import host_callback as hcb

F32 = jnp.float32
NUMBERS = "int8 uint8 int16 uint16 int32 uint32 float16 bfloat16 float32 complex64".split()
if hasattr(jax, "shard_map"):
    shard_map = jax.shard_map
else:
    from jax.experimental.shard_map import shard_map


class Stream:
    """Collects what id_print writes."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def lines(self):
        hcb.barrier_wait()
        told, self.text = [line.strip() for line in self.text.splitlines()], ""
        return told


@pytest.fixture
def stream():
    made = Stream()
    yield made
    hcb.barrier_wait()


@pytest.fixture
def show(stream):
    """id_print to the stream."""
    return functools.partial(hcb.id_print, output_stream=stream)


@pytest.fixture(params=[False, True], ids=["eager", "jit"])
def maybe_jit(request):
    return jax.jit if request.param else lambda f: f


# --- what is printed


def test_names_are_printed_before_values(show, stream):
    def f(x):
        y = show(x * 2.0, what="double")
        return show(y * 3.0, what="six", result=y, also=1) ** 2

    assert f(5.0) == 100
    assert stream.lines() == ["what: double", "10.", "also: 1 what: six", "30."]


def test_keywords_that_are_equal_and_not_the_same(show, stream):
    for told in (1, True, 1.0):
        jax.jit(lambda x: show(x, what=told))(2.0)
    assert stream.lines() == ["what: 1", "2.", "what: True", "2.", "what: 1.0", "2."]


@pytest.mark.parametrize(
    "tree, text",
    [
        (lambda x: (x * 2, x * 3), ["( 6. 9. )"]),
        (lambda x: [x, (x, x)], ["[ 3. ( 3. 3. ) ]"]),
        (lambda x: {"b": x * 3, "a": x}, ["{ a=3. b=9. }"]),
        (lambda x: (), ["(  )"]),
        (lambda x: (x, np.ones((2, 0), np.float32)), ["( 3. [] )"]),
        (lambda x: jnp.arange(3), ["[0 1 2]"]),
        (lambda x: jnp.arange(4).reshape(2, 2), ["[[0 1]", "[2 3]]"]),
    ],
)
def test_trees_are_printed(show, stream, maybe_jit, tree, text):
    maybe_jit(lambda x: (show(tree(x)), x)[1])(3.0)
    assert stream.lines() == text


def test_long_trees_take_several_lines(show, stream):
    show(tuple(jnp.full(8, 1.25) for _ in range(3)))
    assert stream.lines() == [
        "( [1.25 1.25 1.25 1.25 1.25 1.25 1.25 1.25]",
        "[1.25 1.25 1.25 1.25 1.25 1.25 1.25 1.25]",
        "[1.25 1.25 1.25 1.25 1.25 1.25 1.25 1.25] )",
    ]


def test_long_arrays_are_cut(show, stream):
    show(jnp.arange(2000))
    show(jnp.arange(20), threshold=10)
    assert stream.lines() == ["[   0    1    2 ... 1997 1998 1999]", "[ 0  1  2 ... 17 18 19]"]


def test_the_device_is_printed(show, stream):
    jax.jit(lambda x: show(x, tap_with_device=True, what="x"))(1.0)
    head, value = stream.lines()
    assert head == f"device: {jax.devices('cpu')[0]} what: x" and value == "1."


def test_without_a_stream_it_is_printed(capfd):
    jax.jit(lambda x: hcb.id_print(x, what="step"))(jnp.arange(3))
    hcb.barrier_wait()
    import sys

    sys.stdout.flush()
    assert capfd.readouterr().out == "what: step\n[0 1 2]\n"


# --- what a tap takes and gives


def test_a_result_takes_the_place_of_the_argument(show, stream, maybe_jit):
    assert maybe_jit(lambda x: show((x * 2, x * 3), result=x * 4))(3.0) == 12
    assert stream.lines() == ["( 6. 9. )"]


def test_a_tap_of_nothing(maybe_jit):
    seen = []
    assert maybe_jit(lambda x: hcb.id_tap(lambda v, t: seen.append(v), None, result=x))(3.0) == 3
    hcb.barrier_wait()
    assert seen == [None]


def test_a_tap_whose_result_nobody_uses(show, stream, maybe_jit):
    def f(x):
        show(x, where="1")
        show(x + 1, where="2")
        return x + 1

    f = maybe_jit(f)
    assert (f(1), f(10)) == (2, 11)
    assert stream.lines() == ["where: 1", "1", "where: 2", "2", "where: 1", "10", "where: 2", "11"]


def test_constants_and_functions_without_arguments(show, stream):
    assert jax.jit(lambda: show(42))() == 42
    assert jax.jit(lambda x, y: show(x + y))(40, 2) == 42
    assert jax.jit(lambda x: show(42, result=x))(5) == 5
    assert stream.lines() == ["42"] * 3


def test_functions_in_functions(show, stream):
    def f(x):
        y = jax.jit(lambda v: show(v + 1, where="inner"))(show(x, where="before"))
        return show(y + 1, where="after")

    assert jax.jit(f)(1) == 3
    assert stream.lines() == ["where: before", "1", "where: inner", "2", "where: after", "3"]


@pytest.mark.parametrize(
    "tree", [lambda x: (1, x), lambda x: (x, 2 * x), lambda x: {"a": 2 * x, "b": [3 * x]}]
)
def test_the_function_gets_the_tree(maybe_jit, tree):
    seen = []
    out = maybe_jit(
        lambda x: hcb.id_tap(
            functools.partial(lambda v, t, *, what: seen.append((v, t, what)), what="w"),
            tree(x),
            result=tree(2 * x),
        )
    )(5)
    assert out == tree(10)
    hcb.barrier_wait()
    assert seen == [(tree(5), (), "w")]


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_every_dtype_and_shape(dtype):
    for shape in [(), (2,), (2, 3), (2, 3, 4)]:
        x, seen = jnp.arange(int(np.prod(shape))).astype(dtype).reshape(shape), []
        out = jax.jit(lambda given: hcb.id_tap(lambda v, t: seen.append(v), given))([x, x])
        hcb.barrier_wait()
        assert all(np.array_equal(o, x) and o.dtype == x.dtype for o in out)
        assert all(np.array_equal(s, x) and s.dtype == x.dtype for s in seen[0])


def test_large_arrays_and_several_together():
    seen = []

    def tap(value, _):
        seen.append(jax.tree.map(np.shape, value))

    jax.jit(lambda x: hcb.id_tap(tap, x))(jnp.arange(10_000).reshape(10, 10, 5, -1))
    jax.jit(lambda x, y: hcb.id_tap(tap, (x, y, 2 * x)))(jnp.ones((10, 5)), jnp.ones(100))
    hcb.barrier_wait()
    assert seen == [(10, 10, 5, 20), ((10, 5), (100,), (10, 5))]


def test_programs_that_do_not_depend_on_each_other():
    seen = []

    def f(x):
        for _ in range(10):
            x = hcb.id_tap(lambda v, t: seen.append(len(v)), [x + i for i in range(5)])[-1]
        return x

    for _ in range(10):
        jax.jit(lambda x: f(x))(jnp.int32(1))
    hcb.barrier_wait()
    assert seen == [5] * 100


def test_keys_are_shown_as_their_data():
    key, seen = jax.random.key(123), []
    out = jax.jit(lambda k: hcb.id_tap(lambda v, t: seen.append(v), k))(key)
    assert out.dtype == key.dtype
    hcb.barrier_wait()
    assert np.array_equal(seen[0], jax.random.key_data(key))


def test_what_a_tap_does_not_take():
    def shown(value, transforms, y):
        pass

    with pytest.raises(TypeError, match=r"Support for \*\*kwargs in ``id_tap``"):
        hcb.id_tap(shown, 1, y=2)
    with pytest.raises(TypeError, match="takes trees of arrays and numbers, got 'text'"):
        hcb.id_tap(shown, "text")
    with pytest.raises(TypeError, match="must be a function"):
        hcb.id_tap(3, 1)
    for wrong in (
        lambda: hcb.id_tap(shown, 1, device_index=1),
        lambda: hcb.call(abs, 1, result_shape=1, device_index=1),
    ):
        with pytest.raises(ValueError, match="device_index must be 0, got 1"):
            wrong()


# --- control flow


def parity(show, x, name):
    return lax.cond(
        x % 2 == 0,
        lambda v: show(v, where=f"{name}_even"),
        lambda v: show(-1, where=f"{name}_odd", result=v),
        x,
    )


def test_branches(show, stream, maybe_jit):
    f = maybe_jit(lambda x: show(parity(show, show(x + 1, where="before"), "c") + 1, where="after"))
    assert (f(1), f(2)) == (3, 4)
    assert stream.lines() == [
        "where: before",
        "2",
        "where: c_even",
        "2",
        "where: after",
        "3",
        "where: before",
        "3",
        "where: c_odd",
        "-1",
        "where: after",
        "4",
    ]


def test_while_with_branches(show, stream, maybe_jit):
    def body(x):
        return show(parity(show, show(x, where="in") + 1, "w"), where="out")

    assert maybe_jit(lambda x: lax.while_loop(lambda v: v <= 3, body, x))(2) == 4
    assert stream.lines() == [
        "where: in",
        "2",
        "where: w_odd",
        "-1",
        "where: out",
        "3",
        "where: in",
        "3",
        "where: w_even",
        "4",
        "where: out",
        "4",
    ]


def test_a_tap_in_the_condition_of_a_while(show, stream):
    f = jax.jit(
        lambda x: lax.while_loop(
            lambda v: show(v < 3, where="cond"), lambda v: show(v + 1, where="body"), x
        )
    )
    assert f(1) == 3
    assert stream.lines() == [
        "where: cond",
        "True",
        "where: body",
        "2",
        "where: cond",
        "True",
        "where: body",
        "3",
        "where: cond",
        "False",
    ]


def test_scan_with_branches(show, stream, maybe_jit):
    def body(c, x):
        return c, show(parity(show, show(x, where="in") + 1, "s"), where="out")

    _, out = maybe_jit(lambda x: lax.scan(body, x, jnp.arange(2)))(2)
    assert np.array_equal(out, [1, 2])
    assert stream.lines() == [
        "where: in",
        "0",
        "where: s_odd",
        "-1",
        "where: out",
        "1",
        "where: in",
        "1",
        "where: s_even",
        "2",
        "where: out",
        "2",
    ]


def test_a_while_that_captures_a_constant(show, stream):
    y = jnp.ones(5)
    lax.while_loop(lambda c: c[1] < 5, lambda c: (y, show(c[1]) + 1), (y, 1))
    assert stream.lines() == ["1", "2", "3", "4"]


def test_named_calls_and_rematerialised_loops(show, stream):
    @functools.partial(jax.named_call, name="step")
    def step(c, i):
        return c + show(i, what="i"), None

    assert lax.scan(step, 3, np.arange(2))[0] == 4
    assert stream.lines() == ["what: i", "0", "what: i", "1"]

    def body(i, k):
        return k * show(k + i)

    assert lax.fori_loop(0, 2, jax.remat(body), 3) == 90
    assert stream.lines() == ["3", "10"]


# --- derivatives: the values alone, in the forward pass


def pair(show):
    def f(x):
        y = show(x * 2.0, what="x * 2")
        return x * show(y * 3.0, what="y * 3")

    return f


PAIR = ["what: x * 2", "10.", "what: y * 3", "30."]


def test_jvp_and_grad_show_the_values(show, stream, maybe_jit):
    out, tangent = maybe_jit(lambda x, t: jax.jvp(pair(show), (x,), (t,)))(F32(5), F32(0.1))
    assert out == 150 and np.isclose(tangent, 6)
    assert stream.lines() == PAIR
    assert maybe_jit(jax.grad(pair(show)))(F32(5)) == 60
    assert stream.lines() == PAIR


def test_a_tap_that_the_backward_pass_does_not_need(show, stream):
    f = jax.grad(lambda x: 2.0 * show(x * 3.0, what="x * 3"))
    jax.make_jaxpr(f)(F32(5))
    assert stream.lines() == []  # tracing shows nothing
    assert f(F32(5)) == 6
    assert stream.lines() == ["what: x * 3", "15."]


def test_second_derivatives_show_the_values_once(show, stream, maybe_jit):
    assert maybe_jit(jax.grad(jax.grad(lambda x: x * show(x * 2.0, what="x * 2") * 3.0)))(5.0) == 12
    assert stream.lines() == ["what: x * 2", "10."]


def test_grad_with_a_result(show, stream):
    def f(x):
        a, b = show((x * 2.0, x * 3.0), what="pair", result=(x * 4.0, x * 5.0))
        return a + 2.0 * b

    assert jax.grad(f)(F32(5)) == 14
    assert stream.lines() == ["what: pair", "( 10. 15. )"]


def test_integers_have_no_tangents(show, stream):
    def f(x, n):
        x, n = show((x, n))
        return x * n.astype(x.dtype)

    assert jax.jvp(
        lambda x, n: f(x, jnp.int32(n)),
        (F32(2), jnp.int32(3)),
        (F32(0.2), np.zeros((), jax.dtypes.float0)),
    )[1] == F32(0.6)
    assert jax.grad(f)(F32(5), jnp.int32(2)) == 2
    assert stream.lines() == ["( 2. 3 )", "( 5. 2 )"]


def test_integers_in_a_tree_with_a_result(show, stream):
    x = (np.float32([0.7, 0.8]), np.int32([11, 12, 13]))

    def f(x):
        x = show(x, result=x)
        return 3 * x[0], x[1]

    _, back = jax.vjp(f, x)
    (g,) = back((np.ones(2, np.float32), np.zeros(3, jax.dtypes.float0)))
    assert np.array_equal(g[0], [3, 3]) and g[1].dtype == jax.dtypes.float0
    assert stream.lines() == ["( [0.7 0.8] [11 12 13] )"]
    # Higher orders do not fail.
    jax.jvp(jax.grad(lambda v: jnp.sum(f((v, x[1]))[0] ** 2)), (x[0],), (x[0],))
    assert stream.lines() == ["( [0.7 0.8] [11 12 13] )"]


def cube(show):
    def f(x):
        y = x * x
        show((x, y), what="x,x^2")
        return y * x

    return f


def test_tangents_and_cotangents_by_rules_of_ones_own(show, stream):
    @jax.custom_jvp
    def tangents(v):
        return v

    @tangents.defjvp
    def _(primals, given):
        show(given[0], what="tangents")
        return primals[0], given[0]

    def f(x):
        x, _ = tangents((x, x * x))
        return x

    jax.jvp(f, (3.0,), (F32(0.5),))
    assert stream.lines() == ["what: tangents", "( 0.5 3. )"]

    @jax.custom_vjp
    def cotangents(v):
        return v

    cotangents.defvjp(lambda v: (v, None), lambda _, given: (show(given, what="cotangents"),))

    def g(x):
        y = x * x
        show((x, y), what="x,x^2")
        x, y = cotangents((x, y))
        return y * x

    assert jax.grad(g)(3.0) == 27
    assert stream.lines() == ["what: x,x^2", "( 3. 9. )", "what: cotangents", "( 9. 3. )"]
    jax.vmap(jax.grad(g))(jnp.array([2.0, 3.0]))
    batch = "transforms: [('batch', {'batch_dims': (0, 0)})]"
    assert stream.lines() == [
        f"{batch} what: x,x^2",
        "( [2. 3.] [4. 9.] )",
        f"{batch} what: cotangents",
        "( [4. 9.] [2. 3.] )",
    ]


def test_what_is_computed_again_is_not_shown_again(show, stream):
    f = cube(show)
    jax.grad(lambda x: f(jax.checkpoint(f)(x)))(3.0)
    assert stream.lines() == ["what: x,x^2", "( 3. 9. )", "what: x,x^2", "( 27. 729. )"]


def test_an_odes_derivative():
    from jax.experimental.ode import odeint

    seen = []

    def loss(k):
        return odeint(
            lambda x, t, k: -k * hcb.id_tap(lambda v, _: seen.append(v), x),
            1.0,
            jnp.linspace(0, 0.001, num=2),
            k,
        )[-1]

    assert np.isclose(jax.grad(loss)(1.0), -0.001, rtol=1e-2)
    hcb.barrier_wait()
    assert seen


# --- vmap: the batch, and what was done


def test_vmap_shows_the_batch(show, stream):
    jax.vmap(pair(show))(jnp.array([4.0, 5.0]))
    batch = "transforms: [('batch', {'batch_dims': (0,)})]"
    assert stream.lines() == [
        f"{batch} what: x * 2",
        "[ 8. 10.]",
        f"{batch} what: y * 3",
        "[24. 30.]",
    ]


def test_vmap_of_some(show, stream):
    jax.vmap(lambda y: show((3.0, y))[1])(jnp.array([4.0, 5.0]))
    assert stream.lines() == [
        "transforms: [('batch', {'batch_dims': (None, 0)})]",
        "( 3. [4. 5.] )",
    ]


def test_vmap_in_vmap(show, stream):
    rows = jax.vmap(lambda x, y: show(x + y), in_axes=(0, None))
    jax.vmap(rows, in_axes=(None, 0))(jnp.arange(5), jnp.arange(3))
    assert stream.lines() == [
        "transforms: [('batch', {'batch_dims': (0,)}), ('batch', {'batch_dims': (0,)})]",
        "[[0 1 2 3 4]",
        "[1 2 3 4 5]",
        "[2 3 4 5 6]]",
    ]


def test_the_function_is_told_the_batched_axes():
    seen = []
    f = jax.vmap(
        lambda x: hcb.id_tap(lambda v, t: seen.append((v.shape, t)), x), in_axes=1, out_axes=1
    )
    jax.jit(f)(jnp.ones((3, 2)))
    hcb.barrier_wait()
    assert seen == [((3, 2), (("batch", {"batch_dims": (1,)}),))]


def test_vmap_of_while(show, stream):
    def f(x):
        x = show(x, where="before")
        x = lax.while_loop(lambda v: v < 2, lambda v: show(v + 1, where="body"), x)
        return show(x, where="after")

    assert np.array_equal(jax.jit(jax.vmap(f))(np.arange(5)), [2, 2, 2, 3, 4])
    assert [line for line in stream.lines() if not line.startswith("transforms")] == [
        "[0 1 2 3 4]",
        "[1 2 3 4 5]",
        "[2 3 3 4 5]",
        "[2 2 2 3 4]",
    ]


def test_vmap_of_while_with_a_tap_in_its_condition(show, stream):
    f = jax.vmap(
        lambda x: lax.while_loop(
            lambda v: show(v < 2, where="c"), lambda v: show(v + 1, where="b"), x
        )
    )
    assert np.array_equal(jax.jit(f)(np.arange(5)), [2, 2, 2, 3, 4])
    assert [line for line in stream.lines() if not line.startswith("transforms")] == [
        "[ True  True False False False]",
        "[1 2 3 4 5]",
        "[ True False False False False]",
        "[2 3 3 4 5]",
        "[False False False False False]",
    ]


def test_derivatives_of_batches(show, stream):
    jax.vmap(jax.grad(cube(show)))(np.float32([2, 3]))
    assert stream.lines() == [
        "transforms: [('batch', {'batch_dims': (0, 0)})] what: x,x^2",
        "( [2. 3.] [4. 9.] )",
    ]


# --- several devices, order, failures


def test_every_device_taps_for_itself():
    seen, mesh = [], jax.sharding.Mesh(np.array(jax.devices("cpu")[:2]), ("x",))

    def part(x):
        for _ in range(3):
            x = hcb.id_tap(
                lambda v, t, device: seen.append((device.id, float(v[0]))),
                x * 2.0,
                tap_with_device=True,
            )
        return x

    spec = jax.sharding.PartitionSpec("x")
    f = jax.jit(shard_map(part, mesh=mesh, in_specs=spec, out_specs=spec))
    for _ in range(2):
        assert np.array_equal(f(jnp.arange(1.0, 3)), [8, 16])
    hcb.barrier_wait()
    assert [v for d, v in seen if d == 0] == [2, 4, 8] * 2 and (
        [v for d, v in seen if d == 1] == [4, 8, 16] * 2
    )


def test_pmap():
    seen = []
    f = jax.pmap(
        lambda x: hcb.id_tap(
            lambda v, t, device: seen.append((device.id, float(v))), x * 2.0, tap_with_device=True
        )
    )
    f(jnp.arange(2.0))
    hcb.barrier_wait()
    assert sorted(seen) == [(0, 0), (1, 2)]


def test_barrier_wait_waits_for_slow_functions(stream):
    def slow(value, transforms):
        time.sleep(0.05)
        stream.write(f"{float(value)}\n")

    def f(x):
        for i in range(1, 4):
            x = hcb.id_tap(slow, x * i)
        return x

    for _ in range(2):
        jax.jit(f)(1.0)
        assert stream.lines() == ["1.0", "2.0", "6.0"]


def test_failures_arrive():
    def fails(value, transforms):
        raise KeyError("gone")

    for _ in range(2):
        with pytest.raises(
            hcb.TapFunctionException,
            match="tap 'fails' at test_host_callback.py:[0-9]+.*KeyError: 'gone'",
        ) as caught:
            jax.jit(lambda x: hcb.id_tap(fails, x))(1.0).block_until_ready()
            hcb.barrier_wait()
        assert (
            isinstance(caught.value.__cause__, KeyError)
            and hcb.CallbackException is hcb.TapFunctionException
        )
    seen = []
    jax.jit(lambda x: hcb.id_tap(lambda v, t: seen.append(v), x))(1.0)
    hcb.barrier_wait("a name for the log")
    assert seen == [1]


def test_a_function_that_computes_with_jax_is_refused():
    with pytest.raises(hcb.CallbackException, match="compute with NumPy there") as caught:
        jax.jit(lambda x: hcb.id_tap(lambda v, t: jnp.sin(v), x))(1.0).block_until_ready()
        hcb.barrier_wait()
    assert isinstance(caught.value.__cause__, pj.ReentryError)


def test_the_arrays_of_a_function_are_its_own():
    seen = []

    def kept(value, transforms):
        value += 1
        seen.append(value)

    jax.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: hcb.id_tap(kept, c) + 1, x))(
        jnp.arange(3)
    ).block_until_ready()
    hcb.barrier_wait()
    assert np.array_equal(seen, [np.arange(3) + n for n in (1, 2, 3)])


class Unhashable:
    __hash__ = None

    def __init__(self):
        self.seen = []

    def __call__(self, value, transforms):
        self.seen.append(float(value))


def test_what_cannot_be_hashed(show, stream, maybe_jit):
    function = Unhashable()
    maybe_jit(lambda x: hcb.id_tap(function, show(x, what=[1, 2])))(1.0)
    assert stream.lines() == ["what: [1, 2]", "1."] and function.seen == [1]
    maybe_jit(jax.vmap(lambda x: show(x, what=[1, 2])))(jnp.arange(2.0))
    assert stream.lines() == [
        "transforms: [('batch', {'batch_dims': (0,)})] what: [1, 2]",
        "[0. 1.]",
    ]


# --- call


CUBE = np.arange(24, dtype=np.int32).reshape(2, 3, 4)


def test_call(maybe_jit):
    f = maybe_jit(lambda x: 3 * (1 + hcb.call(lambda v: 2 * v, x + 1, result_shape=x)))
    assert np.array_equal(f(CUBE), 3 * (1 + 2 * (CUBE + 1)))


def test_the_same_call_is_compiled_once():
    def twice(v):
        return 2 * v

    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
    )
    for _ in range(3):
        assert np.array_equal(hcb.call(twice, CUBE, result_shape=CUBE), 2 * CUBE)
    jax.monitoring.clear_event_listeners()
    assert len(compiled) == 1


@pytest.mark.parametrize("dtype", NUMBERS)
def test_call_with_every_dtype(dtype):
    x = jnp.asarray(CUBE).astype(dtype)
    out = hcb.call(lambda v: v + v, x + x, result_shape=x)
    assert out.dtype == x.dtype and np.array_equal(out, 4 * x)
    assert np.array_equal(hcb.call(np.invert, x == x, result_shape=x == x), x != x)


def like(shape):
    return jax.ShapeDtypeStruct(shape, F32)


@pytest.mark.parametrize(
    "function, arg, result_shape, wanted",
    [
        (lambda a: (a[1], a[0]), (1, 2), (0, 0), (2, 1)),
        (lambda a: np.ones(2, np.float32) * (len(a) == 0), (), like((2,)), np.ones(2)),
        (
            lambda a: np.full(2, a.size, np.float32),
            np.ones((2, 0), np.float32),
            like((2,)),
            np.zeros(2),
        ),
        (
            lambda a: a[1],
            (np.ones((2, 0), np.float32), np.float32([3, 3])),
            like((2,)),
            np.float32([3, 3]),
        ),
        (lambda a: np.ones((2, 0), np.float32), 1.0, like((2, 0)), np.ones((2, 0))),
        (
            lambda a: (np.ones((2, 0), np.float32), np.float32([1]), np.ones(0, np.float32)),
            1.0,
            (like((2, 0)), like((1,)), like((0,))),
            (np.ones((2, 0)), np.ones(1), np.ones(0)),
        ),
        (
            lambda a: (np.ones((2, 0), np.float32),) * 2,
            1.0,
            (like((2, 0)),) * 2,
            (np.ones((2, 0)),) * 2,
        ),
        (lambda a: None, (3.0, 4.0), None, None),
        (lambda a: (), 2, (), ()),
    ],
)
def test_trees_and_empty_arrays(maybe_jit, function, arg, result_shape, wanted):
    out = maybe_jit(lambda: hcb.call(function, arg, result_shape=result_shape))()
    assert jax.tree.structure(out) == jax.tree.structure(wanted)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(out), jax.tree.leaves(wanted)))


def test_a_call_in_branches_and_loops():
    def f(x):
        return lax.fori_loop(
            0,
            18,
            lambda i, acc: lax.cond(
                i % 2 == 1,
                lambda: hcb.call(lambda a: a[0] * np.float32(a[1]), (acc, i), result_shape=acc),
                lambda: acc,
            ),
            x,
        )

    assert np.isclose(jax.jit(f)(F32(1.2)), 1.2 * np.prod(np.arange(1.0, 18, 2)), rtol=1e-5)
    c, _ = jax.jit(
        lambda x: lax.scan(lambda c, i: (c + hcb.call(lambda v: v, i, result_shape=i), None), 0, x)
    )(jnp.arange(5))
    assert c == 10


def test_eigenvalues_by_numpy():
    m = np.ones((2, 5, 4, 4), np.float32)
    f = jax.jit(
        lambda m: hcb.call(
            np.linalg.eigvalsh, m, result_shape=jax.ShapeDtypeStruct(m.shape[:-1], m.dtype)
        )
    )
    assert np.allclose(f(m), np.linalg.eigvalsh(m))


def test_call_tells_the_device():
    seen = []

    def host(v, *, device):
        seen.append(device)
        return v

    jax.jit(lambda x: hcb.call(host, x, result_shape=x, call_with_device=True))(
        1.0
    ).block_until_ready()
    assert seen == [jax.devices("cpu")[0]]


def test_call_under_vmap():
    f = jax.vmap(
        lambda x: hcb.call(
            lambda v: v + 1, x, result_shape=x, callback_flavor=hcb.CallbackFlavor.PURE
        )
    )
    assert np.array_equal(f(np.ones((2, 3))), 2 * np.ones((2, 3)))


@pytest.mark.parametrize("wrong", ["string", lambda x: x])
def test_what_is_no_result_shape(wrong):
    with pytest.raises(
        ValueError,
        match="must be either numeric scalars, or must have 'shape' and 'dtype' attributes",
    ):
        hcb.call(lambda x: x, 3.0, result_shape=wrong)


@pytest.mark.parametrize(
    "returned", [lambda v: (v, v), lambda v: v[:1], lambda v: v.astype(np.float16), lambda v: None]
)
def test_results_that_do_not_fit(returned):
    with pytest.raises(hcb.CallbackException, match="must"):
        hcb.call(returned, np.ones(3, np.float32), result_shape=like((3,))).block_until_ready()


# --- JAX on another device, with a derivative by a rule of one's own


def elsewhere(f, x):
    device = jax.devices("cpu")[1]

    @jax.custom_vjp
    def called(x):
        return hcb.call(
            lambda v: jax.jit(f)(jax.device_put(v, device)), x, result_shape=jax.eval_shape(f, x)
        )

    def backward(x, ct):
        return (elsewhere(lambda given: jax.vjp(f, given[0])[1](given[1])[0], (x, ct)),)

    called.defvjp(lambda x: (called(x), x), backward)
    return called(x)


def test_jax_on_another_device(maybe_jit):
    assert np.isclose(maybe_jit(lambda x: elsewhere(jnp.sin, x))(3.0), np.sin(3))
    tree = {"a": 3.0, "b": 4.0}
    out = maybe_jit(lambda x: elsewhere(lambda x: [jnp.sin(x["a"]), jnp.sin(x["b"])], x))(tree)
    assert np.allclose(out, [np.sin(3), np.sin(4)])


def test_derivatives_by_jax_on_another_device():
    assert np.isclose(jax.grad(lambda x: 2 * elsewhere(jnp.sin, x))(3.0), 2 * np.cos(3))
    g = jax.grad(lambda x: elsewhere(lambda x: 3 * jnp.sin(x["a"]) + jnp.sin(x["b"]), x))(
        {"a": 3.0, "b": 4.0}
    )
    assert np.allclose([g["a"], g["b"]], [3 * np.cos(3), np.cos(4)])
    assert np.isclose(jax.grad(jax.grad(lambda x: 2 * elsewhere(lambda x: x * x * x, x)))(5.0), 60)
