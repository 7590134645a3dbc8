"""The package as a user meets it: programs, functions, their errors, the bridge,
and what crosses without a copy.
"""

import copy
import gc
import pathlib
import pickle
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback

import numpy as np
import postern
import pytest

X = np.float32([1, 2, 3])


@pytest.fixture(autouse=True)
def no_functions():
    yield
    for name in ("demo.scale", "demo.log", "demo.mixed"):
        try:
            postern.unregister(name)
        except postern.Error:
            pass


def scale(x, *, factor):
    return np.float32(factor) * x


def test_programs_describe_themselves_and_run(programs):
    program = postern.load(programs / "plain.mlir")
    assert (program.inputs, program.outputs, program.functions) == (["f32[3]"], ["f32[3]"], [])
    (result,) = program(X)
    np.testing.assert_array_equal(result, [3, 5, 7])
    assert not result.flags.writeable
    assert postern.load_text((programs / "plain.mlir").read_text())(X)[0][0] == 3
    assert postern.load(programs / "calls.mlir").functions == ["demo.log", "demo.scale"]


def test_an_entry_is_not_cut_short(programs):
    assert postern.load(programs / "plain.mlir", "main")(X)[0][0] == 3
    with pytest.raises(ValueError, match="null character"):
        postern.load(programs / "plain.mlir", "main\0x")
    with pytest.raises(TypeError):
        postern.load(programs / "plain.mlir", 3)


def test_artifacts_of_jax_are_programs():
    artifact = pathlib.Path(__file__).parents[3] / "tests" / "data" / "stablehlo" / "trees.jax"
    waves = np.sin(np.arange(3)).astype(np.float32)
    for program in (postern.load(artifact), postern.load_text(artifact.read_bytes())):
        assert program.inputs == ["f32[3]", "f32[3]", "f32[3]", "f32[2]"]
        product, same, total = program(waves, waves, waves, waves[:2])
        np.testing.assert_array_equal(product, waves * waves)
        np.testing.assert_array_equal(total, waves + waves)


def test_functions_get_operands_attributes_and_info(programs):
    seen, taps = [], []

    @postern.function("demo.scale")
    @postern.with_info
    def scaled(x, *, factor, info):
        seen.append((x.tolist(), factor, info.function, info.site, info.element, x.flags.writeable))
        return np.float32(factor) * x

    postern.register("demo.log", lambda v: taps.append(v.copy()))
    assert postern.load(programs / "calls.mlir")(X)[0] == 18
    postern.barrier()
    assert seen == [([1, 2, 3], 3.0, "demo.scale", "scale", -1, False)]
    np.testing.assert_array_equal(taps, [[3, 6, 9]])


def test_several_results_numbers_and_empty_arrays(programs):
    def mixed(x, n, *, name, axes):
        assert (name, axes, n.shape) == ("mixed", [0, 1], ())
        axes.clear()  # it is the firing's own
        return np.outer([n, n], x), 41, np.empty((0, 2), bool)

    postern.register("demo.mixed", mixed)
    program = postern.load(programs / "mixed.mlir")
    program(X, np.float64(2))
    both, count, none = program(X, np.float64(2))
    np.testing.assert_array_equal(both, [[3, 5, 7], [3, 5, 7]])
    assert (both.dtype, count, count.dtype, none.shape, none.dtype) == (
        np.float64,
        42,
        np.int32,
        (0, 2),
        bool,
    )


def test_an_exception_ends_the_run_and_is_its_cause(programs):
    def broken(x, *, factor):
        raise KeyError("no such scale")

    postern.register("demo.scale", broken)
    postern.register("demo.log", lambda v: None)
    program = postern.load(programs / "calls.mlir")
    with pytest.raises(postern.CallbackError) as caught:
        program(X)
    assert "KeyError: 'no such scale'" in str(
        caught.value
    ) and "call 'scale' at save_programs.cc:" in str(caught.value)
    assert "python exception" not in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)
    assert "in broken" in "".join(traceback.format_exception(caught.value.__cause__))
    postern.register("demo.scale", scale, replace=True)
    assert program(X)[0] == 18


@pytest.mark.parametrize(
    "returned, told",
    [
        (np.float64([1, 2, 3]), "float64[3]"),
        (np.float32([1, 2]), "float32[2]"),
        (None, "object[]"),
        ((np.float32([1]), np.float32([2])), "float32[2, 1]"),
        ("text", "<U4"),
    ],
)
def test_wrong_results_are_refused(programs, returned, told):
    postern.register("demo.scale", lambda x, factor: returned)
    postern.register("demo.log", lambda v: None)
    with pytest.raises(postern.CallbackError, match="must") as caught:
        postern.load(programs / "calls.mlir")(X)
    assert caught.value.code == 101
    assert told.split("[")[0] in str(caught.value)


