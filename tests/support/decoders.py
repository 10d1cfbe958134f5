"""Python bindings for the decoders of `host/simulator/plugin`, and an assembler (zig's)."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import edgekit.host
from tests.support.patience import PROCESS
from tests.support.toolchains import program_compiler

PLUGIN = Path(next(iter(edgekit.host.__path__))) / "simulator" / "plugin"
_SOURCES = ("insn.c", "pattern.c", "a64*.c", "rv64*.c", "a32*.c")
_ZIG = (sys.executable, "-m", "ziglang")

FLAGS, FP_FLAGS, GE, VL = 96, 97, 98, 99
LOAD, STORE, PREFETCH = 1, 2, 4
CONDITIONAL, INDIRECT, CALL, RETURN, JUMP = 1, 2, 4, 8, 16
NO_REGISTER = 255


class Group(ctypes.Structure):
    """struct ek_group"""

    _fields_ = (
        *((name, ctypes.c_uint8) for name in ("reg", "scale", "bits", "fields")),
        ("written", ctypes.c_bool),
        ("single", ctypes.c_bool),
        ("added", ctypes.c_bool),
    )


class Insn(ctypes.Structure):
    """struct ek_insn"""

    _fields_ = (
        ("number", ctypes.c_uint16),
        ("length", ctypes.c_uint8),
        ("feature_number", ctypes.c_uint8),
        ("width", ctypes.c_uint16),
        ("element", ctypes.c_uint16),
        ("sources", ctypes.c_uint8),
        ("destinations", ctypes.c_uint8),
        ("source", ctypes.c_uint8 * 40),
        ("destination", ctypes.c_uint8 * 36),
        ("accumulator", ctypes.c_uint8),
        ("accumulators", ctypes.c_uint8),
        ("memory", ctypes.c_uint8),
        ("registers", ctypes.c_uint8),
        ("bytes", ctypes.c_uint16),
        ("base", ctypes.c_uint8),
        ("index", ctypes.c_uint8),
        ("index_shift", ctypes.c_uint8),
        ("write_back", ctypes.c_uint8),
        ("offset", ctypes.c_int32),
        ("step", ctypes.c_int32),
        ("predicated", ctypes.c_bool),
        ("reads_counter", ctypes.c_bool),
        ("branch", ctypes.c_uint8),
        ("target", ctypes.c_uint64),
        ("sets_vtype", ctypes.c_bool),
        ("vtype", ctypes.c_uint16),
        ("avl", ctypes.c_int16),
        ("groups", ctypes.c_uint8),
        ("group", Group * 4),
    )

    @property
    def kind(self) -> str:
        return str(library().ek_class_name(self.number).decode())

    @property
    def feature(self) -> str:
        return str(library().ek_feature_name(self.feature_number).decode())

    @property
    def reads(self) -> set[int]:
        return set(self.source[: self.sources])

    @property
    def writes(self) -> set[int]:
        return set(self.destination[: self.destinations])

    @property
    def accumulates(self) -> set[int]:
        first = self.accumulator
        return set(self.source[first : first + self.accumulators]) if self.accumulators else set()


@functools.cache
def library() -> ctypes.CDLL:
    """Build the decoders as a shared library for this machine."""
    sources = [str(path) for name in _SOURCES for path in sorted(PLUGIN.glob(name))]
    flags = ("-std=gnu11", "-g0", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fPIC", "-shared")
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "decoders.so"
        command = (*program_compiler(), *flags, "-o", str(made), *sources)
        subprocess.run(command, check=True, timeout=PROCESS)
        loaded = ctypes.CDLL(str(made))
    loaded.ek_is_t32.restype = loaded.ek_rv64_resolve.restype = ctypes.c_bool
    loaded.ek_class_name.restype = loaded.ek_feature_name.restype = ctypes.c_char_p
    return loaded


@dataclass(frozen=True)
class Isa:
    """How to assemble and decode one instruction set."""

    name: str  # decoder name
    target: str
    header: str = ""  # prepended to assembly text
    cpu: str = ""
    it: bool = False  # T32


_ARMV8 = "armv8.6-a+aes+sha2+sha3+sm4+fp16+fp16fml+memtag+rng"
A64 = Isa("a64", "aarch64-linux-gnu", f".arch {_ARMV8}\n")
_RV64 = "rv64gcv_zba_zbb_zbc_zbs_zfh_zvfh_zvbb_zicond_zicbom_zicbop_zicboz"
RV64 = Isa("rv64", "riscv64-linux-gnu", f".option arch, {_RV64}\n")
T32 = Isa("t32", "thumb-linux-gnueabihf", ".syntax unified\n.thumb\n", "cortex_a7", it=True)
A32 = Isa("a32", "arm-linux-gnueabihf", ".syntax unified\n.arm\n", "cortex_a7")


def decode(isa: Isa, code: bytes, pc: int = 0x1000) -> list[Insn]:
    """Decode `code`, which must end on an instruction boundary."""
    function = getattr(library(), f"ek_decode_{isa.name}")
    state, found, at = ctypes.c_uint8(0), [], 0
    while at < len(code):
        rest, out = code[at:], Insn()
        arguments = [rest, ctypes.c_size_t(len(rest)), ctypes.c_uint64(pc + at)]
        arguments += [ctypes.byref(state)] if isa.it else []
        length = function(*arguments, ctypes.byref(out))
        assert 0 < length <= len(rest)
        found.append(out)
        at += length
    return found


def assemble(isa: Isa, text: str) -> bytes:
    """Assemble `text`, all of it in the text section, to machine code."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "text.s", Path(folder) / "text.o"
        source.write_text(f"{isa.header}.text\n{text}\n")
        cpu = (f"-mcpu={isa.cpu}",) if isa.cpu else ()
        command = (*_ZIG, "cc", "-target", isa.target, *cpu, "-c", str(source), "-o", str(made))
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROCESS)
        assert done.returncode == 0, done.stderr[-2000:]
        return text_section(made.read_bytes())


