"""postern.jax with functions of C++ and C: from a library, from capsules,
and the library's own listeners.
"""

import csv
import ctypes
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import textwrap
import threading

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import postern
import postern.jax as pj

F32 = jax.ShapeDtypeStruct((), jnp.float32)
shard_map = (
    getattr(jax, "shard_map", None)
    or __import__("jax.experimental.shard_map", fromlist=["shard_map"]).shard_map
)
LIBRARY = os.environ["FUNCTIONS"]
postern.load_library(LIBRARY)


def like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def test_a_librarys_functions_have_names():
    assert "cc.twice" in postern.registered()
    assert postern.load_library(LIBRARY) == []  # once
    with pytest.raises(postern.Error, match="no/such.so"):
        postern.load_library("/no/such.so")


def test_a_function_of_cpp():
    x = jnp.arange(3.0)
    assert np.array_equal(jax.jit(lambda x: pj.call("cc.twice", like(x), x) + 1)(x), [1, 3, 5])
    assert jax.jit(lambda x, y: pj.call("cc.sum", F32, x, y))(x, x) == 5
    for effect in ["pure", "unordered", "ordered"]:
        f = jax.jit(
            lambda x: jax.lax.fori_loop(
                0, 10, lambda i, c: pj.call("cc.twice", F32, c, effect=effect), x
            )
        )
        assert f(1.0) == 1024


def test_what_it_throws_and_what_it_cannot_take():
    with pytest.raises(
        postern.CallbackError,
        match=r"call 'cc.fails' at test_jax_native.py:\d+ on device 0: no luck",
    ):
        jax.jit(lambda x: pj.call("cc.fails", F32, x))(1.0).block_until_ready()
    with pytest.raises(postern.Error, match="cc.fails"):
        jax.jit(lambda x: pj.call("cc.fails", F32, x, x))(1.0).block_until_ready()
    with pytest.raises(
        postern.CallbackError, match="no host function is registered under 'cc.nothing'"
    ):
        jax.jit(lambda x: pj.call("cc.nothing", F32, x))(1.0).block_until_ready()


def test_attributes():
    f = jax.jit(lambda x: pj.call("cc.scale", F32, x, attributes={"factor": 2.5, "plus": 1}))
    assert f(2.0) == 7
    seen = []
    postern.register("py.attributes", lambda x, **given: seen.append(given) or x, replace=True)
    given = {"on": True, "text": 'a"b', "ints": [1, 2], "reals": [0.5, 2.0]}
    assert jax.jit(lambda x: pj.call("py.attributes", F32, x, attributes=given))(1.0) == 1
    assert seen == [given]
    for number in (1, 1.0, True, 0.0, -0.0):  # of which some are equal
        pj.call("py.attributes", F32, 1.0, attributes={"n": number})
        assert repr(seen[-1]["n"]) == repr(number)
    with pytest.raises(TypeError, match="attribute bad must be"):
        pj.call("cc.scale", F32, 1.0, attributes={"bad": object()})
    with pytest.raises(TypeError, match="functools.partial"):
        pj.call(lambda x: x, F32, 1.0, attributes=given)


@pytest.mark.parametrize("method", ["sequential", "parallel", "expand_dims", "broadcast_all"])
def test_vmap(method):
    x = jnp.arange(12.0).reshape(3, 4)
    f = jax.jit(jax.vmap(lambda x: pj.call("cc.twice", like(x), x, vmap_method=method)))
    assert np.array_equal(f(x), 2 * x)
    g = jax.jit(
        jax.vmap(
            jax.vmap(lambda x: pj.call("cc.twice", like(x), x, vmap_method=method), in_axes=1),
            in_axes=0,
        )
    )
    y = jnp.arange(24.0).reshape(2, 3, 4)
    assert np.array_equal(g(y), 2 * np.moveaxis(np.asarray(y), 2, 1))


def test_vmap_of_one_operand_in_two():
    x, y = jnp.arange(12.0).reshape(3, 4), jnp.arange(4.0)
    for method in ["sequential", "parallel"]:
        f = jax.jit(
            jax.vmap(
                lambda x, y: pj.call("cc.sum", F32, x, y, vmap_method=method), in_axes=(0, None)
            )
        )
        assert np.array_equal(f(x, y), x @ y)