@pytest.mark.parametrize(
    "dtype, told", [("i4", "int4"), ("ui2", "uint2"), ("i64", "int64"), ("i1", "bool")]
)
def test_a_python_number_of_another_kind_is_refused(dtype, told):
    program = postern.load_text(
        f"""
        func.func public @main(%x: tensor<f32>) -> tensor<{dtype}> {{
          %y = stablehlo.custom_call @demo.scale(%x) {{api_version = 4 : i32, \
backend_config = {{}}}} : (tensor<f32>) -> tensor<{dtype}>
          return %y : tensor<{dtype}>
        }}"""
    )
    postern.register("demo.scale", lambda x: 1.0)
    with pytest.raises(
        postern.CallbackError, match=rf"must be {told}\[\], the function returned float64\(\)"
    ):
        program(np.float32(0))
    postern.register("demo.scale", lambda x: True, replace=True)
    assert program(np.float32(0))[0] == 1


def test_errors_of_use(programs, tmp_path):
    program = postern.load(programs / "calls.mlir")
    with pytest.raises(
        postern.CallbackError, match="demo.log.*not registered|not registered.*demo.log|demo.scale"
    ):
        program(X)
    for arguments in ((), (X, X), (np.float64([1, 2, 3]),), (np.float32([1]),)):
        with pytest.raises(postern.Error, match="saved program"):
            program(*arguments)
    with pytest.raises(TypeError, match="dtype"):
        program(np.array(["a", "b", "c"]))
    with pytest.raises(postern.Error, match="no/such") as caught:
        postern.load("/no/such/file")
    assert caught.value.code == 5
    damaged = tmp_path / "damaged.mlir"
    damaged.write_text(
        (programs / "plain.mlir").read_text().replace("2.0", "4.0").replace("add", "sub")
    )
    with pytest.raises(postern.Error, match="checksum"):
        postern.load(damaged)
    postern.register("demo.scale", scale)
    with pytest.raises(postern.Error, match="demo.scale"):
        postern.register("demo.scale", scale)
    with pytest.raises(postern.Error, match="demo.nothing"):
        postern.unregister("demo.nothing")


def test_late_functions_meet_their_limit(programs):
    postern.register("demo.scale", lambda x, factor: time.sleep(2) or x)
    with pytest.raises(postern.TimeoutError, match="50 ms"):
        postern.load(programs / "limited.mlir")(X)
    time.sleep(2.2)  # the late function returns to nobody


def test_runs_can_be_started_awaited_and_cancelled(programs):
    entered, go_on = threading.Event(), threading.Event()

    def waits(x, *, factor):
        entered.set()
        go_on.wait(10)
        return np.float32(factor) * x

    postern.register("demo.scale", waits)
    postern.register("demo.log", lambda v: None)
    program = postern.load(programs / "calls.mlir")
    run = program.start(X)
    assert entered.wait(10) and not run.wait(0.01)
    with pytest.raises(postern.TimeoutError, match="0.01 s"):
        run.result(0.01)
    go_on.set()
    assert run.result(10)[0] == 18 and run.wait()
    entered.clear(), go_on.clear()
    run = program.start(X)
    assert entered.wait(10)
    run.cancel()
    with pytest.raises(postern.Error, match="cancelled"):
        run.result(10)
    go_on.set()
    assert postern.barrier(10)


def test_other_threads_go_on_while_a_program_runs(programs):
    postern.register("demo.scale", scale)
    program = postern.load(programs / "loop.mlir")
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    results = [program(X)[0] for _ in range(3)]
    done.set()
    thread.join()
    for result in results:
        np.testing.assert_allclose(result, X, rtol=1e-3)
    assert counted[0] > 1000


def test_a_function_may_run_programs(programs):
    inner = postern.load(programs / "plain.mlir")
    postern.register("demo.scale", lambda x, factor: inner(x)[0])
    postern.register("demo.log", lambda v: None)
    assert postern.load(programs / "calls.mlir")(X)[0] == 15


def test_large_arrays_are_lent_and_given_back(programs):
    program = postern.load(programs / "large.mlir")
    lent_before = postern._postern.lent_count()
    memory = np.zeros(512 * 1024 + 16, np.float32)
    start = -memory.ctypes.data % 64 // 4
    array = memory[start : start + 512 * 1024].reshape(512, 1024)
    array[1, 1] = 5
    (result,) = program(array)
    assert (result[0, 0], result[1, 1]) == (1, 11)
    turned = np.asfortranarray(array)
    assert program(turned)[0][1, 1] == 11
    view = result[1]
    del result
    gc.collect()
    assert view[1] == 11  # a part keeps the whole
    assert postern._postern.lent_count() <= lent_before  # what earlier tests left may go meanwhile