def text_section(elf: bytes) -> bytes:
    """All executable sections of an ELF file, concatenated."""
    wide = elf[4] == 2
    number = lambda at, size: int.from_bytes(elf[at : at + size], "little")  # noqa: E731
    table, size, count = (
        (number(40, 8), number(58, 2), number(60, 2))
        if wide
        else (number(32, 4), number(46, 2), number(48, 2))
    )
    found = b""
    for each in range(table, table + size * count, size):
        flags = number(each + 8, 8 if wide else 4)
        at, length = (
            (number(each + 24, 8), number(each + 32, 8))
            if wide
            else (number(each + 16, 4), number(each + 20, 4))
        )
        if flags & 4 and number(each + 4, 4) == 1:
            found += elf[at : at + length]
    return found


def shown(insn: Insn) -> str:
    """One line: class, bits, registers written, registers read (`+`: added last), access,
    branch."""
    named = lambda regs: " ".join(register(reg) for reg in regs)  # noqa: E731
    first, last = insn.accumulator, insn.accumulator + insn.accumulators
    listed = list(insn.source[: insn.sources])
    parts = [insn.kind, f"{insn.width}x{insn.element}" if insn.element else ""]
    if insn.feature != "base":
        parts.append(insn.feature)
    parts += [named(insn.destination[: insn.destinations]), "<"]
    for at, reg in enumerate(listed):
        parts.append(("+" if insn.accumulators and first <= at < last else "") + register(reg))
    return " ".join(each for each in (*parts, *_access(insn), *_branch(insn)) if each)


def _access(insn: Insn) -> list[str]:
    if not insn.memory:
        return [f"step {insn.step}"] if insn.step else []
    every = (("load", LOAD), ("store", STORE), ("prefetch", PREFETCH))
    kinds = [name for name, bit in every if insn.memory & bit]
    place = "pc" if insn.base == NO_REGISTER else register(insn.base)
    if insn.index != NO_REGISTER:
        place += f"+{register(insn.index)}<<{insn.index_shift}"
    after = ("", "before", "after")[insn.write_back]
    text = f"{insn.bytes}[{place}{insn.offset:+}]{after}{insn.step if insn.write_back else ''}"
    return ["|".join(kinds), text]


def _branch(insn: Insn) -> list[str]:
    names = ("conditional", "indirect", "call", "return", "jump")
    said = [name for at, name in enumerate(names) if insn.branch >> at & 1]
    said += [f"to {insn.target:#x}"] if insn.target else []
    said += ["predicated"] if insn.predicated else []
    return [*said, "counter"] if insn.reads_counter else said


def register(reg: int) -> str:
    """i: integer, f: float or A64 vector, v: RV64 vector or upper half of an A32 vector."""
    special = {FLAGS: "flags", FP_FLAGS: "fpflags", GE: "ge", VL: "vl"}
    return special.get(reg) or f"{'ifv'[reg // 32]}{reg % 32}"