def test_vmap_in_parallel_takes_threads():
    most = jax.jit(
        lambda: pj.call("cc.most", jax.ShapeDtypeStruct((), jnp.int32), effect="unordered")
    )
    x = jnp.arange(8.0)
    for method, wanted in [("sequential", 1), ("parallel", 8)]:
        most()
        f = jax.jit(jax.vmap(lambda x: pj.call("cc.meet", F32, x, vmap_method=method)))
        assert np.array_equal(f(x), 2 * x)
        assert (int(most()) > 1) == (wanted > 1)


def test_elements_are_told():
    seen = []
    f = jax.jit(
        jax.vmap(
            lambda x: pj.call(
                pj.with_info(lambda v, info: (seen.append(info.element), v)[1]), F32, x
            )
        )
    )
    f(jnp.arange(3.0)).block_until_ready()
    assert seen == [0, 1, 2]


def test_capsules():
    functions = ctypes.CDLL(LIBRARY)
    functions.minus_one.restype = ctypes.c_void_p
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    context = ctypes.pythonapi.PyCapsule_SetContext
    context.argtypes = [ctypes.py_object, ctypes.c_void_p]
    added = ctypes.c_float(10)
    plus = capsule(ctypes.cast(functions.c_plus, ctypes.c_void_p), b"postern.pn_function", None)
    context(plus, ctypes.addressof(added))
    minus = capsule(functions.minus_one(), b"postern.Callee", None)
    assert jax.jit(lambda x: pj.call(plus, F32, pj.call(minus, F32, x)))(1.0) == 10
    postern.register("cc.capsule", plus, replace=True)
    assert jax.jit(lambda x: pj.call("cc.capsule", F32, x))(1.0) == 11
    other = capsule(functions.minus_one(), b"something.else", None)
    with pytest.raises(TypeError, match="callable"):
        pj.call(other, F32, 1.0)


def test_several_devices_and_threads_share_a_program():
    mesh, spec = (
        jax.sharding.Mesh(np.array(jax.devices("cpu")), ("x",)),
        jax.sharding.PartitionSpec("x"),
    )

    def part(x):
        return jax.lax.fori_loop(
            0, 200, lambda i, c: pj.call("cc.twice", like(c), c, effect="unordered") / 2, x
        )

    f = jax.jit(shard_map(part, mesh=mesh, in_specs=spec, out_specs=spec))
    g = jax.jit(part)
    x = jnp.arange(8.0)
    wrong = []

    def work(program):
        for _ in range(20):
            if not np.array_equal(program(x), x):
                wrong.append(program)

    threads = [threading.Thread(target=work, args=(g,)) for _ in range(3)]
    for t in threads:
        t.start()
    work(f)
    for t in threads:
        t.join()
    assert not wrong


def on_grid(f, devices=None):
    """`f` of a number, on a mesh of two by two devices, for each of an array's elements."""
    mesh = jax.sharding.Mesh(np.array(devices or jax.devices("cpu")).reshape(2, 2), ("x", "y"))
    spec = jax.sharding.PartitionSpec("x", "y")
    return jax.jit(
        shard_map(lambda v: f(v[0, 0]).reshape(1, 1), mesh=mesh, in_specs=spec, out_specs=spec)
    )


GRID = np.float32([[0, 1], [10, 11]])  # what cc.part adds on it
ZEROS = jnp.zeros((2, 2))


def test_a_python_function_by_name_is_told_its_place():
    @postern.with_info
    def place(x, info):
        return np.float32(int("".join(map(str, info.coordinates)))) if info.coordinates else x - 1

    postern.register("py.place", place, replace=True)
    ask = lambda x: pj.call("py.place", F32, x)  # noqa: E731
    assert np.array_equal(on_grid(ask)(ZEROS), GRID)
    assert jax.jit(ask)(np.float32(0)) == -1