def test_dlpack_goes_both_ways(programs):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)

    class Other:  # some other library's array
        def __init__(self, a):
            self.a = a

        def __dlpack__(self, stream=None):
            return self.a.__dlpack__()

    made = postern.Tensor(Other(array))
    np.testing.assert_array_equal(made.numpy(), array)
    np.testing.assert_array_equal(postern.Tensor(Other(array.T)).numpy(), array.T)
    back = np.from_dlpack(made)
    assert back.ctypes.data == array.ctypes.data  # not copied either way
    del made
    gc.collect()
    np.testing.assert_array_equal(back, array)
    count = sys.getrefcount(array)
    capsule = postern.Tensor(Other(array)).__dlpack__()
    assert sys.getrefcount(array) > count
    del capsule
    gc.collect()
    assert sys.getrefcount(array) == count


def serve(bridge, count):
    for _ in range(count):
        request = bridge.next(10)
        request.reply(
            *(
                [np.float32(request.attributes["factor"]) * request.operands[0]]
                if request.info.function == "demo.scale"
                else []
            )
        )


def test_a_bridge_serves_on_a_thread_of_its_own(programs):
    with postern.Bridge() as bridge:
        bridge.serve("demo.scale")
        bridge.serve("demo.log")
        assert bridge.next(0) is None
        thread = threading.Thread(target=serve, args=(bridge, 2))
        thread.start()
        assert postern.load(programs / "calls.mlir")(X)[0] == 18
        thread.join()


def test_a_bridge_may_be_polled_by_the_thread_that_runs(programs):
    with postern.Bridge() as bridge:
        bridge.serve("demo.scale")
        postern.register("demo.log", lambda v: None)
        run = postern.load(programs / "calls.mlir").start(X)
        assert select.select([bridge], [], [], 10)[0]
        request = bridge.next(0)
        with pytest.raises(postern.Error, match=r"f32\[3\].*f32\[2\]"):
            request.reply(np.float32([1, 2]))
        assert not request.stopped
        request.reply(np.float32([1, 1, 1]))
        with pytest.raises(postern.Error, match="no request"):
            request.reply(np.float32([1, 1, 1]))
        assert run.result(10)[0] == 3


def test_a_bridge_hands_on_failures_and_its_end(programs):
    postern.register("demo.log", lambda v: None)
    program = postern.load(programs / "calls.mlir")
    bridge = postern.Bridge()
    bridge.serve("demo.scale")
    run = program.start(X)
    request = bridge.next(10)
    for wrong in ("not today", ValueError):
        with pytest.raises(TypeError, match="fail takes an exception"):
            request.fail(wrong)
    request.fail(ValueError("not today"))
    with pytest.raises(postern.CallbackError, match="not today") as caught:
        run.result(10)
    assert isinstance(caught.value.__cause__, ValueError)
    run = program.start(X)
    bridge.close()
    with pytest.raises(postern.CallbackError, match="closed"):
        run.result(10)
    with pytest.raises(postern.CallbackError, match="closed"):
        bridge.next()


def test_a_request_that_is_let_go_of_ends_its_run(programs):
    postern.register("demo.log", lambda v: None)
    with postern.Bridge() as bridge:
        bridge.serve("demo.scale")
        run = postern.load(programs / "calls.mlir").start(X)
        bridge.next(10)
        gc.collect()
        with pytest.raises(postern.CallbackError, match="let go of without an answer"):
            run.result(10)
        # One that was answered has nothing more to say.
        run = postern.load(programs / "calls.mlir").start(X)
        bridge.next(10).reply(np.float32([1, 1, 1]))
        gc.collect()
        assert run.result(10)[0] == 3


def test_integers_that_do_not_fit_are_no_others(programs):
    from postern._values import converted

    for value, text in (
        (300, "s8[]"),
        (-1, "u8[]"),
        ([1, 2**31], "s32[2]"),
        ([np.int64(2**31)], "s32[1]"),
        (np.uint64(2**63), "s64[]"),
        (np.int64(-1), "u64[]"),
    ):
        with pytest.raises(ValueError, match="does not fit"):
            converted(value, text)
    assert converted([np.int64(-5), 7], "s8[2]").tolist() == [-5, 7]
    assert converted(2**64 - 1, "u64[]") == 2**64 - 1


