"""Which JAX it is: one that Postern is tested with, or one that is tried here."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import pathlib
import platform
import threading
import typing
import warnings

import jax

OLDEST, NEWEST = (0, 9), (0, 12)
TRIED = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
CURE = (
    f"have pip install 'jax>={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}', "
    "or a newer Postern"
)
UNTRIED = jax.__version_info__[:2] > NEWEST
_LIMIT = 60  # seconds

if jax.__version_info__[:2] < OLDEST:
    raise ImportError(
        f"postern.jax: JAX {jax.__version__} is too old: "
        f"this version of Postern is tried with JAX {TRIED}; {CURE}"
    )
if UNTRIED:
    warnings.warn(
        f"postern.jax: JAX {jax.__version__} is untested with this version of Postern, "
        f"which is tried with JAX {TRIED}",
        stacklevel=3,
    )


def _refused(why: str) -> ImportError:
    return ImportError(
        f"postern.jax: JAX {jax.__version__} is newer than what this version of Postern "
        f"is tried with, {TRIED}, and {why}; {CURE}"
    )


@contextlib.contextmanager
def all_there() -> typing.Iterator[None]:
    """For the imports of what needs JAX's private modules."""
    try:
        yield
    except Exception as e:
        if not UNTRIED:
            raise
        raise _refused(f"lacks what is needed: {type(e).__name__}: {e}") from e


def _outcome_file() -> pathlib.Path:
    """What came of the self-test of these versions together."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.environ.get("POSTERN_CACHE_DIR") or os.path.join(home, "postern")
    versions = [platform.python_version(), jax.__version__, _installed("jaxlib")]
    return pathlib.Path(folder, "-".join(["jax-self-test", *versions, _installed("postern")]))


def _installed(what: str) -> str:
    try:
        return importlib.metadata.version(what)
    except importlib.metadata.PackageNotFoundError:
        return "0"


class _Trial(threading.local):
    running = False  # on this thread


_trial = _Trial()
_lock = threading.Lock()
_why: str | None = None if UNTRIED else ""  # refused; empty: all is well; None: not known yet


def settle() -> None:
    """Tests an untried version, once in all processes that share a cache folder.
    Raises ImportError that says what failed.
    """
    global _why
    if _why == "" or _trial.running:
        return
    with _lock:
        if _why is None:
            _why = _remembered()
    if _why:
        raise _refused(f"its self-test failed: {_why}")


def _remembered() -> str:
    try:
        return _outcome_file().read_text()
    except (OSError, ValueError, RuntimeError):
        pass
    why = _test()
    with contextlib.suppress(OSError, RuntimeError):  # a folder that cannot be written
        _outcome_file().parent.mkdir(parents=True, exist_ok=True)
        _outcome_file().write_text(why)
    return why


def _test() -> str:
    """What failed. On a thread of its own, so that nothing of the program that is being traced
    is in its way.
    """
    failed = [f"it did not end within {_LIMIT} s"]

    def run() -> None:
        _trial.running = True
        from ._self_test import passes

        try:
            passes()
            failed[:] = [""]
        except BaseException as e:
            failed[:] = [f"{type(e).__name__}: {e}".splitlines()[0]]

    thread = threading.Thread(target=run, name="postern.jax self-test", daemon=True)
    thread.start()
    thread.join(_LIMIT)
    return failed[0]