@pytest.mark.parametrize("effect", ["pure", "unordered", "ordered"])
def test_a_function_of_cpp_is_told_its_part(effect):
    def part(c):
        return pj.call("cc.part", F32, c, effect=effect)

    for devices in (jax.devices("cpu"), jax.devices("cpu")[::-1]):
        f = on_grid(part, devices)
        for _ in range(2):
            assert np.array_equal(f(ZEROS), GRID)
    jitted = jax.jit(part)
    assert jitted(0.0) == -1  # there is no mesh
    assert np.array_equal(on_grid(jitted)(ZEROS), GRID)
    assert np.array_equal(jax.jit(jax.vmap(part, axis_name="v"))(jnp.zeros(2)), [-1, -1])
    spec = jax.sharding.PartitionSpec("x")
    alone = jax.sharding.Mesh(np.array(jax.devices("cpu")[2:3]), ("x",))
    assert (
        jax.jit(shard_map(lambda v: part(v[0])[None], mesh=alone, in_specs=spec, out_specs=spec))(
            jnp.zeros(1)
        )
        == 0
    )
    with pytest.raises(postern.CallbackError, match=r"on device \d: no luck"):
        jax.block_until_ready(on_grid(lambda c: pj.call("cc.fails", F32, c))(ZEROS))


def test_a_part_in_control_flow_and_under_transforms():
    def part(c, **options):
        return pj.call("cc.part", F32, c, **options)

    loop = on_grid(lambda c: jax.lax.fori_loop(0, 3, lambda i, c: part(c, effect="ordered"), c))
    assert np.array_equal(loop(ZEROS), 3 * GRID)
    branch = on_grid(lambda c: jax.lax.cond(c == 0, lambda c: part(c), lambda c: c, c))
    assert np.array_equal(branch(jnp.float32([[0, 5], [0, 5]])), [[0, 5], [10, 5]])
    for method in ("sequential", "parallel"):
        batch = on_grid(
            lambda c: jax.vmap(lambda e: part(c + e, vmap_method=method), axis_name="v")(
                jnp.arange(3.0)
            ).sum()
        )
        assert np.array_equal(batch(ZEROS), 3 * GRID + 3)
    outer = jax.jit(jax.vmap(on_grid(part)))
    assert np.array_equal(outer(jnp.zeros((2, 2, 2))), [GRID, GRID])
    assert np.array_equal(on_grid(jax.checkpoint(part))(ZEROS), GRID)
    assert np.array_equal(on_grid(lambda c: pj.block("cc.part", lambda c: c, c))(ZEROS), GRID)
    assert np.array_equal(
        on_grid(jax.grad(lambda c: pj.block("cc.part", lambda c: 3 * c, c)))(ZEROS),
        np.full((2, 2), 3),
    )


def test_a_tap_of_cpp_is_told_its_part(capfd):
    def told(f, *args):
        jax.block_until_ready(f(*args))
        pj.barrier()
        return sorted(capfd.readouterr().out.splitlines())

    def shown(value, places=("0", "1", "10", "11")):
        return [f"{d} is at {place} with {value}" for d, place in enumerate(places)]

    for options in ({}, {"mode": "async"}, {"ordered": True}, {"every": 1, "mode": "async"}):
        assert told(on_grid(lambda c: pj.tap(c, "cc.show_part", **options)), ZEROS) == shown(0)
    hooked = on_grid(pj.with_hooks(lambda c: pj.hook("here", c + 1), {"here": "cc.show_part"}))
    assert told(hooked, ZEROS) == shown(1)
    seldom = on_grid(lambda c: pj.tap(c, "cc.show_part", every=2))
    assert [told(seldom, ZEROS) for _ in range(3)] == [shown(0), [], shown(0)]  # on each device
    derived = on_grid(jax.grad(lambda c: pj.tap(3 * c, "cc.show_part", derivatives=True)))
    assert told(derived, ZEROS) == sorted(shown(0) + shown(1))
    for mode in ("sync", "async"):
        pmapped = jax.pmap(lambda c: pj.tap(c, "cc.show_part", mode=mode), axis_name="i")
        assert told(pmapped, jnp.zeros(4)) == shown(0, "0123")
    # an axis without a name
    assert told(jax.pmap(lambda c: pj.tap(c, "cc.show_part")), jnp.zeros(4)) == shown(0, "0123")


