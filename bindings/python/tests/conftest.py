"""Needs SAVE_PROGRAMS: the program that writes what is loaded here.

With POSTERN_TEST_STAND_IN programs on CPUs call as those on GPUs do, by the stand-in for NVIDIA's
driver, which is in LD_LIBRARY_PATH; but for programs that tests start. The JAX of JAX_PLATFORMS is
tested, that of CPUs if nothing is said.
"""

import os
import pathlib
import subprocess

import pytest

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "4")
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def pytest_configure():
    if "POSTERN_TEST_STAND_IN" not in os.environ:
        return
    from postern import _postern

    guest, place = _postern.guest, _postern.guest_place
    _postern.guest = lambda platform: guest("cuda")

    def on_cpu():
        found = place()
        return found and ({"cuda": "cpu"}[found[0]], found[1])

    _postern.guest_place = on_cpu


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    subprocess.run([os.environ["SAVE_PROGRAMS"], str(folder)], check=True)
    return pathlib.Path(folder)
