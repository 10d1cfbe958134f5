"""The decoders know every instruction of a compiled model, and the core supports it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.host.compiler.driver import compile_artifact
from edgekit.kb.targets.board import load_board
from tests.support.decoders import (
    A32,
    A64,
    LOAD,
    NO_REGISTER,
    RV64,
    Insn,
    Isa,
    decode,
    text_section,
)
from tests.support.places import few_or_all

_MODEL = Path(__file__).parents[2] / "models" / "okay_nabu.tflite"
_A64_BASE = {"base"}
_RV64 = {"base", "m", "a", "f", "d", "c"}
_BOARDS = {
    "a53": (A64, _A64_BASE),
    "a76": (A64, _A64_BASE | {"asimddp", "asimdhp", "atomics", "lrcpc"}),
    "rv64gc": (RV64, _RV64),
    "rv64gcv": (RV64, _RV64 | {"v", "zba", "zbb"}),
    "a7": (A32, {"base", "vfp", "neon", "vfpv4", "idiv"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("board", few_or_all(_BOARDS, ["a76", "rv64gcv"]))
def test_a_compiled_model_has_no_instruction_that_is_unknown_or_that_the_core_lacks(board: str):
    isa, features = _BOARDS[board]
    code = text_section(compile_artifact(_MODEL, load_board(board)).library)
    insns = _without_constants(isa, code)
    assert len(insns) > 5000
    assert {insn.feature for insn in insns} <= features
    unknown = sum(insn.kind == "unknown" for insn in insns)
    # A32 code contains jump tables and address-based constants, which decode as instructions.
    assert unknown <= (len(insns) // 1000 if isa is A32 else 0)


def _without_constants(isa: Isa, code: bytes) -> list[Insn]:
    """Decodes `code` without literal pools (PC-relative loads) and zero padding."""
    ahead = 8 if isa is A32 else 0
    found, constants, at = {}, set(), 0
    for insn in decode(isa, code, 0):
        if insn.memory == LOAD and insn.base == NO_REGISTER:
            constants |= {at + ahead + insn.offset + i for i in range(0, insn.bytes, 2)}
        if any(code[at : at + insn.length]):
            found[at] = insn
        at += insn.length
    return [insn for place, insn in found.items() if place not in constants]
