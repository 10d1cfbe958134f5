"""Python environments that are fetched when they are first needed.

Packages that edgekit does not depend on are installed as wheels into a virtual environment in the
cache folder (`edgekit cache --clean` removes it), leaving the user's own untouched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence

from edgekit.host.common.files import locked
from edgekit.host.common.paths import cache_folder
from edgekit.host.errors import InputError

_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")
_PATIENCE = ("--retries", "1", "--timeout", "15", "--only-binary", ":all:")
_INSTALL_S = 1800.0
_OFF = "EDGEKIT_NO_FETCH"


def environment(
    name: str,
    installs: Sequence[Sequence[Sequence[str]]],
    tell: Callable[[str], None],
    base: str = sys.executable,
) -> str:
    """The Python of the environment `name`, created from the interpreter `base` if needed.

    installs: what is installed, one after the other, each as alternatives of which the first that
    is available is taken: packages, or options of pip with packages. tell: reports progress. Raises
    InputError with the reason.
    """
    folder = cache_folder() / "engines" / name
    python = folder / "bin" / "python"
    with locked(folder.with_suffix(".lock")):
        if not (folder / "ready").is_file() or not python.exists():
            if _OFF in os.environ:
                raise InputError(f"not installed, and {_OFF} is set; unset it to fetch it")
            tell(f"fetching {name}, once")
            shutil.rmtree(folder, ignore_errors=True)
            _run([base, "-m", "venv", str(folder)], "a virtual environment")
            for alternatives in installs:
                _install_one(str(python), alternatives)
            (folder / "ready").touch()
    return str(python)


def _install_one(python: str, alternatives: Sequence[Sequence[str]]) -> None:
    for number, each in enumerate(alternatives, 1):
        try:
            _install(python, each)
        except InputError:
            if number == len(alternatives):
                raise
        else:
            return


def _install(python: str, packages: Sequence[str]) -> None:
    what = " and ".join(word for word in packages if not word.startswith("-"))
    _run([python, *_PIP, *_PATIENCE, *packages], what)


def _run(command: Sequence[str], what: str) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_INSTALL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"not installed, and {what} could not be installed: {error}") from None
    if done.returncode:
        errors = [x for x in done.stderr.decode(errors="replace").splitlines() if "ERROR" in x]
        why = errors[-1].replace("ERROR:", "").strip() if errors else f"exit {done.returncode}"
        raise InputError(f"not installed, and {what} could not be installed: {why[:200]}")