def test_a_part_where_some_axes_are_jaxs_own():
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")).reshape(2, 2), ("x", "y"))
    spec = jax.sharding.PartitionSpec

    def part(v):
        return pj.call("cc.part", F32, v.ravel()[0]).reshape(v.shape)

    rows = shard_map(part, mesh=mesh, in_specs=spec("x"), out_specs=spec("x"), axis_names={"x"})
    assert np.array_equal(jax.jit(rows)(jnp.zeros((2, 1))), [[0], [1]])

    def within(v):
        return shard_map(
            part, in_specs=spec(None, "y"), out_specs=spec(None, "y"), axis_names={"y"}
        )(v)

    nested = shard_map(within, mesh=mesh, in_specs=spec("x"), out_specs=spec("x"), axis_names={"x"})
    assert np.array_equal(jax.jit(nested)(ZEROS), GRID)


def test_calls_that_say_a_mesh_themselves():
    x, position = jnp.float32(1), jnp.uint32
    # XLA knows the handler from here on.
    assert jax.jit(lambda x: pj.call("cc.twice", like(x), x))(x) == 2

    def call(axes):
        return jax.jit(
            lambda *given: jax.ffi.ffi_call("postern_guest", F32)(
                *given, function="cc.part", kind="call", axes=axes
            )
        )

    assert call("2 x\n3 y")(x, position(5)) == 1 + 12
    for axes, given, said in [
        ("2 x", (x,), "no position on a mesh"),
        ("2 x", (x, x), "no position on a mesh"),
        ("2 x", (), "no position"),
        ("2 x", (x, position(2)), "at 2, which is not on its mesh"),
        ("2 x", (x, jnp.int32(0)), "no position on a mesh"),
        ("x", (x, position(0)), "'x' is no axis of a mesh"),
        ("0 x", (x, position(0)), "no axis"),
    ]:
        with pytest.raises(postern.Error, match=said):
            call(axes)(*given).block_until_ready()
    written = jax.export.export(call("2 x"))(x, position(0)).mlir_module_serialized
    with pytest.raises(postern.Error, match="grid of 2 devices, 1 were given"):
        postern.load_text(written)


def test_a_function_that_is_replaced_and_gone():
    f = jax.jit(lambda x: pj.call("py.changes", F32, x))
    with pytest.raises(postern.CallbackError, match="'py.changes'"):
        f(1.0).block_until_ready()
    postern.register("py.changes", lambda x: x + 1)
    assert f(1.0) == 2 and f(1.0) == 2
    postern.register("py.changes", lambda x: x + 2, replace=True)
    assert f(1.0) == 3
    postern.register("py.other", abs, replace=True)  # which changes nothing for the program
    assert f(1.0) == 3
    postern.unregister("py.changes")
    with pytest.raises(postern.CallbackError, match="'py.changes'"):
        f(1.0).block_until_ready()


def test_listeners(tmp_path, capfd):
    stats, histogram = pj.listen.stats(), pj.listen.histogram(bins=4)
    rows = pj.listen.csv(tmp_path / "loss.csv")

    @jax.jit
    def train(x):
        def step(i, c):
            pj.tap({"loss": c, "step": i}, stats, name="train")
            pj.tap((i, {"loss": c}), rows, name="rows", ordered=True)
            pj.tap(c, histogram, mode="async")
            pj.tap(i, pj.listen.progress(3, per_second=1e9), ordered=True)
            return c * 2

        return jax.lax.fori_loop(0, 3, step, x)

    assert train(1.0) == 8
    pj.barrier()
    series = {s["path"]: s for s in stats.series()}
    assert series[".loss"]["firings"] == 3 and series[".loss"]["all"]["max"] == 4
    assert "train" in stats.table()
    assert sum(histogram.counts()[0]["bins"]) == 3
    assert histogram.merged() == histogram.counts()  # of one process
    assert stats.merged() == [{**s, "device": -1} for s in stats.series()]
    with open(tmp_path / "loss.csv") as file:
        read = list(csv.DictReader(file))
    assert [row["step"] for row in read] == ["0", "1", "2"]
    assert [float(v) for row in read for k, v in row.items() if "loss" in k] == [1, 2, 4]
    assert "3/3" in capfd.readouterr().err
    with pytest.raises(postern.CallbackError, match="nan"):
        jax.jit(lambda x: pj.tap(jnp.log(x - 1), pj.listen.first_non_finite()))(
            0.0
        ).block_until_ready()
        pj.barrier()
    with pytest.raises(postern.Error):
        pj.listen.csv(tmp_path)  # a folder
    with pytest.raises(ValueError, match="on_error"):
        pj.listen.csv(tmp_path / "x.csv", on_error="shrug")


