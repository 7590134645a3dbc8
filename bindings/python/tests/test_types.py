"""The types that the package tells: the stub is that of the module,
and mypy finds nothing wrong with it or its use.
"""

import pathlib
import re
import subprocess
import sys

import postern
import pytest

PACKAGE = pathlib.Path(postern.__file__).resolve().parent

USE = """
import numpy as np
import postern
from typing_extensions import assert_type

@postern.function("demo.scale")
def scale(x: "np.typing.NDArray[np.float32]", *, factor: float, info: postern.Info) -> \
"np.typing.NDArray[np.float32]":
    return np.float32(factor) * x

program = postern.load("program.mlir")
assert_type(program.inputs, list[str])
assert_type(program.run(1.5)[0], postern.Tensor)
assert_type(program.start(np.float32(1)).wait(0.1), bool)
assert_type(scale(np.ones(1, np.float32), factor=2, info=postern.Info()), \
"np.typing.NDArray[np.float32]")
"""


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")  # NumPy's types are read once

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={cache}", *arguments],
            capture_output=True,
            text=True,
            timeout=300,
            cwd=PACKAGE.parent,
        )

    return run


def test_the_stub_is_the_modules(tmp_path):
    made = tmp_path / "_postern.pyi"
    subprocess.run(
        [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "postern._postern", "-o", str(made)],
        check=True,
        timeout=60,
    )
    text = made.read_text()
    # Python 3.12 and later lets one see that a tensor is a buffer.
    buffer = r'    def __buffer__\(self, flags, /\):\n        """\n.*\n        """\n\n'
    text = re.sub(buffer, "", text)
    assert (
        text == (PACKAGE / "_postern.pyi").read_text()
    ), "write it anew: python -m nanobind.stubgen"


def test_the_package_and_its_use_have_types(tmp_path, mypy):
    done = mypy("-p", "postern")
    assert done.returncode == 0, done.stdout
    use = tmp_path / "use.py"
    use.write_text(USE)
    done = mypy(str(use))
    assert done.returncode == 0, done.stdout


def test_wrong_uses_are_found(tmp_path, mypy):
    wrong = (
        "postern.load(5)",
        "program.start(1).wait('long')",
        "postern.register(5, print)",
        "program.inputs()",
    )
    use = tmp_path / "use.py"
    use.write_text(USE + "\n".join(wrong) + "\n")
    done = mypy(str(use))
    assert done.returncode == 1, done.stdout + done.stderr
    first = USE.count("\n") + 1
    found = {int(line) for line in re.findall(r"^.*use[.]py:(\d+): error", done.stdout, re.M)}
    assert found == set(range(first, first + len(wrong))), done.stdout
