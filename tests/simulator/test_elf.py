"""Checks of programs to estimate: the board's architecture, and available libraries."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from edgekit.host.errors import InputError
from edgekit.host.simulator.elf import check_program
from edgekit.kb.targets.board import load_board

_LOADER = "/lib/ld-linux-aarch64.so.1"


def _program(path: Path, machine: int = 183, loader: str = "") -> Path:
    """Writes a 64-bit ELF file with one program header, which may name a loader."""
    head = bytearray(256)
    head[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<H", head, 18, machine)
    struct.pack_into("<Q", head, 32, 64)
    struct.pack_into("<HH", head, 54, 56, 1)
    struct.pack_into("<I", head, 64, 3 if loader else 1)
    struct.pack_into("<Q", head, 72, 128)
    head[128 : 128 + len(loader)] = loader.encode()
    path.write_bytes(bytes(head))
    return path


def test_a_static_program_of_the_architecture_is_taken(tmp_path):
    check_program(_program(tmp_path / "program"), load_board("rpi4"), None)


def test_a_program_finds_its_loader_in_the_root(tmp_path):
    program = _program(tmp_path / "program", loader=_LOADER)
    (tmp_path / "lib").mkdir()
    (tmp_path / _LOADER[1:]).touch()
    check_program(program, load_board("rpi4"), tmp_path)


@pytest.mark.parametrize(
    ("made", "root", "message"),
    [
        ({"machine": 243}, None, r"program for aarch64 \(rpi4\), found one for riscv64"),
        ({"machine": 8}, None, "found one for machine 8"),
        ({"loader": _LOADER}, None, "dynamic program and no root; link it with -static"),
        ({"loader": _LOADER}, "", f"expected a system root with {_LOADER}, found none"),
    ],
)
def test_a_program_that_cannot_run_is_refused_in_one_line(made, root, message, tmp_path):
    program = _program(tmp_path / "program", **made)
    with pytest.raises(InputError, match=message) as error:
        check_program(program, load_board("rpi4"), None if root is None else tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x02" + bytes(99)]
)
def test_an_invalid_program_is_refused(content, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"expected a program for Linux \(ELF\)"):
        check_program(path, load_board("rpi4"), None)


@pytest.mark.parametrize(("name", "found"), [("", "a folder"), ("none", "no such file")])
def test_a_path_that_names_no_file_is_refused(name, found, tmp_path):
    with pytest.raises(InputError, match=f"expected a program, found {found}"):
        check_program(tmp_path / name, load_board("rpi4"), None)