def test_listeners_that_write_files(tmp_path):
    record, lines = (
        pj.listen.record(tmp_path / "kept.npz"),
        pj.listen.jsonl(tmp_path / "loss.jsonl"),
    )
    board = pj.listen.tensorboard(tmp_path / "board")
    png = pj.listen.png(tmp_path / "w-{step}.png")

    @jax.jit
    def train(x):
        def step(i, c):
            pj.tap((i, {"loss": c}), lines, name="train", ordered=True)
            pj.tap((i, {"loss": c}), board, name="train", mode="async")
            pj.tap({"w": jnp.stack([c, -c])}, record, name="kept", ordered=True)
            pj.tap(jnp.full((2, 3), c), png, name="image", ordered=True)
            pj.tap(jnp.full((2, 3), c), pj.listen.images(), name="shown", ordered=True)
            return c * 2

        return jax.lax.fori_loop(0, 3, step, x)

    assert train(1.0) == 8
    pj.barrier()
    record.close()
    with np.load(tmp_path / "kept.npz") as kept:
        (name,) = kept.files
        assert "kept" in name and "w" in name
        assert np.array_equal(kept[name], [[1, -1], [2, -2], [4, -4]])
    images = [tmp_path / f"w-{step}.png" for step in range(3)]
    assert all(image.read_bytes().startswith(b"\x89PNG") for image in images)
    pj.listen.show_text("note", "three steps")
    pj.listen.report(tmp_path / "report.html", title="a report of Python's")
    page = (tmp_path / "report.html").read_text()
    assert "three steps" in page and "a report of Python's" in page
    with pytest.raises(postern.Error):
        pj.listen.report(tmp_path / "none" / "report.html")
    rows = [json.loads(line) for line in (tmp_path / "loss.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert [value for row in rows for key, value in flat(row) if "loss" in key] == [1, 2, 4]
    (events,) = (tmp_path / "board").iterdir()
    assert events.name.startswith("events.out.tfevents") and events.read_bytes().count(b"loss") == 3


def flat(row, before=""):
    """Its values, with the keys on the way to them."""
    for key, value in row.items():
        yield from flat(value, before + key + ".") if isinstance(value, dict) else [
            (before + key, value)
        ]


def test_a_step_that_a_library_overrides():
    def cube(x):
        return x * x * x - 1  # to tell who computed it

    step = jax.jit(lambda x: pj.block("cc.cube", cube, x))
    assert step(2.0) == 8
    assert jax.grad(lambda x: pj.block("cc.cube", cube, x))(2.0) == 12.5  # the library's own
    assert np.array_equal(jax.vmap(step)(jnp.arange(3.0)), [0, 1, 8])
    assert jax.jit(lambda x: pj.block("cc.no_cube", cube, x))(2.0) == 7
    with pytest.raises(
        postern.CallbackError,
        match=r"call 'cc.fails' at test_jax_native.py:\d+ on device 0: no luck",
    ):
        jax.jit(lambda x: pj.block("cc.fails", cube, x))(2.0).block_until_ready()
    assert pj.block_path("cc.cube") == "C++ function 'cc.cube', derivative 'cc.cube.vjp'"
    assert pj.block_path("cc.no_cube") == "default"


def test_an_exported_program_runs_in_both_homes(tmp_path):
    seen = []
    postern.register("home.log", lambda v: seen.append(float(v)), replace=True)

    def program(x):
        y = jax.vmap(
            lambda v: pj.call(
                "cc.scale", F32, v, attributes={"factor": 2.5, "plus": 1}, vmap_method="parallel"
            )
        )(x)
        pj.tap(y.sum(), "home.log", name="sum", ordered=True)
        pj.tap(y[0], "home.log", mode="async", every=2)
        z = jax.lax.fori_loop(
            0, 3, lambda i, c: pj.call("cc.twice", like(c), c, effect="ordered"), y
        )
        return pj.call("cc.sum", F32, z, z)

    exported = jax.export.export(jax.jit(program))(jax.ShapeDtypeStruct((2,), jnp.float32))
    x = jnp.float32([1, 2])
    assert exported.call(x) == 64 * (3.5**2 + 7**2)
    loaded = postern.load_text(exported.mlir_module_serialized)
    assert loaded.functions == ["cc.scale", "cc.sum", "cc.twice", "home.log"]
    for _ in range(2):
        assert loaded(np.float32([1, 2]))[0] == 64 * (3.5**2 + 7**2)
    postern.barrier()
    pj.barrier()
    # every second one of the asynchronous taps, in each home
    assert sorted(seen) == [3.5] * 2 + [10.5] * 3
    text = postern.load_text(exported.mlir_module())
    assert text(np.float32([1, 2]))[0] == 64 * (3.5**2 + 7**2)
    postern.barrier()

    # And in a process that has no Python, by pn::load.
    calls = jax.jit(lambda x: pj.call("cc.sum", F32, x, x) + pj.call("cc.twice", like(x), x)[0])
    file = tmp_path / "program.mlir"
    file.write_bytes(
        jax.export.export(calls)(jax.ShapeDtypeStruct((2,), jnp.float32)).mlir_module_serialized
    )
    command = [
        os.environ["COMMAND"],
        "run",
        file,
        "[1, 2]",
        "--library",
        os.environ["FUNCTIONS"],
        "--out",
        tmp_path,
    ]
    subprocess.run(command, check=True, timeout=300)
    assert np.load(tmp_path / "out0.npy") == 5 + 2

    # There ordered calls and taps are made too.
    def tapped(x):
        y = jax.lax.fori_loop(0, 3, lambda i, c: pj.call("cc.twice", F32, c, effect="ordered"), x)
        pj.tap(y, "cc.told", ordered=True)
        pj.tap(y, "cc.told", mode="async")
        return y

    ordered = tmp_path / "tapped.mlir"
    ordered.write_bytes(jax.export.export(jax.jit(tapped))(F32).mlir_module_serialized)
    command = [
        os.environ["COMMAND"],
        "run",
        ordered,
        "1.5",
        "--library",
        os.environ["FUNCTIONS"],
        "--out",
        tmp_path,
    ]
    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    assert np.load(tmp_path / "out0.npy") == 12
    assert done.stdout.count("told 12\n") == 2, done

    failing = jax.export.export(jax.jit(lambda x: pj.call("cc.fails", F32, x, name="luck")))(F32)
    with pytest.raises(
        postern.CallbackError, match=r"call 'luck' at test_jax_native.py:\d+ on device 0: no luck"
    ):
        postern.load_text(failing.mlir_module_serialized)(np.float32(1))
    # Or in one where JAX has lowered no call;
    # jax.export's own files need a package that may not be here.
    fresh = """
        import dataclasses, pathlib, sys, jax, jax.export, numpy as np, postern, postern.jax
        postern.load_library(sys.argv[1])
        x = np.float32([1, 2])
        like = jax.export.export(jax.jit(lambda x: x.sum()))(x)
        print(dataclasses.replace(\
like, mlir_module_serialized=pathlib.Path(sys.argv[2]).read_bytes()).call(x))
    """
    told = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(fresh), LIBRARY, file],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert told.stdout == "7.0\n", told.stderr
    if importlib.util.find_spec("flatbuffers"):
        artifact = jax.export.export(calls)(jax.ShapeDtypeStruct((2,), jnp.float32)).serialize()
        assert jax.export.deserialize(artifact).call(jnp.float32([1, 2])) == 7
        assert postern.load_text(bytes(artifact))(np.float32([1, 2]))[0] == 7
    # Within shard_map they know their part, in both homes.
    spec = jax.sharding.PartitionSpec("x")
    part = lambda v: pj.call("cc.part", F32, v[0], effect="ordered")[None]  # noqa: E731
    for count, parts in ((1, [0]), (4, [0, 1, 2, 3])):
        mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:count]), ("x",))
        f = jax.jit(shard_map(part, mesh=mesh, in_specs=spec, out_specs=spec))
        exported = jax.export.export(f)(jax.ShapeDtypeStruct((count,), jnp.float32))
        spread = jax.device_put(jnp.zeros(count), jax.sharding.NamedSharding(mesh, spec))
        assert np.array_equal(jax.jit(exported.call)(spread), parts)
        if count == 1:
            assert np.array_equal(
                postern.load_text(exported.mlir_module_serialized)(np.zeros(1, np.float32))[0], [0]
            )
        else:
            with pytest.raises(postern.Error, match="devices"):
                postern.load_text(exported.mlir_module_serialized)
    unnamed = jax.export.export(jax.jit(lambda x: pj.call(lambda v: v, F32, x)))(F32)
    assert unnamed.call(1.0) == 1  # while this process has the function


