"""Compares the simulator's decoders with llvm-objdump on random instructions.

    python -m tests.long.decoders --count 50000 [--seed 1] [a64 rv64 a32 t32]

The registers that an instruction names must be exactly those decoded as read or written.
Instructions known to only one side are counted, not failed: each side has extensions that the other
lacks. Needs Debian's package `llvm`. Prints each kind of difference once; exit code 1 if there are
any.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.decoders import A32, A64, CALL, RV64, T32, Insn, Isa, decode

_RV_INTEGERS = "zero ra sp gp tp t0 t1 t2 s0 s1 " + " ".join(
    [
        *(f"a{i}" for i in range(8)),
        *(f"s{i}" for i in range(2, 12)),
        *(f"t{i}" for i in range(3, 7)),
    ]
)
_RV_FLOATS = [f"ft{i}" for i in range(8)] + ["fs0", "fs1"] + [f"fa{i}" for i in range(8)]
_RV_FLOATS += [f"fs{i}" for i in range(2, 12)] + [f"ft{i}" for i in range(8, 12)]
_ARM_NAMES = {"sp": 13, "lr": 14, "sb": 9, "sl": 10, "fp": 11, "ip": 12}
# Names that are not operands, or registers without a number.
_NOISE = re.compile(r"#-?(0x)?[0-9a-f]+|0x\w+|\b([ac]psr|spsr|fp(scr|sid|exc|inst)|mvfr)\w*")


def _a64(text: str) -> set[int]:
    found = {31} if re.search(r"\bw?sp\b", text) else set()
    for first, last in re.findall(r"\bv(\d+)\.\w+\s*-\s*v(\d+)", text):
        count = (int(last) - int(first)) % 32
        found |= {32 + (int(first) + i) % 32 for i in range(count + 1)}
    for kind, number in re.findall(r"\b([wxvqdshb])(\d+)\b", text):
        found.add(int(number) + (0 if kind in "wx" else 32))
    return found


def _rv64(text: str) -> set[int]:
    found, integers = set(), _RV_INTEGERS.split()
    for word in re.findall(r"[a-z]+\d*", text):
        if word in integers[1:]:
            found.add(integers.index(word))
        elif word in _RV_FLOATS:
            found.add(32 + _RV_FLOATS.index(word))
        elif re.fullmatch(r"v\d+", word):
            found.add(64 + int(word[1:]))
    return found


def _arm_register(kind: str, number: int) -> set[int]:
    if kind == "r":
        return {number}
    if kind == "s":
        return {32 + number}
    if kind == "q":
        return _arm_register("d", 2 * number) | _arm_register("d", 2 * number + 1)
    return {32 + 2 * number, 33 + 2 * number} if number < 16 else {48 + number}


def _arm(text: str) -> set[int]:
    found = {number for name, number in _ARM_NAMES.items() if re.search(rf"\b{name}\b", text)}
    for kind, first, last in re.findall(r"\b([rsdq])(\d+)(?:-[rsdq](\d+))?", text):
        for number in range(int(first), int(last or first) + 1):
            found |= _arm_register(kind, number)
    return found


@dataclass(frozen=True)
class _Checked:
    """An instruction set: its LLVM name, how to draw a random instruction, its registers in
    text."""

    isa: Isa
    triple: str
    features: str
    registers: Callable[[str], set[int]]
    skipped: str  # mnemonics whose text has no operands, or does not name the registers accessed
    link: int  # written by calls


_A64_FEATURES = "+v8.6a,+aes,+sha2,+sha3,+sm4,+fullfp16,+fp16fml,+mte,+bf16,+i8mm,+rcpc-immo"
_ARM_FEATURES = "+neon,+vfp4,+fp16,+hwdiv,+hwdiv-arm,+mp"
_ARM_SKIPPED = "v?push|v?pop|cdp|.*ldr|.*str|rev|rbit|clz|ldm|vld|vst"
_CHECKED = {
    "a64": _Checked(A64, "aarch64", _A64_FEATURES, _a64, "ms?r|mrs|sys|casp|ret|at|dc|ic", 30),
    "rv64": _Checked(
        RV64, "riscv64", "+m,+a,+f,+d,+c,+v,+zba,+zbb,+zbs,+zbc,+zfh", _rv64, "c.jalr", 1
    ),
    "a32": _Checked(A32, "armv7a", _ARM_FEATURES, _arm, _ARM_SKIPPED, 14),
    "t32": _Checked(T32, "thumbv7a", _ARM_FEATURES, _arm, _ARM_SKIPPED, 14),
}
_RV_OPCODES = (0x57, 0x57, 0x57, 0x07, 0x27, 0x53, 0x13, 0x33, 0x1B, 0x3B, 0x2F, 0x43, 0x63, 0x03)


def _drawn(name: str, rng: random.Random) -> bytes:
    word = rng.getrandbits(32)
    if name == "a64" and rng.random() < 0.4:
        word |= rng.choice((31 << 16, 31 << 10, 31 << 5))
    elif name == "rv64":
        if rng.random() < 0.25:
            return ((word & 0xFFFC) | rng.choice((0, 1, 2))).to_bytes(2, "little")
        word = word & ~127 | rng.choice(_RV_OPCODES)
    elif name == "a32":
        top = rng.choice((0xE, 0xE, 0xF2, 0xF3, 0xF4))
        word = word & 0xFFFFFFF | 0xE << 28 if top == 0xE else word & 0xFFFFFF | top << 24
    elif name == "t32":
        high = rng.choice((0xE800, 0xEA00, 0xEE00, 0xEF00, 0xF000, 0xF800, 0xFA00, 0xFF00, 0x4000))
        high |= rng.getrandbits(9)
        narrow = high.to_bytes(2, "little")
        return narrow if high == 0x4000 else narrow + (word & 0xFFFF).to_bytes(2, "little")
    return word.to_bytes(4, "little")


def _disassembled(checked: _Checked, codes: list[bytes]) -> list[str]:
    """One text per instruction; each gets a symbol, at which objdump restarts decoding."""
    lines = [".syntax unified"] if checked.registers is _arm else []
    for at, code in enumerate(codes):
        if checked.isa is T32:
            lines.append(".thumb_func")
        halves = [int.from_bytes(code[i : i + 2], "little") for i in range(0, len(code), 2)]
        value = int.from_bytes(code, "little")
        if checked.isa is T32:
            value = halves[0] << 16 | halves[1] if len(halves) > 1 else halves[0]
        data = f".{len(code)}byte {value}" if checked.isa is RV64 else f".inst {value:#x}"
        if checked.isa is T32:
            data = data.replace(".inst", ".inst.w" if len(code) == 4 else ".inst.n")
        lines += [f"at{at}:", data]
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "text.s", Path(folder) / "text.o"
        source.write_text("\n".join(lines) + "\n")
        flags = [f"--triple={checked.triple}", f"--mattr={checked.features}"]
        command = ["llvm-mc", *flags, "--filetype=obj", str(source), "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True)
        command = ["llvm-objdump", "-d", "--no-show-raw-insn", *flags, "-M", "no-aliases"]
        command = command if checked.registers is not _arm else command[:-2]
        done = subprocess.run([*command, str(made)], check=True, capture_output=True, text=True)
    found = [""] * len(codes)
    for block in re.split(r"\n[0-9a-f]+ <at", done.stdout)[1:]:
        number, _, rest = block.partition(">:\n")
        found[int(number)] = rest.split("\n")[0].partition(":")[2].strip()
    return found


def _difference(checked: _Checked, text: str, insn: Insn) -> str | None:
    """Describe what is wrong in one line; "" if only one side knows the instruction."""
    mnemonic, _, operands = text.partition("\t")
    unknown = not mnemonic or "unknown" in mnemonic or mnemonic.startswith(("udf", "unimp", "."))
    if unknown or insn.kind == "unknown":
        return None if unknown == (insn.kind == "unknown") else ""
    if re.match(rf"({checked.skipped})", mnemonic) or "pc" in operands:
        return None
    named = checked.registers(_NOISE.sub("", re.split("//|@|<", operands)[0]))
    decoded = {reg for reg in insn.reads | insn.writes if reg < 96}
    if insn.branch & CALL:
        named, decoded = named | {checked.link}, decoded | {checked.link}
    if named == decoded:
        return None
    return f"{mnemonic} {operands}: named {sorted(named)}, {insn.kind} has {sorted(decoded)}"


def _check(name: str, count: int, seed: int) -> int:
    checked, rng, one_sided = _CHECKED[name], random.Random(seed), 0
    codes = [_drawn(name, rng) for _ in range(count)]
    wrong: dict[str, str] = {}
    for code, text in zip(codes, _disassembled(checked, codes), strict=True):
        said = _difference(checked, text, decode(checked.isa, code + b"\0\0\0\0")[0])
        one_sided += said == ""
        if said:
            wrong.setdefault(text.partition("\t")[0], f"{code.hex()}: {said}")
    for line in wrong.values():
        print(f"{name}: {line}")
    print(f"{count} instructions of {name}, {len(wrong)} differ, one of the two knows {one_sided}")
    return len(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=50000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("isas", nargs="*", default=list(_CHECKED))
    arguments = parser.parse_args()
    return 1 if sum(_check(i, arguments.count, arguments.seed) for i in arguments.isas) else 0


if __name__ == "__main__":
    sys.exit(main())
