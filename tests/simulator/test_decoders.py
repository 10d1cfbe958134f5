"""The simulator's instruction decoders against golden files.

Each line of `<instruction set>.txt` is an instruction in assembly and its expected decoding.
"""

from __future__ import annotations

import ctypes
import random
import struct
from pathlib import Path

import pytest

from tests.support.decoders import A32, A64, RV64, T32, Insn, Isa, assemble, decode, library, shown

_HERE = Path(__file__).parent
_ISAS = (A64, RV64, A32, T32)
_FMA = "v_fma 512x32 v v8 v9 v10 v11 < vl v12 f10 v13 v14 v15 +v8 +v9 +v10 +v11"
_LOADED = "load_v 1024x64 v v8 v9 v10 v11 v12 v13 v14 v15 < i10 vl load 0[i10+0]"
_SEGMENTS = "load_struct 384x8 v v8 v9 v10 < i10 vl load 0[i10+0]"
_names = {"ids": lambda isa: isa.name}


def _golden(isa: Isa) -> list[tuple[str, str]]:
    """(text, expected decoding) per line; the decoding is empty for a directive."""
    lines = (_HERE / f"{isa.name}.txt").read_text().splitlines()
    return [(text, said) for text, _, said in (line.partition(" ; ") for line in lines)]


@pytest.mark.slow
@pytest.mark.parametrize("isa", _ISAS, **_names)
def test_an_instruction_is_what_the_manual_says(isa: Isa):
    golden = _golden(isa)
    found = decode(isa, assemble(isa, "\n".join(text for text, _ in golden)))
    printed = [each for each in golden if each[1]]
    assert len(found) == len(printed)
    for (text, expected), insn in zip(printed, found, strict=True):
        assert f"{text}: {shown(insn)}" == f"{text}: {expected}"


@pytest.mark.parametrize("isa", _ISAS, **_names)
def test_any_word_decodes_to_something_that_is_within_bounds(isa: Isa):
    # The library traps undefined behavior such as oversized shifts and out-of-bounds indices.
    words = random.Random(1)
    for _ in range(5000):
        code = struct.pack("<I", words.getrandbits(32))
        for insn in decode_some(isa, code):
            _assert_bounded(insn)


def decode_some(isa: Isa, code: bytes) -> list[Insn]:
    """Decodes four bytes: one instruction, or a two-byte one and its successor."""
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


def test_a_truncated_instruction_is_none():
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


_BLOCKS = (
    "vmla.f32 q0, q1, d4[1]\nvld1.32 {d0-d3}, [r0]!\nsubs.w r2, r2, #1\nbne.w start",
    "vmov.f64 d0, d11\nvpop {d8-d9}\npop.w {r4-r10, pc}",
    "bl start",
    "bne.w start",
    "cmpeq.w r0, #1\nbne.w start",
)


@pytest.mark.parametrize("text", _BLOCKS)
def test_blocks_of_a32_and_t32_are_distinguished(text: str):
    a32 = assemble(A32, "start:\n" + text.replace(".w", ""))
    t32 = assemble(T32, "start:\n" + text.replace("cmpeq", "cmp"))
    assert not library().ek_is_t32(a32, ctypes.c_size_t(len(a32)))
    assert library().ek_is_t32(t32, ctypes.c_size_t(len(t32)))


def _resolved(text: str, vtype: str, vlen: int = 128) -> str:
    """Decodes `text` and resolves its register groups for `vtype`."""
    setting, insn = decode(RV64, assemble(RV64, f"vsetvli zero, zero, {vtype}\n{text}"))
    assert setting.sets_vtype
    if not library().ek_rv64_resolve(ctypes.byref(insn), setting.vtype, vlen):
        return "reserved"
    return shown(insn)


@pytest.mark.parametrize(
    ("text", "vtype", "expected"),
    [
        ("vfmacc.vf v8, fa0, v12", "e32, m4, ta, ma", _FMA),
        ("vadd.vv v8, v9, v10", "e8, mf2, ta, ma", "v_alu 64x8 v v8 < vl v9 v10"),
        ("vadd.vv v8, v8, v8", "e8, m2, ta, ma", "v_alu 256x8 v v8 v9 < vl v8 v9"),
        ("vwmul.vv v8, v10, v11", "e16, m1, ta, ma", "v_mul_long 256x32 v v8 v9 < vl v10 v11"),
        ("vnsra.wi v8, v10, 3", "e8, m1, ta, ma", "v_narrow 256x16 v v8 < vl v10 v11"),
        ("vzext.vf4 v8, v10", "e32, m2, ta, ma", "v_extend 256x32 v v8 v9 < vl v10"),
        ("vmseq.vv v0, v8, v10", "e16, m2, ta, ma", "v_compare 256x16 v v0 < vl v8 v10 v9 v11"),
        ("vredsum.vs v8, v10, v9", "e32, m2, ta, ma", "v_reduce 256x32 v v8 < vl v10 v9 v11"),
        ("vle8.v v8, (a0)", "e32, m4, ta, ma", "load_v 128x8 v v8 < i10 vl load 0[i10+0]"),
        ("vle64.v v8, (a0)", "e32, m4, ta, ma", _LOADED),
        ("vlseg3e8.v v8, (a0)", "e8, m1, ta, ma", _SEGMENTS),
        ("vl2re8.v v8, (a0)", "e8, m8, ta, ma", "load_v_multi 256x8 v v8 v9 < i10 load 0[i10+0]"),
        ("vfadd.vv v8, v9, v10", "e16, m1, ta, ma", "v_fadd 128x16 zvfh v8 < vl v9 v10"),
        ("vwmul.vv v8, v16, v24", "e16, m8, ta, ma", "reserved"),
        ("vzext.vf8 v8, v16", "e16, m1, ta, ma", "reserved"),
    ],
)
def test_registers_of_a_vector_instruction_follow_from_vtype(text: str, vtype: str, expected: str):
    assert _resolved(text, vtype) == expected


def test_an_accumulator_of_several_registers_is_one_run_of_sources():
    assert "+v8 +v9 +v10 +v11" in _resolved("vmacc.vv v8, v8, v12, v0.t", "e32, m4, ta, ma")


@pytest.mark.parametrize(
    ("text", "avl"),
    [
        ("vsetivli zero, 4, e32, m1, ta, ma", 4),
        ("vsetvli a0, a1, e32, m1, ta, ma", -1),
        ("vsetvli a0, zero, e32, m1, ta, ma", -2),
        ("vsetvli zero, zero, e32, m1, ta, ma", -3),
    ],
)
def test_the_requested_vector_length_is_decoded(text: str, avl: int):
    assert decode(RV64, assemble(RV64, text))[0].avl == avl


def test_any_vector_instruction_resolves_within_bounds():
    words = random.Random(2)
    for _ in range(5000):
        opcode = words.choice((0x57, 0x57, 0x07, 0x27))
        (insn,) = decode(RV64, struct.pack("<I", words.getrandbits(32) & ~127 | opcode))
        library().ek_rv64_resolve(ctypes.byref(insn), words.getrandbits(8), 1024)
        if insn.kind != "unknown":
            _assert_bounded(insn)
