"""The package by itself: tensors, numbers, native programs, what is shown of it."""

import asyncio
import concurrent.futures
import inspect
import threading

import numpy as np
import postern
import pytest

SCALE = """
func.func @main(%x: tensor<3xf32>, %k: tensor<f32>) -> (tensor<3xf32>, tensor<i32>) {
  %b = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<f32>) -> tensor<3xf32>
  %y = stablehlo.multiply %x, %b : tensor<3xf32>
  %c = stablehlo.constant dense<7> : tensor<i32>
  return %y, %c : tensor<3xf32>, tensor<i32>
}"""
ENERGY = """
func.func @main(%x: tensor<3xf64>) -> tensor<f64> {
  %c = stablehlo.constant dense<0.0> : tensor<f64>
  %y = stablehlo.multiply %x, %x : tensor<3xf64>
  %s = stablehlo.reduce(%y init: %c) applies stablehlo.add across dimensions = [0]
      : (tensor<3xf64>, tensor<f64>) -> tensor<f64>
  return %s : tensor<f64>
}"""


def of_type(text):
    return postern.load_text(
        f"func.func @main(%x: tensor<{text}>) -> tensor<{text}> {{ return %x : tensor<{text}> }}"
    )


def test_a_tensor_is_like_an_array():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = postern.Tensor(a)
    assert (t.shape, t.dtype, t.ndim, t.size, len(t)) == ((2, 3), np.float32, 2, 6, 2)
    assert t[1, 2] == 5 and np.array_equal(t[:, 1], a[:, 1]) and t.tolist() == a.tolist()
    assert [row.tolist() for row in t] == a.tolist()
    assert repr(t) == "Tensor([[0., 1., 2.],\n       [3., 4., 5.]], dtype=float32)"
    assert float(postern.Tensor(2.5)) == 2.5 and int(postern.Tensor(3)) == 3
    with pytest.raises(ValueError, match="read-only"):
        t[0][0] = 1
    for act, error in (
        (lambda: t[2], IndexError),
        (lambda: float(t), ValueError),
        (lambda: len(postern.Tensor(1.0)), TypeError),
        (lambda: hash(t[0]), TypeError),
    ):
        with pytest.raises(error):
            act()


def test_numbers_and_lists_get_the_programs_dtypes():
    program = postern.load_text(SCALE)
    for arguments in (([1, 2, 3], 2), ((1.0, 2, 3), 2.0), ([True, 2, 3], np.float32(2))):
        y, c = program(*arguments)
        assert y.dtype == np.float32 and c == 7
        assert y.tolist() == [2 * v for v in arguments[0]]
    assert program(k=0.5, x=[2, 4, 6])[0].tolist() == [1, 2, 3]
    assert program.start([1, 2, 3], 1).result()[0].tolist() == [1, 2, 3]
    for type, value in (
        ("2xui8", [1, 255]),
        ("2xi64", [1, -(2**40)]),
        ("i1", True),
        ("2xbf16", [1, 2.5]),
        ("complex<f32>", 1),
        ("0xf32", []),
        ("2xf8E4M3FN", [1, 2]),
    ):
        assert of_type(type)(value)[0].tolist() == value


@pytest.mark.parametrize(
    "type, value, error",
    [
        ("2xi32", [1.5, 2], TypeError),
        ("i32", 2.0, TypeError),
        ("i1", 1, TypeError),
        ("f32", 1j, TypeError),
        ("2xf32", ["a", "b"], TypeError),
        ("2xui8", [1, 256], ValueError),
        ("2xui8", [-1, 2], ValueError),
        ("2x2xf32", [[1], [2, 3]], ValueError),
        ("2xf32", [1, 2, 3], postern.Error),
    ],
)
def test_numbers_of_another_kind_are_refused(type, value, error):
    with pytest.raises(error):
        of_type(type)(value)


def test_arrays_keep_their_dtype():
    with pytest.raises(postern.Error, match=r"must be f32\[3\], got f64\[3\]"):
        postern.load_text(SCALE)(np.arange(3.0), 1)


def test_a_run_can_be_awaited():
    program = postern.load_text(SCALE)

    async def both():
        return await asyncio.gather(*(wait(program.start([1, 2, 3], k)) for k in (1, 2)))

    async def wait(run):
        return (await run)[0].tolist()

    assert asyncio.run(both()) == [[1, 2, 3], [2, 4, 6]]


def test_an_awaited_run_fails_and_is_cancelled():
    entered, go_on = threading.Event(), threading.Event()

    def waits(x):
        entered.set()
        go_on.wait(20)
        if x[0] == 1:
            raise LookupError("of the function")
        return x

    postern.register("alone.waits", waits, replace=True)
    text = """
    func.func @main(%x: tensor<1xf32>) -> tensor<1xf32> {
      %y = stablehlo.custom_call @postern_guest(%x) {api_version = 4 : i32, has_side_effect = true,
        backend_config = {function = "alone.waits", kind = "call"}}
        : (tensor<1xf32>) -> tensor<1xf32>
      %z = stablehlo.custom_call @postern_guest(%y) {api_version = 4 : i32, has_side_effect = true,
        backend_config = {function = "alone.waits", kind = "call"}}
        : (tensor<1xf32>) -> tensor<1xf32>
      return %z : tensor<1xf32>
    }"""
    program = postern.load_text(text)

    async def fails():
        go_on.set()
        await program.start([1.0])

    with pytest.raises(postern.CallbackError, match="of the function"):
        asyncio.run(fails())
    go_on.clear()
    entered.clear()

    async def cancelled():
        run = program.start([2.0])

        async def waited():
            await run

        task = asyncio.create_task(waited())
        await asyncio.sleep(0.01)  # the task begins
        while not entered.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        with pytest.raises(postern.Error):
            run.result(20)

    asyncio.run(cancelled())


