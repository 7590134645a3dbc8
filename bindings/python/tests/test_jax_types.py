"""Types that JAX has and NumPy has not, or the other way round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import postern
import postern.jax as pj

PACKED = ["int2", "uint2", "int4", "uint4", "float4_e2m1fn"]


def both(f, *args):
    """Outside of jit and in it."""
    for of in (f, jax.jit(f)):
        yield jax.block_until_ready(of(*args))


def like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


@pytest.mark.parametrize("dtype", PACKED)
def test_elements_of_less_than_a_byte(dtype):
    x, seen = jnp.asarray([0, 1, 1, 0], dtype), []

    def turned(v, k):
        seen.append((v.dtype, k.dtype, v.shape))
        return v[::-1], k + np.float32(1)

    def f(x):
        pj.tap({"x": x}, lambda v: seen.append(v["x"].dtype))
        return pj.call(turned, (like(x), like(jnp.float32(0))), x, jnp.float32(2), effect="ordered")

    for y, k in both(f, x[:3]):
        assert y.dtype == dtype and np.array_equal(y, x[:3][::-1]) and k == 3
        pj.barrier()
        assert set(seen) == {np.dtype(dtype), (np.dtype(dtype), np.dtype("f4"), (3,))}

    def one(e):
        return pj.call(lambda v: v, like(e), e)

    for y in both(jax.vmap(one), x):
        assert y.dtype == dtype and np.array_equal(y, x)
    for y in both(lambda x: jax.lax.scan(lambda c, e: (c, one(e)), 0, x)[1], x):
        assert y.dtype == dtype and np.array_equal(y, x)
    assert pj.call(lambda: 1, jax.ShapeDtypeStruct((), dtype)) == jnp.asarray(1, dtype)


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("made", [100, 0.25, np.int8(1), np.float32(1)])
def test_results_that_are_not_of_less_than_a_byte(dtype, made):
    for act in (lambda f: f(), lambda f: jax.jit(f)().block_until_ready()):
        with pytest.raises(postern.CallbackError, match=f"the function must return {dtype}, it"):
            act(lambda: pj.call(lambda: made, jax.ShapeDtypeStruct((), dtype)))


def test_printing_elements_of_less_than_a_byte(capfd):
    jax.jit(lambda x: pj.print("{} {}", x, x[0]))(jnp.asarray([-2, 1], "int4"))
    pj.barrier()
    assert capfd.readouterr().out == "[-2 1] -2\n"


@pytest.mark.parametrize("dtype", PACKED)
def test_what_takes_no_elements_of_less_than_a_byte(dtype):
    x = jnp.asarray([0, 1], dtype)
    for act in (
        lambda: pj.call("some.name", like(x)),
        lambda: pj.call("some.name", None, x),
        lambda: pj.tap(x, "some.name"),
        lambda: pj.tap(x, pj.listen.stats()),
        lambda: pj.tap(x, print, derivatives=True),
    ):
        with pytest.raises(TypeError, match=f"an array of {dtype}, whose elements have less"):
            act()


WIDE = [
    ("float64", "float32"),
    ("complex128", "complex64"),
    ("int64", "int32"),
    ("uint64", "uint32"),
]


@pytest.mark.parametrize("wide, dtype", WIDE)
def test_64_bits_of_numpys_are_taken_as_jax_takes_them(wide, dtype):
    array = np.asarray([[1, 2], [3, 4]], wide)
    for returned in (array, array.T, array[0, 0], array[:1, 0].reshape(())):
        for y in both(
            lambda: pj.call(lambda: returned, jax.ShapeDtypeStruct(returned.shape, dtype))
        ):
            assert y.dtype == dtype and np.array_equal(y, returned)
    two = {"a": jax.ShapeDtypeStruct((2, 2), dtype), "b": jax.ShapeDtypeStruct((), jnp.int32)}
    for y in both(lambda: pj.call(lambda: {"a": array, "b": np.int64(7)}, two, effect="ordered")):
        assert np.array_equal(y["a"], array) and y["b"] == 7


@pytest.mark.parametrize(
    "returned, dtype",
    [
        (np.float64(1), "int32"),
        (np.float64(1), "float16"),
        (np.int64(1), "uint32"),
        (np.int64(1), "float32"),
        (np.complex128(1), "float32"),
        (np.asarray(1, ">f8"), "float32"),
    ],
)
def test_other_types_than_declared_stay_errors(returned, dtype):
    for act in (lambda f: f(), lambda f: jax.jit(f)().block_until_ready()):
        with pytest.raises(postern.CallbackError, match=f"result 0 must be {dtype}"):
            act(lambda: pj.call(lambda: returned, jax.ShapeDtypeStruct((), dtype)))


@pytest.mark.parametrize(
    "returned, dtype", [(2**40, "int32"), (-(2**31) - 1, "int32"), (2**32, "uint32")]
)
def test_integers_that_32_bits_do_not_hold(returned, dtype):
    made = np.asarray(returned, "i8" if dtype == "int32" else "u8")
    for act in (lambda f: f(), lambda f: jax.jit(f)().block_until_ready()):
        with pytest.raises(postern.CallbackError, match=f"does not fit into {dtype}") as caught:
            act(lambda: pj.call(lambda: made, jax.ShapeDtypeStruct((), dtype)))
        assert isinstance(caught.value.__cause__, OverflowError)