def test_an_override_without_a_derivative_has_the_defaults():
    def twice(x):
        return 2 * x

    f = lambda x: pj.block("cc.twice", twice, x)  # noqa: E731
    assert np.array_equal(f(jnp.arange(2.0)), [0, 2])
    assert np.array_equal(jax.jvp(f, (jnp.arange(2.0),), (jnp.ones(2),))[1], [2, 2])
    assert np.array_equal(jax.grad(lambda x: f(x).sum())(jnp.arange(2.0)), [2, 2])


def closed_over(name):
    """A step whose default closes over what is traced."""
    return lambda w: pj.block(name, lambda x: w * w * x, jnp.float32(3))


@pytest.mark.parametrize(
    "derived",
    [
        jax.grad,
        lambda f: jax.jit(jax.grad(f)),
        lambda f: jax.grad(jax.jit(f)),
        lambda f: lambda w: jax.jvp(f, (w,), (1.0,))[1],
        lambda f: lambda w: jax.vmap(jax.grad(f))(jnp.full(2, w))[1],
        lambda f: lambda w: jax.vmap(jax.jit(jax.grad(f)))(jnp.full(2, w))[0],
    ],
)
def test_a_default_that_closes_over_traced_values_has_its_derivative(derived):
    f = closed_over("cc.twice")
    assert f(2.0) == 6  # the library's
    assert derived(f)(2.0) == 12


