"""Needs SAVE_PROGRAMS: the program that writes what is loaded here."""

import os
import pathlib
import subprocess

import pytest

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "4")
os.environ.setdefault("JAX_PLATFORMS", "cpu")


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    subprocess.run([os.environ["SAVE_PROGRAMS"], str(folder)], check=True)
    return pathlib.Path(folder)
