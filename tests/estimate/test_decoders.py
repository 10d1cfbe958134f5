"""What the decoders of board time say of instructions: `<instruction set>.txt` holds, line by line,
an instruction as an assembler takes it and what is decoded of it."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from tests.support.decoders import A64, Insn, Isa, assemble, decode, library, shown

_HERE = Path(__file__).parent
_ISAS = (A64,)
_names = {"ids": lambda isa: isa.name}


def _golden(isa: Isa) -> list[list[str]]:
    lines = (_HERE / f"{isa.name}.txt").read_text().splitlines()
    return [line.split(" ; ") for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("isa", _ISAS, **_names)
def test_an_instruction_is_what_the_manual_says(isa: Isa):
    golden = _golden(isa)
    found = decode(isa, assemble(isa, "\n".join(text for text, _ in golden)))
    assert len(found) == len(golden)
    for (text, expected), insn in zip(golden, found, strict=True):
        assert f"{text}: {shown(insn)}" == f"{text}: {expected}"


@pytest.mark.parametrize("isa", _ISAS, **_names)
def test_any_word_decodes_to_something_that_is_within_bounds(isa: Isa):
    # The library traps undefined behavior: shifts too far, places outside of lists.
    words = random.Random(1)
    for _ in range(20000):
        code = struct.pack("<I", words.getrandbits(32))
        for insn in decode_some(isa, code):
            _assert_bounded(insn)


def decode_some(isa: Isa, code: bytes) -> list[Insn]:
    """The instructions of four bytes: one, or one of two bytes and what follows."""
    return decode(isa, code + b"\0\0")[:1] if isa.name in ("rv64", "t32") else decode(isa, code)


def _assert_bounded(insn: Insn) -> None:
    assert insn.length in (2, 4)
    assert insn.reads | insn.writes <= set(range(100))
    assert insn.sources <= 40 and insn.destinations <= 36
    if insn.accumulators:
        assert insn.accumulator + insn.accumulators <= insn.sources
    if insn.kind == "unknown":
        assert not (insn.sources or insn.destinations or insn.memory or insn.branch)
    if insn.memory and insn.base != 255:
        assert insn.base in insn.reads


def test_what_is_cut_off_is_no_instruction():
    assert library().ek_decode_a64(b"\x1f\x20\x03\xd5", 3, 0, None) == 0


def test_numbers_that_name_nothing_have_names_that_say_so():
    for number in (-1, 0, 1000):
        assert library().ek_class_name(number) == b"unknown"
        assert library().ek_feature_name(number) == b"base"


def test_every_class_is_at_last_like_one_that_is_like_itself():
    names = library()
    for first in range(1, 200):
        number, steps = first, 0
        while names.ek_class_like(number) != number:
            number, steps = names.ek_class_like(number), steps + 1
            assert steps < 10
