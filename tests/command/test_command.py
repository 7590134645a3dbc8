"""The command as a user runs it.
Needs POSTERN_COMMAND, and SAVE_PROGRAMS: the program that writes what is run here.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest

TESTS = pathlib.Path(__file__).parent.parent
DATA = TESTS / "data" / "stablehlo"
# The version stands in one place; so many parts of it are told.
VERSION = re.search(
    r"VERSION (\d+\.\d+)", (TESTS.parent / "CMakeLists.txt").read_text().split("project(")[1]
).group(1)


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    subprocess.run([os.environ["SAVE_PROGRAMS"], str(folder)], check=True)
    return folder


def postern(*arguments, code=0, env=None, **more):
    done = subprocess.run(
        [os.environ["POSTERN_COMMAND"], *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **(env or {})},
        **more,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "terminate" not in done.stderr
    return done.stdout + done.stderr


def npy_with_header(shape, data=b""):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}".encode()
    return b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header + data


def test_long_header(programs, tmp_path):
    (tmp_path / "x.npy").write_bytes(
        npy_with_header(" " * 600000 + "3,", np.float32([1, 2, 3]).tobytes())
    )
    assert "[3, 5, 7]" in postern("run", programs / "plain.mlir", tmp_path / "x.npy").replace(
        "3. 5. 7.", "3, 5, 7"
    )


@pytest.fixture
def worker(tmp_path):
    """A process that serves a function: Python code over `operands`, `attributes`,
    which sets `results`.
    """

    def write(code, name="worker.py"):
        path = tmp_path / name
        path.write_text(
            f"""
import io, json, os, sys
import numpy as np
attributes = json.loads(os.environ["POSTERN_ATTRIBUTES"])
class Pipe:  # NumPy wants to seek in files
    read = staticmethod(sys.stdin.buffer.read)
    write = staticmethod(sys.stdout.buffer.write)
def take():
    try:
        return np.lib.format.read_array(Pipe)
    except ValueError:
        sys.exit(0)
def give(array):
    np.lib.format.write_array(Pipe, np.asarray(array))
    sys.stdout.buffer.flush()