def test_native_programs():
    scale = postern.native(postern.load_text(SCALE))
    assert repr(scale) == "Native((f32[3], f32[]) -> (f32[3], s32[]))"
    y, c = scale([1, 2, 3], 2)
    assert y.tolist() == [2, 4, 6] and c == 7
    assert scale(np.arange(6, dtype=np.float32)[::2], np.float32(1))[0].tolist() == [0, 2, 4]
    fixed = postern.native(postern.load_text(SCALE), bound={"k": 3})
    assert fixed.inputs == ["f32[3]"] and fixed([1, 2, 3])[0].tolist() == [3, 6, 9]
    assert postern.native(postern.load_text(SCALE), bound={1: 3})([1, 2, 3])[0][0] == 3


@pytest.mark.parametrize("begin", [0, 1])  # aligned as XLA wants it, or not
def test_a_bound_argument_stays_what_it_was(begin):
    multiply = postern.load_text(
        """
func.func @main(%x: tensor<2048xf32>, %w: tensor<2048xf32>) -> tensor<2048xf32> {
  %y = stablehlo.multiply %x, %w : tensor<2048xf32>
  return %y : tensor<2048xf32>
}"""
    )
    x, w = np.ones(2048, np.float32), np.full(2049, 3, np.float32)[begin:][:2048]
    triple = postern.native(multiply, bound={"w": w})
    for other in (5, 7):
        w[:] = other
        assert (triple(x)[0] == 3).all()


def test_native_derivatives(tmp_path):
    file = tmp_path / "energy.mlir"
    file.write_text(ENERGY)
    energy = postern.native(file, "value_and_grad")
    x, out = np.arange(3.0), [np.empty(()), np.empty(3)]
    for _ in range(3):
        x += 1
        made = energy(x, out=out)
        assert made[0] is out[0] and out[0] == (x * x).sum() and np.array_equal(out[1], 2 * x)
    value, tangent = postern.native(file, "jvp")(x, [1, 0, 0])
    assert value == (x * x).sum() and tangent == 2 * x[0]


def test_native_programs_on_threads():
    energy = postern.native(postern.load_text(ENERGY))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda i: float(energy(np.full(3, float(i)))[0]), range(200)))
    assert made == [3.0 * i * i for i in range(200)]


@pytest.mark.parametrize(
    "act, error, text",
    [
        (lambda f, p: f(np.arange(4.0)), ValueError, r"argument 0 must be f64\[3\], got shape"),
        (lambda f, p: f(np.float32([1, 2, 3])), TypeError, "got dtype float32"),
        (lambda f, p: f(), TypeError, "takes 1 arguments, 0 given"),
        (lambda f, p: f([1, 2, 3], out=[]), TypeError, "has 2 results, 0 in `out`"),
        (
            lambda f, p: f([1, 2, 3], out=[np.empty(()), np.empty(6)[::2]]),
            ValueError,
            r"out\[1\] must be a dense array of f64\[3\]",
        ),
        (lambda f, p: postern.native(p, "hessian"), ValueError, "derivative must be one of"),
        (lambda f, p: postern.native(p, bound={"q": 1}), ValueError, "no argument 'q'"),
        (lambda f, p: postern.native(p, bound={7: 1}), ValueError, "no argument 7"),
        (lambda f, p: postern.native(p, types=[]), ValueError, "types has 0"),
        (lambda f, p: postern.native(p, types=["f64[3]\0x"]), ValueError, "null character"),
        (lambda f, p: postern.native(p, types=[3]), TypeError, "int"),
        (lambda f, p: postern.native("/no/file"), postern.Error, "No such file"),
    ],
)
def test_what_native_refuses(act, error, text):
    program = postern.load_text(ENERGY)
    with pytest.raises(error, match=text):
        act(postern.native(program, "value_and_grad"), program)


def test_a_program_without_a_number_has_no_gradient():
    with pytest.raises(postern.Error, match="must return a scalar"):
        postern.native(postern.load_text(SCALE), "value_and_grad")


def test_what_is_shown_of_the_package():
    shown = [name for name in dir(postern) if not name.startswith("__")]
    listed = [name for name in postern.__all__ if not name.startswith("__")]
    assert shown == sorted({*listed, "jax", "listen"})
    assert postern.__version__.split(".")[0].isdigit()
    for name in listed:
        inspect.signature(getattr(postern, name))
    assert str(inspect.signature(postern.load_text(SCALE))).startswith("(x: 'f32[3]', k: 'f32[]')")


def test_errors_are_in_our_words():
    for make, text in (
        (lambda: postern.Tensor(), "postern.Tensor takes one value, 0 were given"),
        (lambda: postern.Tensor(1, 2), "takes one value, 2 were given"),
        (lambda: postern.Program(), "made by postern.load"),
        (lambda: postern.Run(), "made by Program.start"),
    ):
        with pytest.raises(TypeError, match=text):
            make()