def test_second_derivatives_of_a_default_that_closes_over_traced_values():
    assert jax.hessian(closed_over("cc.twice"))(2.0) == 6
    also = lambda w: pj.block("cc.twice", lambda x: w * x, w)  # noqa: E731
    assert jax.grad(also)(3.0) == jax.grad(jax.jit(also))(3.0) == 6


def test_a_default_that_closes_over_what_has_no_derivative():
    def f(w, n, key):
        return pj.block("cc.twice", lambda x: n * x + jax.random.uniform(key), w)

    given = (2.0, 3, jax.random.key(0))
    assert jax.grad(f)(*given) == jax.grad(jax.jit(f))(*given) == 3

    @jax.jit
    def held(w):
        ref = jax.new_ref(w)
        return pj.block("cc.twice", lambda x: ref[...] * x, jnp.float32(3))

    assert held(2.0) == 6


def test_a_default_that_is_one_function_and_closes_over_other_values():
    class Layer:
        def default(self, x):
            return self.w * x

    layer = Layer()

    def f(w):
        layer.w = w
        return pj.block("cc.twice", layer.default, jnp.float32(3))

    assert [jax.grad(f)(w) for w in (2.0, 3.0)] == [3, 3]
    assert jax.jit(jax.grad(f))(2.0) == 3


def test_a_librarys_derivative_knows_nothing_of_what_is_closed_over():
    f = closed_over("cc.cube")
    for act in (jax.grad(f), jax.grad(jax.jit(f)), lambda w: jax.jvp(f, (w,), (1.0,))):
        with pytest.raises(ValueError, match="'cc.cube' closes over .* 'cc.cube.vjp' knows noth"):
            act(2.0)
    assert f(2.0) == jax.jit(f)(2.0) == 27  # where nobody asks for it
    g = lambda x, w: pj.block("cc.cube", lambda x: w * x, x)  # noqa: E731
    assert jax.grad(g)(2.0, 5.0) == jax.grad(jax.jit(g))(2.0, 5.0) == 12.5
    assert jax.grad(g)(2.0, 5) == jax.grad(jax.jit(g))(2.0, 5) == 12.5
    # In a step whose derivative is its default's, what does not move is not asked for.
    k = lambda x, w: pj.block("cc.twice", lambda x: g(x, w), x)  # noqa: E731
    assert jax.grad(k)(2.0, 5.0) == jax.grad(jax.jit(k))(2.0, 5.0) == 12.5


def test_a_librarys_derivative_takes_a_cotangent_of_pythons():
    _, back = jax.vjp(lambda x: pj.block("cc.cube", lambda x: x**3, x), 2.0)
    assert back(1.0) == (12.5,)
