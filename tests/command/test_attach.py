"""postern attach.
Needs POSTERN_COMMAND, and LIVE_PAGE: a program with a live hook "noise" and a live page.
"""

import json
import os
import signal
import subprocess
import time
import urllib.request

import numpy as np
import pytest


class Program:
    def __init__(self, env=None, arguments=("100000", "5")):
        self.process = subprocess.Popen(
            [os.environ["LIVE_PAGE"], *arguments],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )
        self.url = self.process.stdout.readline().strip()
        self.pid = str(self.process.pid)

    def wait(self):
        end = time.monotonic() + 120
        while "noise" not in attach(self.pid).stdout and time.monotonic() < end:  # it is compiled
            time.sleep(0.1)
        return self

    def end(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def program():
    program = Program().wait()
    yield program
    program.end()


@pytest.fixture(scope="module")
def two_hooks():
    """Fast, and with a second hook "slow", beside "noise"."""
    program = Program(arguments=("100000000", "1", "", "100")).wait()
    yield program
    program.end()


@pytest.fixture
def busy():
    """As fast as it can."""
    program = Program(arguments=("100000000", "0")).wait()
    yield program
    program.end()


def attach(*arguments, **more):
    return subprocess.run(
        [os.environ["POSTERN_COMMAND"], "attach", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        **more,
    )


def hooks(where):
    return json.loads(attach(where, "--json").stdout)


def test_lists_what_there_is(program):
    for where in (program.pid, program.url):
        done = attach(where)
        assert done.returncode == 0, done.stderr
        assert "noise" in done.stdout and "f32[256]" in done.stdout and "asleep" in done.stdout
        assert "live_page.cc:" in done.stdout
    assert [h["name"] for h in hooks(program.pid)] == ["noise"]


@pytest.mark.parametrize("by", ["pid", "url"])
def test_shows_what_passes(program, by):
    done = attach(
        getattr(program, by), "noise", "--stats", "--histogram", "--every", 5, "--until", 10
    )
    assert done.returncode == 0, done.stderr
    assert "noise: firing 9  mean " in done.stdout
    assert "noise: [" in done.stdout and "█" in done.stdout
    assert hooks(program.pid)[0]["listeners"] == []


def test_prints_and_json(program):
    done = attach(program.pid, "all", "--print", "--until", 2)
    assert done.stdout.count("noise = [") == 2, done.stdout
    number = hooks(program.pid)[0]["number"]
    done = attach(program.pid, f"#{number}", "--stats", "--json", "--seconds", 1)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1]["hook"] == "noise" and lines[-1]["last"]["count"] == 256
    assert attach(
        program.pid, "noise", "--print", "--keep-last", 2, "--seconds", 1, "--json"
    ).stdout.startswith('{"line":')


def test_waits_for_all_that_it_turned_on(two_hooks):
    done = attach(two_hooks.pid, "all", "--stats", "--until", 3)
    assert done.returncode == 0, done.stderr
    assert "noise: firing 2 " in done.stdout and "slow: firing 2 " in done.stdout
    assert (
        attach(two_hooks.pid, "noise", "--stats", "--until", 1).stdout.count("noise: firing 0 ")
        == 1
    )


def test_shows_what_waited_in_a_queue(busy):
    """Copies are taken faster than they are printed."""
    limits = ("--until", 5000, "--keep-last", 5000)
    done = attach(busy.pid, "noise", "--print", "--stats", *limits)
    assert done.returncode == 0, done.stderr
    assert "noise: firing 4999 " in done.stdout


def test_ends_when_nobody_reads(two_hooks):
    running = subprocess.Popen(
        [os.environ["POSTERN_COMMAND"], "attach", two_hooks.pid, "noise", "--stats"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "noise: firing" in running.stdout.readline()
    running.stdout.close()
    assert running.wait(timeout=20) == 3 and "output cannot be written" in running.stderr.read()
    running.stderr.close()
    assert [h["listeners"] for h in hooks(two_hooks.pid)] == [[], []]


def last_line(program):
    """The number of the last line that the process has told."""
    with urllib.request.urlopen(program.url.replace("/?", "/events?"), timeout=60) as events:
        for text in events:
            if text.startswith(b"data:"):
                if lines := json.loads(text[5:]).get("lines"):
                    return lines[-1]["number"]
    raise AssertionError("the process has ended")


def test_says_how_many_lines_were_left_out(busy, tmp_path):
    """To who does not read for a while the process tells its last lines again, and no others."""
    out, told = tmp_path / "out", tmp_path / "told"
    with open(out, "w") as lines_to, open(told, "w") as told_to:
        running = subprocess.Popen(
            [os.environ["POSTERN_COMMAND"], "attach", busy.pid, "noise", "--print"],
            stdout=lines_to,
            stderr=told_to,
        )

        def shows_more():
            before, end = out.stat().st_size, time.monotonic() + 60
            while out.stat().st_size == before:
                assert time.monotonic() < end and running.poll() is None
                time.sleep(0.05)

        def does_not_read(lines):
            running.send_signal(signal.SIGSTOP)
            wanted, end = last_line(busy) + lines, time.monotonic() + 240
            while last_line(busy) < wanted:
                assert time.monotonic() < end
                time.sleep(0.2)
            running.send_signal(signal.SIGCONT)
            shows_more()
            time.sleep(1)

        shows_more()
        for lines in (5_000, 20_000, 80_000):  # what sockets hold on the way is the system's
            does_not_read(lines)
            if "lines came too fast and were left out" in told.read_text():
                break
        else:
            pytest.fail("no lines were left out")
        does_not_read(1_000)
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == 0
    lines = out.read_text().splitlines()
    assert all(line.startswith("noise = [") for line in lines)
    assert len(lines) > 100 and len(set(lines)) == len(lines)


def test_records_where_the_user_is(program, tmp_path):
    done = attach(program.pid, "noise", "--record", "noise.npy", "--until", 7, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "noise.npy").shape == (7, 256)
    # whole when it is closed
    done = attach(program.pid, "noise", "--record", "noise.npz", "--until", 7, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "noise.npz") as kept:
        assert kept[kept.files[0]].shape == (7, 256)
    done = attach(program.pid, "noise", "--checkpoint", "kept", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for _ in range(100):
        if list((tmp_path / "kept").rglob("manifest")):
            break
        time.sleep(0.1)
    assert list((tmp_path / "kept").rglob("*.safetensors"))
    # That program lets no page make files.
    done = attach(program.url, "noise", "--record", "noise.npy")
    assert done.returncode == 2 and "ServeOptions::folder" in done.stderr


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_a_record_that_a_full_disk_lost_is_an_error(program, tmp_path, kind):
    (tmp_path / f"full.{kind}").symlink_to("/dev/full")
    done = attach(program.pid, "noise", "--record", f"full.{kind}", "--until", 3, cwd=tmp_path)
    assert done.returncode == 3 and "No space left on device" in done.stderr, done.stderr


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_what_it_turned_on_ends_with_it(program, how):
    running = subprocess.Popen(
        [os.environ["POSTERN_COMMAND"], "attach", program.pid, "noise", "--stats"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "noise: firing" in running.stdout.readline()
    assert [x["what"] for x in hooks(program.pid)[0]["listeners"]] == ["stats"]
    running.send_signal(how)
    running.communicate(timeout=20)
    if how == signal.SIGINT:
        assert running.returncode == 0
    for _ in range(100):
        if not hooks(program.pid)[0]["listeners"]:
            break
        time.sleep(0.1)
    assert hooks(program.pid)[0]["listeners"] == []


def test_ends_the_run():
    program = Program()
    while "noise" not in attach(program.pid).stdout:
        time.sleep(0.1)
    done = attach(program.pid, "noise", "--end")
    assert done.returncode == 0, done.stderr
    program.process.communicate("\n", timeout=30)
    done = attach(program.pid, "noise", "--stats")
    assert done.returncode == 3 and "does not listen" in done.stderr


def test_errors_say_the_cure(program):
    for arguments, text in [
        ((program.pid, "nothing", "--stats"), "no live hook 'nothing'; it has noise"),
        ((program.pid, "noise"), "say what is to listen there"),
        ((program.pid, "--stats"), "name the hooks to listen at"),
        (("http://127.0.0.1:1/", "noise", "--stats"), "nothing listens at 127.0.0.1:1"),
        (("what", "noise", "--stats"), "neither a number of a process nor"),
        ((program.url.split("?")[0],), "needs the token"),
        ((program.pid, "noise", "--stats", "--every", 0), "--every"),
        (("1",), "process 1 does not listen"),
    ]:
        done = attach(*arguments)
        assert done.returncode != 0 and text in done.stderr, done.stdout + done.stderr


def test_a_process_is_reached_only_when_it_is_asked_to():
    without_page = ("100000", "5", "-")
    asked = Program({"POSTERN_ATTACH": "1"}, without_page).wait()
    assert asked.url == ""
    done = attach(asked.pid, "noise", "--stats", "--until", 1)
    assert done.returncode == 0 and "noise: firing 0 " in done.stdout, done.stderr
    asked.end()
    for quiet in (Program({"POSTERN_ATTACH": "0"}), Program({}, without_page)):
        assert quiet.process.stdout.readline().startswith("loss ")  # its hook has been passed
        assert "does not listen" in attach(quiet.pid).stderr
        quiet.end()
