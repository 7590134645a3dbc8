"""Tensors: from whatever holds an array, and to it, without copies where the memory allows."""

import ctypes
import gc
import subprocess
import sys
import textwrap

import ml_dtypes
import numpy as np
import postern
import pytest

FLOATS_OF_8_BITS = [
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e4m3b11fnuz",
    "float8_e5m2fnuz",
    "float8_e4m3fnuz",
    "float8_e4m3",
    "float8_e3m4",
    "float8_e8m0fnu",
]
NUMPY_DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


def in_a_process(code):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "others", ["jax, jax.numpy as jnp; jnp.zeros(3) + 1", "scipy.linalg, scipy.special", "numpy"]
)
def test_the_package_is_imported_after_and_before_others(others):
    for first, second in (
        (f"import {others}", "import postern"),
        ("import postern", f"import {others}"),
    ):
        out = in_a_process(
            f"{first}\n{second}\nprint(postern.Tensor([1.5, 2]).numpy(), postern.version() >= 3)"
        )
        assert out == "[1.5 2. ] True\n"


@pytest.mark.parametrize(
    "name",
    NUMPY_DTYPES
    + ["bfloat16", "int4", "uint4", "int2", "uint2", "float4_e2m1fn"]
    + FLOATS_OF_8_BITS,
)
def test_every_dtype_goes_in_and_out(name):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    array = np.ones((2, 3), dtype)
    tensor = postern.Tensor(array)
    seen = tensor.numpy()
    assert (seen.dtype, seen.shape, seen.flags.writeable) == (dtype, (2, 3), False)
    np.testing.assert_array_equal(seen, array)
    np.testing.assert_array_equal(np.asarray(tensor), array)


@pytest.mark.parametrize("name", NUMPY_DTYPES + ["bfloat16"] + FLOATS_OF_8_BITS)
def test_dlpack_to_and_from_jax(name):
    jax = pytest.importorskip("jax")
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    array = np.arange(1, 7).reshape(2, 3).astype(dtype)
    with jax.enable_x64(True):
        there = jax.numpy.from_dlpack(postern.Tensor(array))
        assert there.dtype == dtype
        np.testing.assert_array_equal(np.asarray(there), array)
        back = postern.Tensor(there).numpy()
        assert back.dtype == dtype
        np.testing.assert_array_equal(back, array)


def test_large_memory_is_lent_and_small_copied():
    large, small = np.arange(5000.0), np.arange(5.0)
    before, count = postern._postern.lent_count(), sys.getrefcount(large)
    tensor, other = postern.Tensor(large), postern.Tensor(small)
    assert postern._postern.lent_count() == before + 1
    assert sys.getrefcount(large) > count
    seen = tensor.numpy()
    del tensor
    gc.collect()
    assert seen[4999] == 4999  # the array keeps what it shows
    del seen, other
    gc.collect()
    assert postern._postern.lent_count() == before
    assert sys.getrefcount(large) == count


class Other:
    """Some other library's array, of before DLPack 1."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


def test_columns_first_and_parts_are_copied():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    for part in (array, array.T, array[::2, 1:3], array[:, ::-1]):
        np.testing.assert_array_equal(postern.Tensor(part).numpy(), part)
        np.testing.assert_array_equal(postern.Tensor(Other(part)).numpy(), part)


def test_memory_is_read_only_to_all_who_are_told():
    tensor = postern.Tensor(np.arange(6, dtype=np.int32).reshape(2, 3))
    for seen in (tensor.numpy(), np.asarray(tensor), np.from_dlpack(tensor)):
        assert not seen.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            seen[0, 0] = 1
    view = memoryview(tensor)
    assert (view.readonly, view.shape, view.format, view.tolist()) == (
        True,
        (2, 3),
        "i",
        [[0, 1, 2], [3, 4, 5]],
    )
    with pytest.raises(TypeError, match="not writable"):
        (ctypes.c_int * 6).from_buffer(tensor)


def test_copies_and_dtypes_on_request():
    tensor = postern.Tensor(np.float32([1, 2]))
    copied = np.array(tensor, copy=True)
    copied[0] = 5
    assert tensor.numpy()[0] == 1
    assert np.asarray(tensor, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="without a copy"):
        tensor.__array__(np.float64, copy=False)
    owned = np.from_dlpack(tensor, copy=True)
    assert owned.flags.writeable
    with pytest.raises(BufferError):
        memoryview(postern.Tensor(np.ones(2, ml_dtypes.bfloat16)))


def test_dlpack_says_its_version():
    tensor = postern.Tensor(np.float32([1]))
    assert tensor.__dlpack_device__() == (1, 0)
    assert '"dltensor"' in repr(tensor.__dlpack__())
    assert '"dltensor"' in repr(tensor.__dlpack__(max_version=(0, 8)))
    assert '"dltensor_versioned"' in repr(tensor.__dlpack__(max_version=(1, 0)))
    with pytest.raises(BufferError, match="device"):
        tensor.__dlpack__(dl_device=(2, 0))


class Guarded(Other):
    """One that gives its memory to NumPy alone, or to nobody."""

    def __dlpack__(self, **_):
        raise BufferError("not by DLPack")

    def __array__(self, dtype=None, copy=None):
        if self.array is None:
            raise RuntimeError("the array has been deleted")
        return self.array


def test_a_tensor_without_a_value_is_refused():
    code = """
    import warnings, numpy as np, postern

    class Mine(postern.Tensor):
        def __init__(self, value):
            self.value = value

    warnings.simplefilter("ignore")
    program = postern.load_text("func.func @main(%x: tensor<f32>) -> tensor<f32> "
                                "{ return %x : tensor<f32> }")
    for tensor in (Mine(1), postern.Tensor.__new__(postern.Tensor)):
        for act in (memoryview, np.asarray, np.from_dlpack, postern.Tensor, program, repr, len,
                    lambda t: t.numpy(), lambda t: t.shape, lambda t: t[0],
                    lambda t: t.__dlpack__(), lambda t: t.__dlpack__(copy=True),
                    lambda t: postern.native(program, bound={0: t})):
            try:
                act(tensor)
                print("nothing was raised by", act)
            except (TypeError, BufferError):
                pass
        try:
            tensor.numpy()
        except TypeError as e:
            print(e)
    print(program(postern.Tensor(1.5).numpy().astype("f4"))[0])
    """
    no_value = "postern: this Tensor has no value: __init__ of its class must call"
    first, second, last = in_a_process(code).splitlines()
    assert first == second == f"{no_value} super().__init__(value)" and last == "1.5"


def test_what_dlpack_refuses_is_asked_of_numpy():
    array = np.arange(6.0)
    np.testing.assert_array_equal(postern.Tensor(Guarded(array)).numpy(), array)
    with pytest.raises(RuntimeError, match="has been deleted"):
        postern.Tensor(Guarded(None))


@pytest.mark.parametrize(
    "wrong", ["text", None, object(), [object()], np.zeros(2, ">f4"), np.array(["a"])], ids=repr
)
def test_what_is_no_array_is_refused(wrong):
    with pytest.raises(TypeError):
        postern.Tensor(wrong)
