"""Loops under vmap whose elements end at different times: effects are those without vmap."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import postern.jax as pj

I32 = jax.ShapeDtypeStruct((), jnp.int32)
COUNTS = [0, 3, 1, 5]


class Sent:
    def __init__(self):
        self.seen = []

    def __call__(self, i, n):
        self.seen.append((int(n), int(i)))
        return np.int32(10 * i)


# What a step of element `n` does with an effect; a number comes of it.
EFFECTS = {
    "unordered": lambda sent, i, n: pj.call(sent, I32, i, n, effect="unordered"),
    "ordered": lambda sent, i, n: pj.call(sent, I32, i, n, effect="ordered"),
    "whole batch": lambda sent, i, n: pj.call(
        sent, I32, i, n, effect="unordered", vmap_method="expand_dims"
    ),
    "tap": lambda sent, i, n: pj.tap((i, n), lambda given: sent(*given) and None)[0] * 10,
    "async": lambda sent, i, n: pj.tap((i, n), lambda given: sent(*given) and None, mode="async")[0]
    * 10,
    "ordered tap": lambda sent, i, n: pj.tap(
        (i, n), lambda given: sent(*given) and None, ordered=True
    )[0]
    * 10,
    "derivatives": lambda sent, i, n: pj.tap(
        (i, n), lambda given: sent(*given) and None, derivatives=True
    )[0]
    * 10,
}


def looped(act):
    def one(n):
        step = lambda v: (v[0] + 1, v[1] + act(v[0], n))
        return jax.lax.while_loop(lambda v: v[0] < n, step, (jnp.int32(0), jnp.int32(0)))[1]

    return one


# Where in the loop it stands.
WHERE = {
    "body": looped,
    "inner jit": lambda act: looped(jax.jit(act)),
    "cond": lambda act: looped(
        lambda i, n: jax.lax.cond(n > 0, act, lambda i, n: jnp.int32(-1), i, n)
    ),
    "scan": lambda act: looped(
        lambda i, n: jax.lax.scan(lambda c, _: (act(i, n), None), jnp.int32(0), None, 2)[0]
    ),
    "fori": lambda act: lambda n: jax.lax.fori_loop(0, n, lambda i, c: c + act(i, n), jnp.int32(0)),
    "loop": lambda act: looped(
        lambda i, n: jax.lax.fori_loop(0, i % 2 + 1, lambda j, c: c + act(i, n), jnp.int32(0))
    ),
    "condition": lambda act: lambda n: jax.lax.while_loop(
        lambda i: act(i, n) < 10 * n, lambda i: i + 1, jnp.int32(0)
    ),
}


@pytest.mark.parametrize(
    "effect, where",
    [*((effect, "body") for effect in EFFECTS), *(("unordered", where) for where in WHERE)]
    + [("ordered", where) for where in ("cond", "scan", "loop", "condition")],
)
def test_elements_that_have_ended_have_no_effects(effect, where):
    def ran(run):
        sent = Sent()
        out = run(WHERE[where](lambda i, n: EFFECTS[effect](sent, i, n)))
        pj.barrier()
        return np.array(out).tolist(), sent.seen

    counts = jnp.array(COUNTS, jnp.int32)
    wanted, alone = ran(lambda one: [*map(jax.jit(one), counts)])
    runs = [lambda one: jax.jit(jax.vmap(one))(counts)]
    if effect == "ordered":
        runs.append(lambda one: jax.vmap(jax.vmap(one))(counts.reshape(2, 2)).reshape(-1))
    for run in runs:
        got, seen = ran(run)
        assert got == wanted
        assert collections.Counter(seen) == collections.Counter(alone)
        for n in COUNTS:  # an element's are in order
            assert [s for s in seen if s[0] == n] == [s for s in alone if s[0] == n]


def test_what_ends_at_the_same_time_stays_a_batch():
    shapes = []
    f = lambda x: jax.lax.fori_loop(
        0,
        3,
        lambda i, c: pj.call(
            lambda v: shapes.append(v.shape) or v,
            jax.ShapeDtypeStruct((), jnp.float32),
            c,
            effect="unordered",
            vmap_method="broadcast_all",
        ),
        x,
    )
    jax.block_until_ready(jax.jit(jax.vmap(f))(jnp.zeros(4)))
    assert shapes == [(4,)] * 3


def test_a_collective_over_the_axis_is_refused():
    def one(n):
        def step(v):
            pj.tap(v, lambda v: None)
            return v + jax.lax.psum(1, "b") + 0 * jax.lax.axis_index("b")

        return jax.lax.while_loop(lambda v: v < n, step, 0)

    with pytest.raises(NotImplementedError, match="beside a collective over vmap's axis 'b'"):
        jax.jit(jax.vmap(one, axis_name="b"))(jnp.arange(3))


def test_differentiated():
    seen = []

    def one(n, x):
        step = lambda v: (v[0] + 1, v[1] * pj.tap(x, lambda v: seen.append(float(v))))
        return jax.lax.while_loop(lambda v: v[0] < n, step, (0, 1.0))[1]

    f = jax.jit(jax.vmap(lambda n, x: jax.jvp(lambda x: one(n, x), (x,), (1.0,))))
    got = f(jnp.array([0, 2, 3]), jnp.array([5.0, 6.0, 7.0]))
    pj.barrier()
    assert np.array_equal(got, [[1, 36, 343], [0, 12, 147]])
    assert sorted(seen) == [6, 6, 7, 7, 7]
