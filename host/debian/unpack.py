"""Extracts a package's files into a directory tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

from edgekit.host.debian.tools import BoardToolError, find_tools

_HEADERS = "./usr/include*"
_LEFT_OUT = (
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


def unpack(package: Path, target: Path, headers: bool = False) -> None:
    """Extracts the files of a package, except documentation and, by default, headers, into a
    tree."""
    tools = find_tools(["dpkg-deb", "tar"])
    command = [tools["tar"], "-x", "-C", str(target), "--keep-directory-symlink"]
    left_out = _LEFT_OUT if headers else (_HEADERS, *_LEFT_OUT)
    command += ["--no-same-owner", "--same-permissions", *(f"--exclude={p}" for p in left_out)]
    listing = [tools["dpkg-deb"], "--fsys-tarfile", str(package)]
    with subprocess.Popen(listing, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as source:
        done = subprocess.run(
            command, stdin=source.stdout, capture_output=True, text=True, check=False
        )
    if source.returncode or done.returncode:
        raise BoardToolError(
            f"{package.name}: expected to unpack it, found: {done.stderr.strip()[-200:]}; try again"
        )