while True:
{''.join('    ' + line + chr(10) for line in code.splitlines())}
"""
        )
        return f"{sys.executable} {path}"

    return write


SCALE = 'give(take() * np.float32(float(attributes["factor"]["double"])))'


def test_help_teaches():
    for arguments in (["--help"], ["run", "--help"], ["show", "--help"], ["doctor", "--help"]):
        assert "Usage" in postern(*arguments)
    assert "Exit codes" in postern("--help") and "Example" in postern("run", "--help")
    assert postern("--version").startswith(f"postern {VERSION}\n")
    assert "required" in postern(code=2)
    assert "--nothing" in postern("run", "x", "--nothing", code=2)


def test_numbers_run_a_program(programs):
    assert postern("run", programs / "plain.mlir", "[1, 2.5, 3]") == "f32[3] [3. 6. 7.]\n"


def test_files_in_and_out(programs, tmp_path):
    np.save(tmp_path / "x.npy", np.float32([1, 2, 3]))
    np.savez_compressed(tmp_path / "x.npz", x=np.float32([4, 5, 6]))
    postern(
        "run", programs / "plain.mlir", tmp_path / "x.npy", "--out", tmp_path / "new" / "results"
    )
    np.testing.assert_array_equal(
        np.load(tmp_path / "new" / "results" / "out0.npy"), np.float32([3, 5, 7])
    )
    assert postern("run", programs / "plain.mlir", tmp_path / "x.npz") == "f32[3] [ 9. 11. 13.]\n"
    answer = json.loads(
        postern("run", programs / "plain.mlir", "[1,2,3]", "--json", "--time", "--repeat", 3)
    )
    assert (
        answer["results"] == [{"type": "f32[3]", "value": [3.0, 5.0, 7.0]}]
        and answer["median_ms"] <= answer["first_ms"]
    )
    assert "median of 3 runs" in postern(
        "run", programs / "plain.mlir", "[1,2,3]", "--time", "--repeat", 3
    )


@pytest.mark.parametrize(
    "inputs, code, told",
    [
        ([], 2, "takes 1 inputs (f32[3]), 0 came"),
        (["[1, 2, 3]", "4"], 2, "'4' is one too many"),
        (["[1, 2]"], 2, "input 0 must be f32[3], got f32[2]"),
        (["[[1], [2, 3]]"], 2, "different lengths"),
        (["[1, [2]]"], 2, "no array"),
        (["what"], 2, "neither a .npy or .npz file nor numbers"),
        (["missing.npy"], 3, "missing.npy: No such file"),
        (["damaged.npy"], 3, "damaged.npy: "),
        (["short.npy"], 3, "short.npy: "),
        (["text.npz"], 3, "text.npz: "),
        (["doubles.npy"], 2, "input 0 must be f32[3], got f64[3]"),
        (["strings.npy"], 3, "dtype '<U1' cannot be read"),
        (["columns.npy"], 3, "column order"),
        (["digits.npy"], 3, "its header describes no array"),
        (["deep.npy"], 3, "its header describes no array"),
        (["[" * 60_000], 2, "more than 64 lists in each other"),
        (["[" * 60_000 + "1" + "]" * 60_000], 2, "more than 64 lists in each other"),
        (["what" * 10_000], 2, "'whatwhat"),
    ],
)
def test_wrong_inputs(programs, tmp_path, inputs, code, told):
    (tmp_path / "damaged.npy").write_text("\x93NUMP?" * 20)
    (tmp_path / "text.npz").write_text("text")
    np.save(tmp_path / "doubles.npy", np.float64([1, 2, 3]))
    np.save(tmp_path / "strings.npy", np.array(["a", "b"]))
    np.save(tmp_path / "columns.npy", np.asfortranarray(np.zeros((2, 3), np.float32)))
    for name, shape in ("digits", "9" * 60000), ("deep", "(" * 60000):
        (tmp_path / f"{name}.npy").write_bytes(npy_with_header(shape))
    (tmp_path / "short.npy").write_bytes((tmp_path / "doubles.npy").read_bytes()[:-5])
    assert told in postern("run", programs / "plain.mlir", *inputs, code=code, cwd=tmp_path)


@pytest.mark.parametrize(
    "dtype, numbers, told",
    [
        ("ui8", "[0, 255]", "u8[2] [  0 255]"),
        ("ui8", "[300, 0]", "has 300, which no u8 is; the program takes u8[2]"),
        ("ui8", "[0, -1]", "has -1, which no u8 is"),
        ("i8", "[-128, 127]", "s8[2] [-128  127]"),
        ("i8", "[-129, 0]", "has -129, which no s8 is"),
        ("i32", "[5000000000, 0]", "has 5000000000, which no s32 is"),
        ("i32", "[18446744073709551615, 0]", "has 18446744073709551615, which no s32 is"),
        ("i32", "[2.5, 0]", "has 2.5, which no s32 is"),
        ("i64", "[-9223372036854775808, -0]", "s64[2] [-9223372036854775808                    0]"),
        ("i64", "[9223372036854775808, 0]", "has 9223372036854775808, which no s64 is"),
        (
            "ui64",
            "[18446744073709551615, true]",
            "u64[2] [18446744073709551615                    1]",
        ),
        ("ui64", "[18446744073709551616, 0]", "which no u64 is"),
        ("i1", "[1, false]", "pred[2] [ true false]"),
        ("i1", "[2, 0]", "has 2, which no pred is"),
    ],
)
def test_numbers_must_fit(tmp_path, dtype, numbers, told):
    (tmp_path / "same.mlir").write_text(
        f"func.func @main(%x: tensor<2x{dtype}>) -> tensor<2x{dtype}> "
        f"{{ return %x : tensor<2x{dtype}> }}"
    )
    assert told in postern(
        "run", tmp_path / "same.mlir", numbers, code=2 if "which no" in told else 0
    )


@pytest.mark.parametrize(
    "dtype, numbers, value",
    [
        ("f64", [1 / 3, -0.0, 5e-324, 1e300], None),
        ("f32", [0.1, 16777216, -1.5, 0.25], [0.1, 16777216.0, -1.5, 0.25]),
        ("bf16", [0.5, -2, 0, 1], [0.5, -2.0, 0.0, 1.0]),
        ("f64", [[[0.1] * 40] * 30] * 2, None),
        ("i64", [2**63 - 1, -(2**63)], None),
        ("ui64", [2**64 - 1, 0], None),
        ("i1", [True, False], None),
        ("f32", 0.25, None),
        ("f32", [], None),
    ],
)
def test_json_has_whole_numbers(tmp_path, dtype, numbers, value):
    dims = "".join(f"{d}x" for d in np.shape(numbers))
    (tmp_path / "same.mlir").write_text(
        f"func.func @main(%x: tensor<{dims}{dtype}>) -> tensor<{dims}{dtype}> "
        f"{{ return %x : tensor<{dims}{dtype}> }}"
    )
    told = postern("run", tmp_path / "same.mlir", json.dumps(numbers), "--json")
    (result,) = json.loads(told)["results"]
    assert repr(result["value"]) == repr(numbers if value is None else value)  # -0.0 and 0.0


def test_json_of_what_json_lacks(tmp_path):
    np.save(tmp_path / "x.npy", np.array([np.nan, np.inf, -np.inf]))
    np.save(tmp_path / "z.npy", np.array(1.5 - 2j))
    (tmp_path / "same.mlir").write_text(
        "func.func @main(%x: tensor<3xf64>, %z: tensor<complex<f64>>) "
        "-> (tensor<3xf64>, tensor<complex<f64>>) "
        "{ return %x, %z : tensor<3xf64>, tensor<complex<f64>> }"
    )
    told = postern("run", tmp_path / "same.mlir", tmp_path / "x.npy", tmp_path / "z.npy", "--json")
    assert [r["value"] for r in json.loads(told)["results"]] == [
        ["NaN", "Infinity", "-Infinity"],
        [1.5, -2.0],
    ]


def test_wrong_programs(programs, tmp_path):
    assert "No such file" in postern("run", "/no/such/program", code=3)
    (tmp_path / "text").write_text("hello")
    assert "neither a saved program nor StableHLO" in postern("show", tmp_path / "text", code=3)
    (tmp_path / "cut").write_text((programs / "plain.mlir").read_text()[:-20])
    assert "checksum" in postern("run", tmp_path / "cut", code=3)


def test_inputs_by_name(tmp_path):
    """Those of a file of JAX, as it writes their paths; the others in order."""
    trees = DATA / "trees.jax"
    text = postern("show", trees)
    assert "args[0]['x']: f32[3]" in text and "result['sum']: f32[3]" in text
    assert json.loads(postern("show", trees, "--json"))["input_names"][0] == "args[0]['scale']"
    named = tmp_path / "named.npz"
    three = np.array([1, 2, 3], np.float32)
    np.savez(named, **{"args[0]['x']": three, "args[0]['scale']": 2 * three})
    results = postern("run", trees, "[10, 20, 30]", "[0, 0]", "--args", named)
    assert results == "f32[3] [ 2.  8. 18.]\nf32[3] [10. 20. 30.]\nf32[3] [11. 22. 33.]\n"
    told = json.loads(
        postern("run", trees, "[10, 20, 30]", "[0, 0]", "--args", named, "--json")
    )
    assert told["results"][2]["name"] == "result['sum']"
    assert "4 inputs" in postern("run", trees, "[1, 2, 3]", "--args", named, code=2)
    np.savez(named, **{"args[0]['y']": three})
    text = postern("run", trees, "--args", named, code=2)
    assert "no input 'args[0]['y']'" in text and "args[1][1]" in text
    np.savez(named, **{"args[0]['x']": three[:2]})
    text = postern("run", trees, "[1,2,3]", "[1,2,3]", "[0,0]", "--args", named, code=2)
    assert "input 1, args[0]['x'], must be f32[3], got f32[2]" in text
    assert "no .npz or .safetensors" in postern("run", trees, "--args", "x.txt", code=2)


def test_an_entry_by_name(tmp_path):
    module = tmp_path / "two.mlir"
    module.write_text(
        "func.func @add(%x: tensor<f32>) -> tensor<f32> {\n"
        "  %0 = stablehlo.add %x, %x : tensor<f32>\n  return %0 : tensor<f32>\n}\n"
        "func.func @square(%x: tensor<f32>) -> tensor<f32> {\n"
        "  %0 = stablehlo.multiply %x, %x : tensor<f32>\n  return %0 : tensor<f32>\n}\n"
    )
    assert postern("run", module, "3", "--entry", "square") == "f32[] 9\n"
    assert "(x: f32[])" in postern("show", module, "--entry", "add")
    assert "@add, @square" in postern("run", module, "3", code=3)
    assert "no function @sub" in postern("run", module, "3", "--entry", "sub", code=3)


def test_check_compares(tmp_path):
    trees = DATA / "trees.jax"
    given = ["[2,4,6]", "[1,2,3]", "[10,20,30]", "[0,0]"]
    right = {
        "result['parts'][0]": np.array([2, 8, 18], np.float32),
        "result['parts'][1][0]": np.array([10, 20, 30], np.float32),
        "result['sum']": np.array([11, 22, 33.0]),
    }
    wanted = tmp_path / "wanted.npz"
    np.savez(wanted, **dict(reversed(right.items())))  # by name, whatever their order
    text = postern("check", trees, *given, "--expect", wanted)
    assert "result['sum']: f32[3], off by 0\n" in text
    np.savez(wanted, *right.values())  # in order
    postern("check", trees, *given, "--expect", wanted)
    right["result['sum']"][1] += 0.011
    np.savez(wanted, **right)
    text = postern("check", trees, *given, "--expect", wanted, code=1)
    assert "result['sum']: f32[3], off by 0.0005, more than 1e-06\n" in text
    postern("check", trees, *given, "--expect", wanted, "--tolerance", "1e-3")
    right["result['sum']"][1] = np.nan
    np.savez(wanted, **right)
    assert "off by inf" in postern("check", trees, *given, "--expect", wanted, code=1)
    right["result['sum']"] = right["result['sum']"][:2]
    np.savez(wanted, **right)
    text = postern("check", trees, *given, "--expect", wanted, code=1)
    assert "result['sum']: f32[3], expected f64[2]\n" in text
    np.savez(wanted, right["result['sum']"])
    assert "1 arrays, the program 3 results" in postern(
        "check", trees, *given, "--expect", wanted, code=2
    )


def test_show(programs):
    text = postern("show", programs / "calls.mlir")
    assert "inputs     (f32[3])" in text and "outputs    (f32[])" in text
    assert (
        "call       scale -> demo.scale {factor = 3}  (f32[3]) -> (f32[3])  pure, save_programs.cc:"
        in text
    )
    assert "tap        scaled -> demo.log" in text and "functions  demo.log, demo.scale" in text
    told = json.loads(postern("show", programs / "calls.mlir", "--json"))
    assert told["functions"] == ["demo.log", "demo.scale"] and [
        s["kind"] for s in told["sites"]
    ] == ["call", "tap"]


def test_functions_that_nobody_serves_are_named(programs):
    text = postern("run", programs / "calls.mlir", "[1,2,3]", code=2)
    assert (
        "demo.scale (call 'scale' at save_programs.cc:" in text
        and "--function" in text
        and "--tap" in text
    )


def test_processes_serve_functions(programs, worker):
    scale = ("--function", f"demo.scale={worker(SCALE)}")

    def run(*options, program="calls.mlir", **expected):
        return postern("run", programs / program, "[1,2,3]", *options, **expected)

    assert run(*scale, "--tap", "all") == "scaled: [3. 6. 9.]\nf32[] 18\n"
    assert run(*scale, "--tap", "scaled", "--repeat", 3).count("scaled") == 3
    assert "no tap 'other'; it has scaled" in run("--tap", "other", code=2)
    log = worker("print(take().sum(), file=sys.stderr)", "log.py")
    assert "18.0" in run(*scale, "--function", f"demo.log={log}")
    assert "f32[3] " in run(*scale, program="loop.mlir")


def test_operations_are_shown_by_patterns(tmp_path):
    arguments = []
    for name, dims in (("x", (2, 3)), ("v", (3, 3)), ("w", (3, 3))):
        arguments.append(tmp_path / f"{name}.npy")
        np.save(arguments[-1], np.sin(np.arange(np.prod(dims), dtype=np.float32)).reshape(dims))

    def run(*options, **expected):
        return postern("run", DATA / "scopes.jax", *arguments, *options, **expected)

    shown = run("--tap", "layer_0/tanh")
    assert shown.startswith("jit(scopes)/layer_0/tanh: [[-0.1345")
    table = run("--tap", "layer_?/tanh", "--tap", "sine", "--stats")
    assert all(f"jit(scopes)/layer_{i}/tanh" in table for i in (0, 1)) and "loop/sin" in table
    told = run("--tap", "sine", "--stats", "--json").splitlines()
    line = json.loads(next(t for t in told if "firings" in t))
    assert line["tap"].endswith("loop/sin") and line["firings"] == 3 and line["nan"] == 0
    assert "no operation of the program matches 'layer_9/*'; there are" in run(
        "--tap", "layer_9/*", code=2
    )
    listed = postern("show", DATA / "scopes.jax", "--operations")
    relu = "jit(scopes)/layer_0/jit(relu)/max  stablehlo.maximum (f32[2,3]), golden_stablehlo:"
    assert relu in listed and "stablehlo.constant" not in listed
    assert "--stats requires --tap" in run("--stats", code=2)


def test_a_tap_is_shown_alone_where_its_function_is_its_own(programs):
    assert postern(
        "run", programs / "two_taps.mlir", "[1,2,3]", "--tap", "a", "--tap", "b"
    ).startswith("a: [1. 2. 3.]\nb: [1. 2. 3.]\n")
    for more in ([], ["--function", "demo.log=cat"]):
        assert (
            "--tap a: the tap 'b' calls 'demo.log' too: show both, with --tap 'b' or all"
            in postern("run", programs / "two_taps.mlir", "[1,2,3]", "--tap", "a", *more, code=2)
        )


def test_what_taps_show_as_json_is_whole(tmp_path, programs):
    x = np.linspace(0, 1, 20_000, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    many = "tensor<20000xf32>"
    mlir = f"func.func @main(%x: {many}) -> {many} {{\n return %x : {many} }}"
    (tmp_path / "same.mlir").write_text(mlir)
    (result,) = json.loads(postern("run", tmp_path / "same.mlir", tmp_path / "x.npy", "--json"))[
        "results"
    ]
    assert np.array_equal(np.float32(result["value"]), x)
    np.save(tmp_path / "big.npy", np.full(100_000, 1 / 3, np.float32))
    told = postern("run", programs / "async.mlir", tmp_path / "big.npy", "--json", "--tap", "all")
    shown, last = (json.loads(line) for line in sorted(told.splitlines(), key=len))
    (seen,) = (shown if "tap" in shown else last)["values"]
    assert seen["type"] == "f32[100000]" and seen["path"] == ""
    assert np.array_equal(np.float32(seen["value"]), np.full(100_000, 1 / 3, np.float32))
    np.save(tmp_path / "three.npy", np.float32([1, np.nan, 1 / 3]))
    taps = ("--tap", "a", "--tap", "b")
    told = postern("run", programs / "two_taps.mlir", tmp_path / "three.npy", "--json", *taps)
    lines = [json.loads(line) for line in told.splitlines()]
    assert [line["tap"] for line in lines if "tap" in line] == ["a", "b"]
    assert [line["values"][0]["value"] for line in lines if "tap" in line] == [
        [1.0, "NaN", 0.33333334]
    ] * 2


def test_hooks_are_listened_to(programs, worker):
    def run(program, x, *options, **expected):
        return postern("run", programs / program, x, *options, **expected)

    assert run("hooks.mlir", "[1,2,3]", "--hook", "all") == (
        "sum: [2. 3. 4.]\nproduct: [4. 6. 8.]\nf32[3] [4. 6. 8.]\n"
    )
    assert "sum: [2. 3. 4.]" in run(
        "hooks.mlir", "[1,2,3]", "--hook", "sum", "--hook", "product", "--repeat", 2
    )
    assert "demo.log (hook 'product'" in run("hooks.mlir", "[1,2,3]", "--hook", "sum", code=2)
    assert "no hook 'tap'; it has product, sum" in run(
        "hooks.mlir", "[1,2,3]", "--hook", "tap", code=2
    )
    assert "it has none" in run("plain.mlir", "[1,2,3]", "--hook", "x", code=2)
    assert "NAME=COMMAND" in run("hooks.mlir", "[1,2,3]", "--hook", "sum=", code=2)
    told = run("step.mlir", "3.5", "--hook", "product", "--json")
    assert json.loads(told.splitlines()[-1]) == {
        "hook": "product",
        "values": [{"path": "", "type": "f32[]", "value": 7.0}],
    }
    log = worker("print('saw', take().sum(), file=sys.stderr)", "log.py")
    assert "saw 7.0" in run("step.mlir", "3.5", "--hook", f"product={log}")
    nested = run("hooks_nested.mlir", "[1,2,3]", "--hook", "step", "--hook", "small")
    assert nested.count("step:") == 4 and nested.count("small:") > 0


def test_large_messages_pass_while_both_sides_write(tmp_path, worker, programs):
    mlir = """func.func @main(%x: tensor<2000000xf32>) -> (tensor<2000000xf32>, tensor<f32>) {
      %0:2 = stablehlo.custom_call @demo.big(%x) : \
(tensor<2000000xf32>) -> (tensor<2000000xf32>, tensor<f32>)
      return %0#0, %0#1 : tensor<2000000xf32>, tensor<f32> }"""
    (tmp_path / "big.mlir").write_text(mlir)
    np.save(tmp_path / "x.npy", np.arange(2000000, dtype=np.float32))
    postern(
        "run",
        tmp_path / "big.mlir",
        tmp_path / "x.npy",
        "--out",
        tmp_path,
        "--function",
        f"demo.big={worker('x = take(); give(x + 1); give(x.max())')}",
    )
    assert (
        np.load(tmp_path / "out0.npy")[-1] == 2000000 and np.load(tmp_path / "out1.npy") == 1999999
    )


@pytest.mark.parametrize(
    "code, told",
    [
        ("sys.exit(3)", "ended with exit code 3"),
        ("take(); sys.exit(0)", "ended with exit code 0"),
        ("os.kill(os.getpid(), 9)", "exit code 137"),
        ("give(take().astype(np.float64))", "must be f32[3], got f64[3]"),
        ("give(take()[:2])", "must be f32[3], got f32[2]"),
        (
            "print('hello, this is no array', flush=True); take(); sys.stdin.read()",
            "this is no .npy array",
        ),
    ],
)
def test_processes_that_fail_end_the_run(programs, worker, code, told):
    text = postern(
        "run",
        programs / "calls.mlir",
        "[1,2,3]",
        "--function",
        f"demo.scale={worker(code)}",
        "--tap",
        "all",
        code=1,
    )
    assert told in text and "call 'scale' at" in text
    assert "exit code 127" in postern(
        "run",
        programs / "calls.mlir",
        "[1,2,3]",
        "--function",
        "demo.scale=/no/such/command",
        "--tap",
        "all",
        code=1,
    )


def test_a_deadline_ends_a_process_that_does_not_answer(programs, worker):
    text = postern(
        "run",
        programs / "calls.mlir",
        "[1,2,3]",
        "--function",
        f"demo.scale={worker('sys.stdin.read(); import time; time.sleep(1); sys.exit()')}",
        "--tap",
        "all",
        "--set",
        "deadline=0.5",
        code=1,
    )
    assert "deadline" in text


def test_a_recording_replaces_the_functions(programs, worker, tmp_path):
    recording, calls = tmp_path / "run.rec", programs / "calls.mlir"
    postern(
        "run",
        calls,
        "[1,2,3]",
        "--function",
        f"demo.scale={worker(SCALE)}",
        "--tap",
        "all",
        "--record",
        recording,
    )
    assert postern("run", calls, "[1,2,3]", "--replay", recording) == "f32[] 18\n"
    assert "call 0 of run 0 has other operands than were recorded" in postern(
        "run", calls, "[1,2,4]", "--replay", recording, code=1
    )
    assert "another program" in postern(
        "run", programs / "plain.mlir", "[1,2,3]", "--replay", recording, code=1
    )
    assert "no recording" in postern("run", calls, "[1,2,3]", "--replay", calls, code=3)
    assert "excludes" in postern(
        "run", calls, "[1,2,3]", "--replay", recording, "--record", recording, code=2
    )


def test_jax_programs_run(worker):
    assert (
        postern(
            "run",
            DATA / "loop.mlir",
            "[0, 1, 2]",
            "--function",
            f"demo.add={worker('give(take() + np.float32(10))')}",
        )
        == "f32[3] [55. 56. 57.]\n"
    )
    assert "f32[] 0.0598507" in postern(
        "run",
        DATA / "network.mlir",
        *(
            json.dumps(np.sin(np.arange(np.prod(s))).reshape(s).tolist())
            for s in ((4, 3), (3, 5), (5,))
        ),
    )


def test_artifacts_run(worker):
    serve = worker("give(take() + np.float32(10))")
    assert (
        postern("run", DATA / "loop.jax", "[0, 1, 2]", "--function", f"demo.add={serve}")
        == "f32[3] [55. 56. 57.]\n"
    )
    assert (
        "call       demo.add -> demo.add  (f32[3]) -> (f32[3])  pure, golden_stablehlo:"
        in postern("show", DATA / "loop.jax")
    )
    assert "f32[-1,3]" in postern("show", DATA / "shapes.jax")
    assert postern("run", DATA / "shapes.jax", "[[1, 2, 3]]") == "f32[1,3] [[2. 4. 6.]]\n"


def test_prints_are_not_results(programs):
    assert postern("run", programs / "prints.mlir", "[1,2,3]") == "sum 6.0\nf32[3] [2. 3. 4.]\n"
    told = postern("run", programs / "prints.mlir", "[1,2,3]", "--json", "--tap", "all")
    assert told.endswith("sum 6.0\n") and json.loads(told.removesuffix("sum 6.0\n"))
    assert "functions  none" in postern("show", programs / "prints.mlir")


def test_settings_and_timeline(programs, tmp_path):
    postern(
        "run",
        programs / "plain.mlir",
        "[1,2,3]",
        "--set",
        "cpu_devices=2",
        "--set",
        f"cache_dir={tmp_path / 'cache'}",
        "--timeline",
        tmp_path / "t.json",
    )
    assert (
        list((tmp_path / "cache").iterdir()) and "traceEvents" in (tmp_path / "t.json").read_text()
    )
    assert "no setting 'speed'" in postern(
        "run", programs / "plain.mlir", "[1,2,3]", "--set", "speed=9", code=2
    )
    assert "is no number" in postern(
        "run", programs / "plain.mlir", "[1,2,3]", "--set", "cpu_devices=many", code=2
    )
    for wrong in (
        "cpu_devices=4294967297",
        "cpu_devices=",
        "max_reentry=1e3",
        "deadline=abc",
        "deadline=",
        "deadline=0",
        "deadline=-1",
        "deadline=1s",
        "deadline=nan",
        "deadline=inf",
        "deadline=1e300",
    ):
        assert wrong.split("=")[0] in postern(
            "run", programs / "plain.mlir", "[1,2,3]", "--set", wrong, code=2
        )
    postern("run", programs / "plain.mlir", "[1,2,3]", "--set", "deadline=1e9")
    assert "NAME=COMMAND" in postern(
        "run", programs / "plain.mlir", "[1,2,3]", "--function", "text", code=2
    )
    assert "no/such" in postern(
        "run", programs / "plain.mlir", "[1,2,3]", "--library", "/no/such.so", code=3
    )


def test_doctor(tmp_path):
    text = postern("doctor")
    assert "self-test  ok" in text and "plug-in    ok" in text and "!!" not in text
    told = json.loads(postern("doctor", "--json"))
    assert told["ok"] and {c["name"] for c in told["checks"]} >= {
        "plug-in",
        "PJRT",
        "devices",
        "calls",
        "self-test",
        "cache",
    }
    text = postern("doctor", code=1, env={"POSTERN_PLUGIN": "/no/such/plugin.so"})
    assert "!!" in text and "POSTERN_PLUGIN" in text
    text = postern("doctor", code=1, env={"POSTERN_CACHE_DIR": "/proc/nowhere"})
    assert "POSTERN_CACHE_DIR" in text


@pytest.mark.parametrize(
    "how, told",
    [("aborts", "was ended by signal 6"), ("ends the process", "ended with exit code 7")],
)
def test_doctor_of_a_plug_in_that_dies(how, told):
    build = pathlib.Path(os.environ["POSTERN_COMMAND"]).parents[1]
    damaged = {
        "POSTERN_PLUGIN": str(build / "tests" / "libraries" / "damaged_plugin.so"),
        "TEST_COMPILE": how,
        "TEST_DOOMED": "module",
    }
    text = postern("doctor", code=1, env=damaged)
    assert f"a process that compiled and ran a program {told}" in text
    assert "PJRT       ok" in text and "cache" in text and "name another" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a folder of another user")
def test_doctor_of_a_folder_of_another_user():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        assert "the folder cannot be written" in postern(
            "doctor", code=1, env={"POSTERN_CACHE_DIR": folder}, user=65534
        )


def timeline(path, process):
    event = (
        '{"name":"psum","cat":"meet","ph":"X","ts":%d,"dur":9.0,"pid":7,"tid":0,'
        '"args":{"device":0,"run":1,"job_run":1,"number":%d,"processes":"0,1"}}'
    )
    path.write_text(
        '{"traceEvents":[\n'
        + "".join(event % (i * 10, i) + ",\n" for i in range(20))
        + '{"name":"left out","ph":"C","ts":0,"pid":7,"args":{"events":0}}\n],\n'
        '"otherData":{"process":%d,"processes":2,"begin":%d,"clock_error":0.0}}\n'
        % (process, process)
    )
    return path


def test_merging_replaces_no_timeline_of_one_process(tmp_path):
    timelines, merged = [
        timeline(tmp_path / f"t{i}.json", i) for i in range(2)
    ], tmp_path / "all.json"
    before = [t.read_text() for t in timelines]
    assert "t0.json: is among the timelines to be merged" in postern(
        "merge-timelines", timelines[0], tmp_path / "." / "t0.json", timelines[1], code=2
    )
    # timeline.*.json, without OUT
    assert "t0.json: is a timeline of one process" in postern("merge-timelines", *timelines, code=2)
    for _ in range(2):
        assert "process 0 waited 0.020 ms for process 1, in 20 collectives" in postern(
            "merge-timelines", merged, *timelines
        )
    assert json.loads(merged.read_text()) and "traceEvents" in postern(
        "merge-timelines", "/dev/stdout", *timelines
    )
    whole = merged.read_text()
    words = [os.environ["POSTERN_COMMAND"], "merge-timelines", merged, *timelines]
    done = subprocess.run(
        words,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
        restore_signals=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3 and "cannot be written: File too large" in done.stderr
    assert merged.read_text() == whole and [t.read_text() for t in timelines] == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["all.json", "t0.json", "t1.json"]


def test_completion():
    script = postern("completion")
    words = subprocess.run(
        [
            "bash",
            "-c",
            f"{script}\nCOMP_WORDS=(postern run --l) COMP_CWORD=2\n"
            "_postern\necho ${COMPREPLY[@]}",
        ],
        capture_output=True,
        text=True,
    )
    assert words.stdout == "--library\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "PROGRAM", "[1,2,3]"],
        ["run", "PROGRAM", "[1,2,3]", "--json"],
        ["show", "PROGRAM"],
        ["doctor"],
        ["completion"],
        ["--help"],
        ["--version"],
    ],
)
def test_output_that_does_not_arrive_is_an_error(programs, arguments):
    words = [
        os.environ["POSTERN_COMMAND"],
        *(str(programs / "plain.mlir") if a == "PROGRAM" else a for a in arguments),
    ]
    read, write = os.pipe()
    os.close(read)
    with open("/dev/full", "w") as full, open(write, "w") as broken:
        for out, why in (
            (full, "No space left"),
            (broken, "Broken pipe"),
            (None, "Bad file descriptor"),
        ):
            done = subprocess.run(
                words,
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
                timeout=300,
                preexec_fn=None if out else lambda: os.close(1),
            )
            assert done.returncode == 3, (why, done)
            # with the reason where the last write was the first to fail
            told = "the output cannot be written"
            assert (told if arguments == ["--version"] else f"{told}: {why}") in done.stderr


