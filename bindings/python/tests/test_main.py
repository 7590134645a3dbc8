"""python -m postern: what it tells C++ projects, and what it leaves to the command."""

import pathlib
import shutil
import subprocess
import sys

import postern

MAIN = pathlib.Path(postern.__file__).parent / "__main__.py"


def told(main, *arguments):
    done = subprocess.run(
        [sys.executable, str(main), *arguments], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def test_what_a_wheel_holds(tmp_path):
    main = shutil.copy(MAIN, tmp_path)
    for folder in ("lib/cmake/postern", "include", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    command = tmp_path / "bin" / "postern"
    command.write_text('#!/bin/sh\necho "asked: $@"\nexit 7\n')
    command.chmod(0o755)
    assert told(main, "--cmake-dir") == (0, str(tmp_path / "lib" / "cmake" / "postern"), "")
    assert told(main, "--include-dir") == (0, str(tmp_path / "include"), "")
    assert told(main, "doctor", "--quick") == (7, "asked: doctor --quick", "")


def test_what_is_not_there_is_said(tmp_path):
    main = shutil.copy(MAIN, tmp_path)
    for argument in ("--cmake-dir", "--include-dir", "doctor"):
        code, out, error = told(main, argument)
        assert (code, out) == (1, "") and error.endswith(
            "is not there: this is no installed package"
        )
    code, out, error = told(main)
    assert (code, out) == (1, "") and error.startswith("usage: python -m postern --cmake-dir")
