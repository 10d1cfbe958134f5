"""Runs the host programs needed to build images."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.host.errors import EdgekitError, InputError

_PACKAGES = {
    "apt-get": "apt",
    "apt-cache": "apt",
    "apt-config": "apt",
    "cp": "coreutils",
    "debugfs": "e2fsprogs",
    "dpkg-deb": "dpkg",
    "mke2fs": "e2fsprogs",
    "qemu-system-aarch64": "qemu-system-arm",
    "qemu-system-arm": "qemu-system-arm",
    "qemu-system-riscv64": "qemu-system-misc",
    "ssh-keygen": "openssh-client",
    "tar": "tar",
}
_SYSTEM_FOLDERS = ("/usr/sbin", "/sbin")  # home of mke2fs, not in every user's PATH


class BoardToolError(EdgekitError):
    """A program was found but failed; `found` holds the end of its error output."""

    found = ""


def find_tools(programs: Sequence[str], what: str = "virtual boards") -> dict[str, str]:
    """Paths of the programs by name; InputError names the packages of all missing programs.

    `what` names the feature that needs them and begins the message.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_SYSTEM_FOLDERS])
    found = {name: shutil.which(name, path=path) for name in programs}
    missing = sorted(name for name, place in found.items() if place is None)
    if missing:
        wanted = sorted({_PACKAGES[name] for name in missing})
        raise InputError(
            f"{what}: expected {', '.join(missing)} on this machine, found none; "
            f"try: apt-get install {' '.join(wanted)}"
        )
    return {name: place for name, place in found.items() if place is not None}


def run_tool(
    command: Sequence[str | Path],
    *,
    what: str,
    seconds: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    text: str | None = None,
) -> str:
    """Runs a program and returns its standard output; on failure raises BoardToolError with the
    end of its error output.

    `what` describes the purpose in the message; `text` is the standard input.
    """
    program = Path(command[0]).name
    try:
        done = subprocess.run(
            [str(part) for part in command],
            env={**os.environ, "LC_ALL": "C", **(environment or {})},
            cwd=folder,
            input=text or "",
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BoardToolError(
            f"{what}: expected {program} to end within {seconds:.0f} s, found it still at work; "
            "try again"
        ) from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        found = lines[-1] if lines else f"exit code {done.returncode}"
        error = BoardToolError(f"{what}: expected {program} to succeed, found: {found}; try again")
        error.found = found
        raise error
    return done.stdout
