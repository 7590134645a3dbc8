"""python -m postern --cmake-dir tells C++ projects where the package for find_package is;
anything else is the command's to do.
"""

from __future__ import annotations

import os
import pathlib
import sys
import typing

FOLDER = pathlib.Path(__file__).resolve().parent
HELP = (
    "usage: python -m postern --cmake-dir | --include-dir | COMMAND [ARGUMENTS]; "
    "see python -m postern --help"
)


def _there(path: pathlib.Path) -> pathlib.Path:
    if path.exists():
        return path
    sys.exit(f"postern: {path} is not there: this is no installed package")


def main(arguments: typing.Sequence[str] | None = None) -> None:
    """What the wheel's script `postern` calls."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--cmake-dir"]:
        print(_there(FOLDER / "lib" / "cmake" / "postern"))
    elif given == ["--include-dir"]:
        print(_there(FOLDER / "include"))
    elif not given:
        sys.exit(HELP)
    else:
        command = _there(FOLDER / "bin" / "postern")
        os.execv(command, [str(command), *given])


if __name__ == "__main__":
    main()
