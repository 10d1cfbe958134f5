"""Extracts a package's files into a directory tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

from edgekit.host.debian.tools import BoardToolError, find_tools

_LEFT_OUT = (
    "./usr/include*",
    "./usr/lib/*/gconv*",
    "./usr/share/bash-completion*",
    "./usr/share/doc*",
    "./usr/share/info*",
    "./usr/share/lintian*",
    "./usr/share/locale*",
    "./usr/share/man*",
    "./usr/share/zoneinfo*",
    "*.a",
    "*/numpy/*/tests",
    "*/numpy/f2py*",
)


def unpack(package: Path, target: Path) -> None:
    """Extracts the files of a package, except documentation, into a tree."""
    tools = find_tools(["dpkg-deb", "tar"])
    command = [tools["tar"], "-x", "-C", str(target), "--keep-directory-symlink"]
    command += ["--no-same-owner", "--same-permissions", *(f"--exclude={p}" for p in _LEFT_OUT)]
    listing = [tools["dpkg-deb"], "--fsys-tarfile", str(package)]
    with subprocess.Popen(listing, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as source:
        done = subprocess.run(
            command, stdin=source.stdout, capture_output=True, text=True, check=False
        )
    if source.returncode or done.returncode:
        raise BoardToolError(
            f"{package.name}: expected to unpack it, found: {done.stderr.strip()[-200:]}; try again"
        )
