"""CPU features, read from kernel files."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.device.runtime import features
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.toolchain.kernels import features_unit
from edgekit.host.compiler.toolchain.zig import Toolchain, kernels_folder
from edgekit.kb.targets.board import cpu_flags, load_board


def test_this_machine() -> None:
    assert features.machine() == load_board("local").arch
    assert features.features()
    assert features.features() <= cpu_flags() | set("abcdefghijklmnopqrstuvwxyz")
    assert set(load_board("local").features) <= features.features()
    assert features.cores() == sorted(os.sched_getaffinity(0))
    memory = features.memory_bytes()
    assert memory.total is not None
    assert memory.available is not None
    assert 0 < memory.available <= memory.total


@pytest.mark.parametrize(
    "kernel, pointer_bytes, found",
    [
        ("aarch64", 8, "aarch64"),
        ("aarch64", 4, "armv7l"),
        ("armv8l", 4, "armv7l"),
        ("armv7l", 4, "armv7l"),
        ("riscv64", 8, "riscv64"),
    ],
)
def test_32_bit_programs_under_a_64_bit_kernel(kernel: str, pointer_bytes: int, found: str) -> None:
    assert features.machine_of(kernel, pointer_bytes) == found


def test_only_what_all_cores_have() -> None:
    text = "processor: 0\nFeatures\t: fp asimd asimddp\n\nprocessor: 1\nFeatures\t: fp asimd\n"
    assert features.parse_flags(text) == {"fp", "asimd"}
    assert features.parse_flags("nothing") == set()


def test_riscv_extensions() -> None:
    text = "isa\t: rv64imafdcv_zba_zbb\nisa\t: rv64imafdcv_zba\n"
    assert features.parse_riscv_isa(text) == {"zba"}


def test_vector_length_is_asked_with_the_right_instructions(tmp_path: Path) -> None:
    """The two instruction words of READ_VLENB match the assembler's output."""
    source, target = tmp_path / "vlenb.s", tmp_path / "vlenb.o"
    source.write_text(".option norvc\ncsrr a0, vlenb\nret\n")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "riscv64-linux-gnu"]
    command += ["-mcpu=baseline_rv64+v", "-c", "-o", str(target), str(source)]
    environment = {"ZIG_GLOBAL_CACHE_DIR": str(tmp_path), "ZIG_LOCAL_CACHE_DIR": str(tmp_path)}
    subprocess.run(command, check=True, env={**os.environ, **environment})
    assert struct.pack("<II", *features.READ_VLENB) in target.read_bytes()


def test_tile_registers_that_linux_does_not_give_are_none() -> None:
    text = "flags : avx512f amx_tile amx_int8\n"
    assert features.usable_flags(text, lambda: True) == {"avx512f", "amx_tile", "amx_int8"}
    assert features.usable_flags(text, lambda: False) == {"avx512f"}


def test_the_model_of_an_x86_cpu(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    text = "vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 17\nmodel name : AMD EPYC\n\n"
    file.write_text(text + text.replace("17", "18"))
    assert features.cpu_model(file) == "AuthenticAMD family 25 model 17"
    file.write_text("CPU part : 0xd07\nmodel : 3\n")
    assert features.cpu_model(file) == ""


def test_a_library_finds_the_features_that_the_runtime_finds(tmp_path: Path) -> None:
    local = load_board("local")
    listed = (kernels_folder() / "runtime" / "features.c").read_text()
    block = re.split(rf"__{local.arch}__\n", listed)[1].partition("};")[0]
    known = re.findall(r'\{"(\w+)",', block)
    present = [name for name in known if name in features.features()]
    absent = [name for name in known if name not in features.features()]
    assert present

    def missing(names: list[str]) -> str | None:
        units = [features_unit(replace(local, features=tuple(names)))]
        library = tmp_path / f"{len(list(tmp_path.iterdir()))}.so"  # each name is loaded once
        library.write_bytes(Toolchain(local, cache_folder() / "objects").build(units))
        ask = ctypes.CDLL(str(library)).ek_missing_feature
        ask.restype = ctypes.c_char_p
        found = ask()
        return None if found is None else found.decode()

    assert missing(present) is None
    assert [missing([*present, name]) for name in absent] == absent
