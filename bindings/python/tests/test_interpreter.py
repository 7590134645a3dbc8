"""The interpreter: its end with runs in flight, and those that are not supported."""

import concurrent.futures
import subprocess
import sys
import textwrap
import time

START = """
    import threading, time, numpy as np, postern
    postern.register("demo.log", lambda v: None)
    program = postern.load({program!r})
    x = np.float32([1, 2, 3])
"""


def ended(programs, code, limit=600):
    """How a process with this code ends: its output, and after how many seconds."""
    code = textwrap.dedent(START).format(program=str(programs / "calls.mlir")) + textwrap.dedent(
        code
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=limit
    )
    return done.returncode, done.stdout, done.stderr, time.monotonic() - began


def each_ended(programs, *codes):
    """How processes that do little end that run at the same time."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(lambda code: ended(programs, code), codes))


def test_what_does_not_end_is_left_behind(programs):
    endless, waiting = each_ended(
        programs,
        """
        postern.register("demo.scale", lambda x, factor: \
[time.sleep(0.001) for _ in range(600000)] and x)
        run = program.start(x)
        time.sleep(0.1)
        print("leaving", flush=True)
    """,
        """
        postern.register("demo.scale", lambda x, factor: time.sleep(600) or x)
        run, bridge = program.start(x), postern.Bridge()
        for wait in (run.wait, bridge.next, postern.barrier, \
lambda: run.wait(500), lambda: postern.barrier(500)):
            threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.2)
        print("leaving", flush=True)
    """,
    )
    for code, out, err, seconds in (endless, waiting):
        assert (code, out) == (0, "leaving\n"), err
        assert seconds < 200
    assert "have not ended after 10 s" in endless[2]


def test_threads_that_run_programs_while_the_interpreter_ends(programs):
    for _ in range(5):
        code, out, err, _ = ended(
            programs,
            """
            postern.register("demo.scale", lambda x, factor: np.float32(factor) * x)
            def runs():
                while True:
                    program(x)
            for _ in range(4):
                threading.Thread(target=runs, daemon=True).start()
            time.sleep(0.2)
            print("leaving", flush=True)
        """,
        )
        assert (code, out) == (0, "leaving\n"), err


def test_threads_whose_programs_are_being_compiled_as_the_interpreter_ends(programs):
    """XLA's compiler crashes where the process's statics go beneath it."""
    endings = each_ended(
        programs,
        *[
            f"""
            postern.register("demo.scale", lambda x, factor: np.float32(factor) * x)
            def runs():
                while True:
                    np.asarray(program(x)[0])
            for _ in range(4):
                threading.Thread(target=runs, daemon=True).start()
            time.sleep({pause})
            print("leaving", flush=True)
        """
            for pause in (0, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15)
        ],
    )
    for code, out, err, _ in endings:
        assert (code, out) == (0, "leaving\n"), err


def test_sub_interpreters_are_refused():
    code = textwrap.dedent(
        """
        try:
            import _interpreters as interpreters  # Python 3.13 and later: failures are returned
        except ImportError:
            import _xxsubinterpreters as interpreters
        text = "import sys; sys.path.insert(0, '')\\nimport postern"
        try:
            print(interpreters.run_string(interpreters.create(), text))
        except interpreters.RunFailedError as e:
            print(e)
    """
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    # From Python 3.12 on Python itself refuses, in its own words.
    assert "ImportError" in done.stdout
    assert "sub-interpreter" in done.stdout or "subinterpreter" in done.stdout


def test_free_threaded_interpreters_are_refused():
    code = "import sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1\nimport postern"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (
        done.returncode == 1 and "ImportError: postern: this Python is free-threaded" in done.stderr
    )
