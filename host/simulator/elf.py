"""Reads a program's architecture and dynamic loader from the start of its file."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.common.text import printable
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import BoardProfile

_MACHINES = {3: "i686", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_HEAD = 1 << 16
_INTERPRETER = 3  # PT_INTERP


@dataclass(frozen=True)
class _Program:
    """`loader` is the dynamic loader it requests; empty for a static program."""

    arch: str
    loader: str


def check_program(path: Path, board: BoardProfile, root: Path | None) -> None:
    """Raises InputError if the file is not a program for the board's architecture, or if its
    libraries are unavailable."""
    found = _read_program(path)
    if found.arch != board.arch:
        raise InputError(
            f"{path}: expected a program for {board.arch} ({board.name}), found one for "
            f"{found.arch}; compile it for {board.arch}, or choose a board of {found.arch}"
        )
    if not found.loader:
        return
    if root is None:
        raise InputError(
            f"{path}: expected a static program or a system root with its libraries, found a "
            "dynamic program and no root; link it with -static, or give a root: "
            "--sysroot DIR or --sysroot fetch"
        )
    if not (root / found.loader.lstrip("/")).exists():
        raise InputError(
            f"{root}: expected a system root with {found.loader}, found none; name the folder "
            f"that has it (from Debian: libc6-*-cross in /usr/*-linux-gnu), or --sysroot fetch"
        )


def _read_program(path: Path) -> _Program:
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise InputError(f"{path}: expected a program, found {found}; name the program's file")
    with path.open("rb") as file:
        head = file.read(_HEAD)
    wrong = InputError(
        f"{path}: expected a program for Linux (ELF), found {printable(repr(head[:4]), 40)}; "
        "for a script, give its interpreter"
    )
    if len(head) < 64 or head[:4] != b"\x7fELF" or head[5] != 1:
        raise wrong
    wide = head[4] == 2
    machine = struct.unpack_from("<H", head, 18)[0]
    try:
        loader = _read_interpreter(head, wide)
    except struct.error:
        raise wrong from None
    return _Program(_MACHINES.get(machine, f"machine {machine}"), loader)


def _read_interpreter(head: bytes, wide: bool) -> str:
    table = struct.unpack_from("<Q" if wide else "<I", head, 32 if wide else 28)[0]
    size, count = struct.unpack_from("<HH", head, 54 if wide else 42)
    for at in range(table, table + size * count, size or 1):
        if struct.unpack_from("<I", head, at)[0] == _INTERPRETER:
            offset = struct.unpack_from("<Q" if wide else "<I", head, at + (8 if wide else 4))[0]
            return head[offset : offset + 256].partition(b"\0")[0].decode("utf-8", "replace")
    return ""
