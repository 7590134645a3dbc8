"""Options of one run, and results by name."""

import asyncio
import copy
import gc
import pathlib
import pickle
import subprocess
import sys
import textwrap
import time
import weakref

import numpy as np
import postern
import postern.listen
import pytest

X = np.float32([1, 2, 3])


def test_a_run_has_functions_of_its_own(programs):
    told = []

    @postern.with_info
    def scale(x, info, *, factor):
        told.append(info.site)
        return np.float32(factor + 1) * x

    calls = postern.load(programs / "calls.mlir")
    log = {"demo.log": lambda v: told.append(float(v[0]))}
    mine = calls.with_options(functions={"demo.scale": scale, **log})
    for result in (mine(X), mine.run(X), mine.start(X).result(10)):
        assert float(np.asarray(result[0])) == 24
    assert told == ["scale", 4.0] * 3
    with pytest.raises(postern.Error, match="demo.scale"):  # nobody has registered it
        calls(X)


def test_hooks_are_heard_by_one_run(programs):
    heard = []
    program = postern.load(programs / "hooks.mlir")
    postern.register("demo.log", lambda v: heard.append("registered"))
    try:
        listens = program.with_options(hooks={"sum": lambda v: heard.append(v.copy())})
        assert np.array_equal(listens(X)[0], 2 * (X + 1))
        assert np.array_equal(heard[0], X + 1) and heard[1:] == ["registered"]
        also = listens.with_options(hooks={"product": lambda v: heard.append("mine")})
        also(X)
        assert heard[2:] == ["mine"]
        with pytest.raises(postern.Error, match="'summ'.*product.*sum") as caught:
            program.with_options(hooks={"summ": print})(X)
        assert caught.value.code == 3  # invalid argument
    finally:
        postern.unregister("demo.log")


def test_prints_go_to_a_function(programs, capfd):
    lines = []
    program = postern.load(programs / "prints.mlir").with_options(print=lines.append)
    assert np.array_equal(program(X)[0], X + 1)
    postern.barrier(10)
    assert lines == ["sum 6.0\n"] and capfd.readouterr().out == ""


def test_what_a_print_raises_is_told_and_harms_nothing(programs):
    code = """
    import sys, numpy as np, postern
    def broken(text):
        raise ValueError("no room for " + text.strip())
    program = postern.load(sys.argv[1]).with_options(print=broken)
    print(program(np.float32([1, 2, 3]))[0])
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(programs / "prints.mlir")],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.stdout == "[2. 3. 4.]\n" and ran.returncode == 0
    assert "no room for sum 6.0" in ran.stderr and "broken" in ran.stderr


@pytest.mark.parametrize("seconds", [0.05, 1e-10])  # which is less than there is a number for
def test_a_deadline_ends_the_run(programs, seconds):
    late = postern.load(programs / "calls.mlir").with_options(
        deadline=seconds,
        functions={"demo.scale": lambda x, factor: time.sleep(2) or x, "demo.log": print},
    )
    for runs in (late, late.run, lambda x: late.start(x).result(10)):
        with pytest.raises(postern.TimeoutError):
            runs(X)
    assert postern.barrier(10)


def test_a_run_is_on_its_device(programs):
    code = """
    import sys, numpy as np, postern
    postern.configure(cpu_devices=2)
    seen = []
    log = postern.with_info(lambda v, info: seen.append(info.device))
    scale = lambda x, factor: x
    program = postern.load(sys.argv[1])
    functions = {"demo.log": log, "demo.scale": scale}
    for device in (0, 1):
        program.with_options(device=device, functions=functions)(np.float32([1, 2, 3]))
    print(seen)
    program.with_options(device=2, functions=functions)(np.float32([1, 2, 3]))
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(programs / "calls.mlir")],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.stdout == "[0, 1]\n" and "device" in ran.stderr.splitlines()[-1]


def test_it_is_the_program_otherwise(programs):
    program = postern.load(programs / "plain.mlir")
    again = program.with_options(deadline=5)
    assert (again.inputs, again.outputs) == (program.inputs, program.outputs)
    assert repr(again).endswith("with_options(deadline=5)")

    async def awaited():
        return (await again.start(X))[0]

    assert np.array_equal(asyncio.run(awaited()), 2 * X + 1)
    with pytest.raises(AttributeError, match="'nothing'"):
        again.nothing
    assert np.array_equal(copy.copy(again)(X)[0], 2 * X + 1)
    with pytest.raises(TypeError, match="Program"):
        pickle.dumps(again)


@pytest.mark.parametrize(
    "said, error, told",
    [
        ({"device": -1}, ValueError, r"from 0 to 2\*\*31 - 1, got -1"),
        ({"device": 2**31}, ValueError, "got 2147483648"),
        ({"device": 2**31 - 1}, postern.Error, "device"),
        ({"device": 1.5}, TypeError, "float"),
        ({"deadline": 0}, ValueError, "above 0, got 0"),
        ({"deadline": float("nan")}, ValueError, "got nan"),
        ({"print": "x"}, TypeError, "a function of a text"),
        ({"hooks": {"sum": 3}}, TypeError, "callable"),
        ({"functions": {"a": postern.listen.stats()}}, TypeError, "a listener"),
        ({"functions": {"a\0b": print}}, ValueError, "null character"),
        ({"dead_line": 1}, TypeError, "dead_line"),
    ],
)
def test_bad_options(programs, said, error, told):
    program = postern.load(programs / "plain.mlir")
    with pytest.raises(error, match=told):
        program.with_options(**said)(X)


def test_what_a_run_had_goes_with_it(programs):
    class Hears:
        def __call__(self, v):
            pass

    hears = Hears()
    gone = weakref.ref(hears)
    program = postern.load(programs / "hooks.mlir").with_options(
        hooks={"sum": hears, "product": hears}
    )
    for _ in range(3):
        program(X)
    with pytest.raises(postern.Error):  # C takes nothing of a run that does not start
        program(np.zeros(7, np.float32))
    del hears, program
    for _ in range(2000):
        gc.collect()
        postern._postern.lent_count()
        if gone() is None:
            break
        time.sleep(0.01)
    assert gone() is None


def test_results_have_names():
    root = pathlib.Path(__file__).parents[3]
    program = postern.load(root / "tests" / "data" / "stablehlo" / "trees.jax")
    for results in (program(X, X, X, X[:2]), program.start(X, X, X, X[:2]).result(10)):
        assert np.array_equal(results["result['sum']"], 2 * X)
        assert results["result['sum']"] is results[-1] and results[:1] == [results[0]]
        with pytest.raises(KeyError, match="no result .*sum.*; it has"):
            results["sum"]
    assert program.run(X, X, X, X[:2])["result['sum']"].shape == (3,)
    assert list(pickle.loads(pickle.dumps(results))["result['sum']"]) == [2, 4, 6]