def test_files_that_cannot_be_written_are_an_error(programs):
    for option in ("--timeline", "--record"):
        told = postern("run", programs / "plain.mlir", "[1,2,3]", option, "/dev/full", code=3)
        assert "/dev/full" in told


def test_what_is_opened_does_not_become_stdout(programs, tmp_path):
    done = subprocess.run(
        [
            os.environ["POSTERN_COMMAND"],
            "run",
            programs / "plain.mlir",
            "[1,2,3]",
            "--record",
            tmp_path / "r",
        ],
        preexec_fn=lambda: [os.close(i) for i in (0, 1, 2)],
        timeout=300,
    )
    assert done.returncode == 3 and b"f32[3]" not in (tmp_path / "r").read_bytes()[:16]


def lives(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid):
    end = time.monotonic() + 20
    while lives(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not lives(pid)


# Python as a child of sh, which ignores that its stdin ends, and SIGTERM too.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").write(str(os.getpid()))
{}
time.sleep(600)
"""


@pytest.mark.parametrize("plain", [False, True])
def test_a_process_of_a_tap_that_does_not_end_is_ended(programs, tmp_path, plain):
    """Each message is larger than a pipe: it waits where nobody reads, until the deadline."""
    np.save(tmp_path / "x.npy", np.zeros(100_000, np.float32))

    def ended(code):
        script = tmp_path / f"{code}.py"
        script.write_text(STUBBORN.format(code))
        start = time.monotonic()
        told = postern(
            "run",
            programs / "async.mlir",
            tmp_path / "x.npy",
            "--repeat",
            3,
            "--function",
            f"demo.log={'exec ' if plain else ''}{sys.executable} '{script}' '{script}.pid'",
            "--set",
            "deadline=12",
            code=1,
        )
        assert (
            "closed its input" in told
            if plain and "0" in code
            else "not delivered within the deadline of 12 s" in told
        )
        assert time.monotonic() - start < 100
        assert gone(int(pathlib.Path(f"{script}.pid").read_text()))

    codes = ["", "os.close(0)", "os.close(1)", "os.close(0), os.close(1)"]
    with concurrent.futures.ThreadPoolExecutor() as pool:  # they wait more than they do
        list(pool.map(ended, codes))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_processes_end_with_the_command(programs, tmp_path, number):
    (tmp_path / "waits.py").write_text(
        "import os, sys, time\nopen(sys.argv[1], 'w').write(str(os.getpid()))\ntime.sleep(600)"
    )
    process = subprocess.Popen(
        [
            os.environ["POSTERN_COMMAND"],
            "run",
            str(programs / "calls.mlir"),
            "[1,2,3]",
            "--tap",
            "all",
            "--function",
            f"demo.scale={sys.executable} {tmp_path / 'waits.py'} {tmp_path / 'pid'}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    end = time.monotonic() + 30
    while (
        not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        and time.monotonic() < end
    ):
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == -number
    assert gone(int((tmp_path / "pid").read_text()))


def test_what_a_process_left_behind_ends(programs, worker, tmp_path):
    command = f"sleep 777 & echo $! >{tmp_path / 'pid'}; {worker(SCALE)}"
    assert "f32[] 18\n" in postern(
        "run",
        programs / "calls.mlir",
        "[1,2,3]",
        "--tap",
        "all",
        "--function",
        f"demo.scale={command}",
    )
    assert gone(int((tmp_path / "pid").read_text()))


def test_signals_reach_a_process_that_was_started_after_many(programs, worker, tmp_path):
    """Beside one that lives, a tap's process ends at once,
    more often than the command keeps places for.
    """
    np.save(tmp_path / "x.npy", np.zeros(20_000, np.float32))  # larger than a pipe
    log = (
        f"echo >>{tmp_path / 'count'}; [ $(wc -l <{tmp_path / 'count'}) -gt 270 ] || exit 1; "
        f"echo $$ >{tmp_path / 'pid'}; exec sleep 777"
    )
    process = subprocess.Popen(
        [
            os.environ["POSTERN_COMMAND"],
            "run",
            str(programs / "async_loop.mlir"),
            str(tmp_path / "x.npy"),
            "--function",
            f"demo.scale={worker(SCALE)}",
            "--function",
            f"demo.log={log}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    end = time.monotonic() + 60
    while (
        not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        and time.monotonic() < end
    ):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
    assert gone(int((tmp_path / "pid").read_text()))
