"""The package has the version of the library, which the library's CMakeLists.txt says."""
import pathlib
import re

from setuptools import setup

cmake = (pathlib.Path(__file__).resolve().parent.parent.parent / "CMakeLists.txt").read_text()
setup(version=re.search(r"^project\(postern VERSION ([0-9.]+)", cmake, re.MULTILINE).group(1))