@pytest.mark.parametrize(
    "value, text",
    [
        (2**70, "s64[]"),
        (2**64, "u64[]"),
        ([2**63, -1], "u64[2]"),
        ([2**64 - 1, 0], "s64[2]"),
        (10**400, "f64[]"),
        (10**400, "bf16[]"),
        (2**200, "f32[]"),
        (1e300, "f32[]"),
        (-1e39, "bf16[]"),
        (70000, "f16[]"),
        ([1.0, 70000.0], "f16[2]"),
        ([np.float64(1e300), float("inf")], "f32[2]"),
        (1e300, "c64[]"),
        (complex(float("inf"), 1e300), "c64[]"),
        (1000.0, "f8e4m3fn[]"),
        (float("inf"), "f8e4m3fn[]"),
        (0, "f8e8m0fnu[]"),
        (-1.0, "f8e8m0fnu[]"),
        (-1000.0, "f4e2m1fn[]"),
        (float("inf"), "f4e2m1fn[]"),
        (float("nan"), "f4e2m1fn[]"),
    ],
)
def test_numbers_that_do_not_fit_are_no_others(value, text):
    from postern._values import converted

    with pytest.raises(ValueError, match="does not fit"):
        converted(value, text)


def test_numbers_that_fit():
    from postern._values import converted

    inf, nan = float("inf"), float("nan")
    for value, text in (
        ([2**64 - 1, 0, True], "u64[3]"),
        ([2**63 - 1, -1], "s64[2]"),
        (2**70, "f64[]"),
        ([2**70, 0.5], "f64[2]"),
        ([2**70, 1j], "c128[2]"),
        (2**64, "bf16[]"),
        ([inf, -inf, nan, 0.0], "f32[4]"),
        ([inf, nan, 1.0], "bf16[3]"),
        (complex(inf, 1), "c64[]"),
        ([nan, 448.0], "f8e4m3fn[2]"),
        ([inf, nan], "f8e5m2[2]"),
        ([nan, 2.0], "f8e8m0fnu[2]"),
        ([6.0, -6.0, 0.5, 0.0], "f4e2m1fn[4]"),
        (True, "f32[]"),
    ):
        made = converted(value, text)
        given = np.asarray(value, object)
        wide = complex if text[0] == "c" else object if text[0] in "su" else float
        np.testing.assert_array_equal(made.astype(wide), given.astype(wide))
        assert made.shape == given.shape
    for value, text in (
        ([2**64 - 1, 0.5], "u64[2]"),
        ([2**70, 1.5], "s64[2]"),
        ([2**70, None], "f32[2]"),
        ([2**70, "1"], "f32[2]"),
        ([2**70, 1j], "f32[2]"),
        (2**70, "pred[]"),
    ):
        with pytest.raises(TypeError, match="another kind"):
            converted(value, text)


def test_a_request_that_cannot_be_shown_ends_its_run(monkeypatch):
    program = postern.load_text(
        """
        func.func public @main(%x: tensor<f32>) -> tensor<f32> {
          %y = stablehlo.custom_call @demo.scale(%x) {api_version = 4 : i32, \
backend_config = {unshown = 1 : i64}}
                 : (tensor<f32>) -> tensor<f32>
          return %y : tensor<f32>
        }"""
    )

    def interrupted(text):
        raise KeyboardInterrupt

    monkeypatch.setattr("postern._attributes.parsed", interrupted)
    with postern.Bridge() as bridge:
        bridge.serve("demo.scale")
        run = program.start(np.float32(0))
        with pytest.raises(KeyboardInterrupt):
            bridge.next(10)
        with pytest.raises(postern.CallbackError, match="the request could not be shown to Python"):
            run.result(10)


def test_the_attributes_of_a_request_are_its_own(programs):
    program = postern.load(programs / "mixed.mlir")
    with postern.Bridge() as bridge:
        bridge.serve("demo.mixed")
        for _ in range(2):
            run, request = program.start(X, np.float64(2)), bridge.next(10)
            assert request.attributes == {"name": "mixed", "axes": [0, 1]}
            request.attributes["axes"].append(2)
            request.reply(np.zeros((2, 3)), np.int32(41), np.empty((0, 2), bool))
            assert run.result(10)[1] == 42


def test_threads_that_serve_their_first_requests(programs):
    out = in_a_process(
        f"""
        import sys
        from postern import listen
        class Slow:
            def find_spec(self, name, *_):
                if name == "postern._attributes":
                    time.sleep(0.5)
        sys.meta_path.insert(0, Slow())
        def serve():
            request = bridge.next(10)
            request.reply(request.operands[0])
        program, bridge = postern.load({str(programs / 'calls.mlir')!r}), postern.Bridge()
        bridge.serve("demo.scale")
        postern.register("demo.log", listen.stats())
        threads = [threading.Thread(target=serve) for _ in range(2)]
        runs = [program.start(np.float32([1, 2, 3])) for _ in threads]
        for t in threads:
            t.start()
        print([float(run.result(10)[0]) for run in runs])
    """
    )
    assert out == "[6.0, 6.0]\n"


def test_leaving_with_a_run_in_flight_is_quiet(programs):
    code = textwrap.dedent(
        f"""
        import time, numpy as np, postern
        postern.register("demo.scale", lambda x, factor: time.sleep(0.2) or x)
        postern.register("demo.log", lambda v: print("seen", flush=True))
        run = postern.load({str(programs / 'calls.mlir')!r}).start(np.float32([1, 2, 3]))
        time.sleep(0.05)
    """
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "seen\n", "")


def in_a_process(code, interrupt_at=None, limit=60):
    """What Python code prints in a process of its own;
    Ctrl-C is sent when it has printed `interrupt_at`.
    """
    code = "import multiprocessing, threading, time, numpy as np, postern\n" + textwrap.dedent(code)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    killer = threading.Timer(limit, process.kill)
    killer.start()
    try:
        if interrupt_at is not None:
            assert process.stdout.readline() == interrupt_at + "\n"
            process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    finally:
        killer.cancel()
    assert process.returncode == 0, (process.returncode, out, err)
    return out


def test_many_threads_wait_for_one_run(programs):
    out = in_a_process(
        f"""
        postern.register("demo.scale", lambda x, factor: time.sleep(0.1) or np.float32(factor) * x)
        postern.register("demo.log", lambda v: None)
        program = postern.load({str(programs / 'calls.mlir')!r})
        for _ in range(10):
            run, seen = program.start(np.float32([1, 2, 3])), []
            threads = [threading.Thread(\
target=lambda: run.wait() and seen.append(run.result()[0])) for _ in range(8)]
            for t in threads: t.start()
            for t in threads: t.join()
            assert len(seen) == 8 and all(r is seen[0] and r == 18 for r in seen)
        print("ok")
    """
    )
    assert out == "ok\n"


def test_handles_are_not_copied(programs):
    out = in_a_process(
        f"""
        import copy, gc, pickle
        x = np.float32([1, 2, 3])
        program = postern.load({str(programs / 'plain.mlir')!r})
        things = [program, program.start(x), postern.Bridge(), postern.Tensor(x)]
        for thing in things:
            assert copy.copy(thing) is thing and copy.deepcopy(thing) is thing
            try:
                pickle.dumps(thing)
                print("pickled", thing)
            except TypeError as e:
                assert "cannot be pickled" in str(e), e
            if isinstance(thing, postern.Tensor):
                continue  # which anyone makes
            for wrong in (12345, "text", b"text", None):
                try:
                    type(thing)(wrong, wrong) \
if isinstance(thing, postern.Run) else type(thing)(wrong)
                    print("made", type(thing), wrong)
                except TypeError:
                    pass
        del things, thing
        gc.collect()
        print(program(x)[0])
    """
    )
    assert out == "[3. 5. 7.]\n"


def test_errors_can_be_pickled_and_copied():
    for made in (
        postern.Error(5, "no file"),
        postern.CallbackError(100, "failed"),
        postern.TimeoutError(102, "late"),
    ):
        made.note = "kept"
        for other in (pickle.loads(pickle.dumps(made)), copy.copy(made)):
            assert (type(other), other.code, str(other), other.note) == (
                type(made),
                made.code,
                str(made),
                "kept",
            )
    out = in_a_process(
        """
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            try:
                pool.apply(postern.load, ["/no/such/file"])
            except postern.Error as e:
                print(e.code)
    """
    )
    assert out == "5\n"


def test_a_forked_process_is_told_so(programs):
    out = in_a_process(
        f"""
        import os, sys, warnings
        warnings.simplefilter("ignore")  # newer interpreters warn of threads
        path = {str(programs / 'plain.mlir')!r}
        x = np.float32([1, 2, 3])
        program = postern.load(path)
        print(program(x)[0], flush=True)
        run = program.start(x)
        run.wait()
        bridge = postern.Bridge()
        def use():
            for act in (lambda: program(x), lambda: program.start(x), \
lambda: postern.load(path)(x), postern.barrier, bridge.next,
                        lambda: bridge.next(60)):
                try:
                    act()
                    print("not refused", flush=True)
                except postern.Error as e:
                    if e.code != 9 or "forked" not in str(e) or "spawn" not in str(e):
                        print(e, flush=True)
            return float(run.result()[0][2])
        child = os.fork()
        if child == 0:
            use()
            sys.exit(7)  # with its exit handlers
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print([job.get(60) for job in [pool.apply_async(use) for _ in range(2)]], flush=True)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            used = "float(__import__('postern').load(path)(\
__import__('numpy').float32([1, 2, 3]))[0][2])"
            print(pool.apply_async(eval, [used, {{"path": path}}]).get(60))
    """
    )
    assert out == "[3. 5. 7.]\n7\n[7.0, 7.0]\n7.0\n"


def test_a_fork_ends_at_once_while_a_function_is_at_work(programs):
    out = in_a_process(
        f"""
        import os, sys
        entered, go_on = threading.Event(), threading.Event()
        def waits(x, *, factor):
            entered.set()
            go_on.wait(60)
            return x
        postern.register("demo.scale", waits)
        postern.register("demo.log", lambda v: None)
        run = postern.load({str(programs / 'calls.mlir')!r}).start(np.float32([1, 2, 3]))
        entered.wait(60)
        begin = time.monotonic()
        child = os.fork()
        if child == 0:
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        print(status, time.monotonic() - begin < 8)
        go_on.set()
        run.result(60)
    """
    )
    assert out == "0 True\n"


def test_fork_before_the_first_use(programs):
    out = in_a_process(
        f"""
        def use(x):
            return float(postern.load({str(programs / 'plain.mlir')!r})(np.float32([x] * 3))[0][0])
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print([job.get(60) \
for job in [pool.apply_async(use, [x]) for x in (1, 2, 3, 4)]], flush=True)
        print(use(5))
    """
    )
    assert out == "[3.0, 5.0, 7.0, 9.0]\n11.0\n"


@pytest.mark.parametrize(
    "wait",
    [
        "run.result()",
        "run.wait(60)",
        "program(x)",
        "postern.barrier()",
        "postern.barrier(60)",
        "bridge.next()",
        "bridge.next(60)",
    ],
)
def test_ctrl_c_ends_every_wait(programs, wait):
    out = in_a_process(
        f"""
        x, go_on = np.float32([1, 2, 3]), threading.Event()
        def waits(x, *, factor):
            go_on.wait(60)
            return x
        postern.register("demo.scale", waits)
        postern.register("demo.log", lambda v: None)
        program, bridge = postern.load({str(programs / 'calls.mlir')!r}), postern.Bridge()
        if {wait!r} != "program(x)":
            run = program.start(x)
        try:
            print("waiting", flush=True)
            {wait}
        except KeyboardInterrupt:
            print("interrupted")
        go_on.set()
        postern.barrier(30)
    """,
        interrupt_at="waiting",
    )
    assert out == "interrupted\n"


ENDLESS = """
func.func public @main(%x: tensor<i32>) -> tensor<i32> {
  %0 = stablehlo.while(%i = %x) : tensor<i32>
    cond {
      %true = stablehlo.constant dense<true> : tensor<i1>
      stablehlo.return %true : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %next : tensor<i32>
    }
  return %0 : tensor<i32>
}
"""


def test_ctrl_c_leaves_a_loop_that_never_ends():
    out = in_a_process(
        f"""
        import os, signal
        program = postern.load_text({ENDLESS!r})
        threading.Timer(3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            program(np.int32(1))
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        os._exit(0)  # the loop goes on
    """
    )
    assert out == "interrupted\n"


def test_a_failure_after_ctrl_c_is_raised_by_the_next_barrier(programs):
    out = in_a_process(
        f"""
        go_on = threading.Event()
        def fails(x, *, factor):
            go_on.wait(60)
            raise ValueError("late")
        postern.register("demo.scale", fails)
        postern.register("demo.log", lambda v: None)
        postern.load({str(programs / 'calls.mlir')!r}).start(np.float32([1, 2, 3]))
        def tell():
            while "postern.barrier" not in [t.name for t in threading.enumerate()]:
                time.sleep(0.01)
            print("waiting", flush=True)
        threading.Thread(target=tell).start()
        try:
            postern.barrier()
        except KeyboardInterrupt:
            print("interrupted")
        go_on.set()
        time.sleep(0.2)  # the wait that was interrupted sees it
        for _ in range(2):
            try:
                print(postern.barrier())
            except postern.CallbackError as e:
                print(type(e.__cause__).__name__)
    """,
        interrupt_at="waiting",
    )
    assert out == "interrupted\nValueError\nTrue\n"


COUNTS = """
func.func @main(%x: tensor<i32>) -> tensor<i32> {
  %0 = stablehlo.while(%i = %x) : tensor<i32>
    cond {
      %true = stablehlo.constant dense<true> : tensor<i1>
      stablehlo.return %true : tensor<i1>
    } do {
      %next = stablehlo.custom_call @postern_guest(%i) {api_version = 4 : i32,
        has_side_effect = true, backend_config = {function = "py.counts", kind = "call"}}
        : (tensor<i32>) -> tensor<i32>
      stablehlo.return %next : tensor<i32>
    }
  return %0 : tensor<i32>
}
"""


def test_what_a_signals_handler_raises_ends_the_run():
    out = in_a_process(
        f"""
        import os, signal
        def alarm(*_):
            raise RuntimeError("alarm")
        signal.signal(signal.SIGALRM, alarm)
        def counts(i):
            if i == 3:
                os.kill(os.getpid(), signal.SIGALRM)
            return i + 1
        postern.register("py.counts", counts)
        try:
            postern.load_text({COUNTS!r})(np.int32(0))
        except RuntimeError as e:
            print(e)
        try:
            print(postern.barrier(20))
        except postern.Error as e:  # how the run has ended
            print(True)
    """
    )
    assert out == "alarm\nTrue\n"


class Ended(postern._waits._Wait):
    """One that Ctrl-C took the waiter from, and that has seen a failure."""

    def __init__(self):
        super().__init__(-1)
        self.begun, self.outcome = True, LookupError("late")
        self.ended.set()


def test_two_barriers_after_ctrl_c_raise_one_failure():
    wait, both, seen = Ended(), threading.Barrier(2, timeout=60), []
    wait.ended.wait = both.wait
    postern._waits._missed.append(wait)

    def waits():
        try:
            seen.append(repr(postern.barrier()))
        except Exception as e:
            seen.append(repr(e))

    threads = [threading.Thread(target=waits) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == ["LookupError('late')", "True"]


def test_ctrl_c_just_before_a_failure_is_raised(monkeypatch):
    told, interrupted = postern._waits._Wait.told, []

    def tells(wait):
        if wait not in interrupted:
            interrupted.append(wait)
            raise KeyboardInterrupt
        return told(wait)

    monkeypatch.setattr(postern._waits._Wait, "told", tells)
    with pytest.raises(KeyboardInterrupt):
        postern._waits._barrier_aside(-1)
    interrupted[0].outcome = LookupError("aside")
    postern._waits._missed.append(Ended())
    with pytest.raises(LookupError, match="aside"):
        postern.barrier()
    with pytest.raises(KeyboardInterrupt):
        postern.barrier()
    with pytest.raises(LookupError, match="late"):
        postern.barrier()
    assert postern.barrier() and not postern._waits._missed


def test_a_run_that_is_awaited_does_not_keep_the_process(programs):
    out = in_a_process(
        f"""
        import asyncio, atexit
        go_on = threading.Event()
        atexit.register(go_on.set)
        postern.register("demo.scale", lambda x, factor: go_on.wait(600) and x)
        postern.register("demo.log", lambda v: None)
        run = postern.load({str(programs / 'calls.mlir')!r}).start(np.float32([1, 2, 3]))

        async def waits():
            await run

        loop = asyncio.new_event_loop()
        task = loop.create_task(waits())
        loop.run_until_complete(asyncio.sleep(0))
        print("leaving")
    """
    )
    assert out == "leaving\n"


def test_runs_are_awaited_beside_a_bridge_that_has_the_executor(programs):
    out = in_a_process(
        f"""
        import asyncio, concurrent.futures
        postern.register("demo.log", lambda v: None)
        program = postern.load({str(programs / 'calls.mlir')!r})

        async def serves():
            executor = concurrent.futures.ThreadPoolExecutor(1)
            asyncio.get_running_loop().set_default_executor(executor)
            bridge = postern.Bridge()
            bridge.serve("demo.scale")
            async def answers():
                for _ in range(3):
                    request = await asyncio.to_thread(bridge.next)
                    request.reply(request.operands[0])
            runs = [program.start(np.float32([1, 2, 3])) for _ in range(3)]
            return await asyncio.gather(*runs, answers())

        print(len(asyncio.run(serves())))
    """
    )
    assert out == "4\n"


def test_runs_that_wait_for_each_other_are_refused(programs):
    out = in_a_process(
        f"""
        started, runs = threading.Event(), []
        def waits(x, *, factor):
            started.wait(10)
            return runs[1 - int(x[0])].result()[0]
        postern.register("demo.scale", waits)
        postern.register("demo.log", lambda v: None)
        program = postern.load({str(programs / 'calls.mlir')!r})
        runs += [program.start(np.float32([i, 0, 0])) for i in range(2)]
        started.set()
        for run in runs:
            try:
                print(run.result(20))
            except postern.CallbackError as e:
                print("waits for a run that waits for the one that is calling it" in str(e))
    """
    )
    assert out == "True\nTrue\n"


def test_what_c_cannot_count_is_for_ever(programs):
    postern.register("demo.scale", lambda x, factor: time.sleep(0.3) or np.float32(factor) * x)
    postern.register("demo.log", lambda v: None)
    program = postern.load(programs / "calls.mlir")
    for limit in (float("inf"), 1e12):
        assert program.start(X).result(limit)[0] == 18
        program.start(X)
        assert postern.barrier(limit)


def test_a_barrier_where_no_thread_can_be_started(programs, monkeypatch):
    def refused(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    postern.register("demo.scale", lambda x, factor: time.sleep(0.1) or np.float32(factor) * x)
    postern.register("demo.log", lambda v: None)
    run = postern.load(programs / "calls.mlir").start(X)
    monkeypatch.setattr(threading.Thread, "start", refused)
    assert postern.barrier(10) and run.wait(0)


def failing(exception):
    def fails(x, *, factor):
        raise exception

    postern.register("demo.scale", fails, replace=True)


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("not this")


@pytest.mark.parametrize(
    "exception",
    [
        ValueError("a\0b"),
        ValueError("as [python exception 1] says [python exception 2]"),
        ValueError("\ud800"),
        ValueError(""),
        Unspeakable(),
        KeyboardInterrupt("x"),
        SystemExit(3),
        ValueError("x" * 100_000),
    ],
    ids=range(8),
)
def test_causes_survive_every_text(programs, exception):
    failing(exception)
    postern.register("demo.log", lambda v: None)
    program = postern.load(programs / "calls.mlir")
    with pytest.raises(postern.CallbackError, match=type(exception).__name__) as caught:
        program(X)
    assert caught.value.__cause__ is exception
    if "python exception" in str(exception.args):
        assert str(exception) in str(caught.value)
    with postern.Bridge() as bridge:
        bridge.serve("demo.scale", replace=True)
        run = program.start(X)
        bridge.next(10).fail(exception)
        for _ in range(2):  # who waits again is told again
            with pytest.raises(postern.CallbackError) as caught:
                run.result(10)
            assert caught.value.__cause__ is exception


def test_causes_wait_for_their_readers_and_then_go(programs):
    postern.register("demo.log", lambda v: None)
    program = postern.load(programs / "calls.mlir")

    class Numbered(Exception):
        pass

    gc.collect()
    before = postern._postern.lent_count()
    runs = []
    for i in range(400):
        failing(Numbered(i))
        runs.append(program.start(X))
        with pytest.raises(postern.CallbackError):
            runs[-1].wait(10)
    for i, run in enumerate(runs):
        with pytest.raises(postern.CallbackError) as caught:
            run.result(10)
        assert caught.value.__cause__.args == (i,)
    del runs, run, caught
    postern.unregister("demo.scale")
    gc.collect()
    assert postern._postern.lent_count() == before


def test_failures_that_nobody_waited_for_are_told_at_the_end(programs):
    code = textwrap.dedent(
        f"""
        import numpy as np, postern
        postern.register("demo.scale", lambda x, factor: 1 / 0)
        postern.register("demo.log", lambda v: None)
        postern.load({str(programs / 'calls.mlir')!r}).start(np.float32([1, 2, 3]))
    """
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr.count("ZeroDivisionError: division by zero") == 1


def test_names_and_paths_are_not_cut_short(programs, tmp_path):
    plain = programs / "plain.mlir"
    for act in (
        lambda: postern.register("demo.scale\0x", scale),
        lambda: postern.unregister("demo.scale\0x"),
        lambda: postern.Bridge().serve("demo.scale\0x"),
        lambda: postern.load(f"{plain}\0x"),
        lambda: postern.configure(cache_dir=f"{tmp_path}\0x"),
    ):
        with pytest.raises(ValueError, match="null character"):
            act()
    assert postern.load(str(plain).encode())(X)[0][0] == 3
    for wrong in (None, 5, 2.5, [plain]):
        with pytest.raises(TypeError):
            postern.load(wrong)


@pytest.mark.parametrize("wrong", [None, 5, [], {}, object(), float("nan")], ids=repr)
def test_arguments_of_another_kind_are_refused(programs, wrong):
    program, bridge = postern.load(programs / "calls.mlir"), postern.Bridge()
    for act in (
        lambda: program(wrong),
        lambda: program.start(wrong),
        lambda: program.start(X, wrong),
        lambda: postern.load_text(wrong),
        lambda: postern.register("demo.scale", wrong),
        lambda: postern.register(wrong, scale),
        lambda: bridge.serve(wrong),
    ):
        with pytest.raises((TypeError, postern.Error)):
            act()
    assert postern.load(programs / "plain.mlir")(X)[0][0] == 3


def test_programs_take_arguments_by_name():
    root = pathlib.Path(__file__).parents[3]
    trees = root / "tests" / "data" / "stablehlo" / "trees.jax"
    program = postern.load(trees)
    assert program.input_names[:2] == ["args[0]['scale']", "args[0]['x']"]
    assert program.output_names[-1] == "result['sum']"
    three = np.array([1, 2, 3], np.float32)
    by_name = {"args[0]['x']": three, "args[0]['scale']": 2 * three}
    results = program(10 * three, np.zeros(2, np.float32), **by_name)
    assert np.array_equal(results[-1], 11 * three)
    first = program.run(10 * three, np.zeros(2, np.float32), **by_name)[0]
    assert np.array_equal(first, 2 * three**2)
    with pytest.raises(TypeError, match=r"no input 'w'; it has .*args\[1\]"):
        program(three, w=three)
    with pytest.raises(postern.Error, match="4 arguments"):
        program(three, **by_name)
    with pytest.raises(postern.Error, match="none"):
        postern.load(trees, entry="none")
