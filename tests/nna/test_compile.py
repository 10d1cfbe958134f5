"""A model compiled for a board with an NNA: code for its core, and layers on the NNA."""

from __future__ import annotations

from pathlib import Path

from edgekit.host import compile_model
from edgekit.kb.board import load_board

_MODEL = Path(__file__).parents[2] / "models" / "okay_nabu.tflite"


def _kernels(board: str) -> set[str]:
    return {operator.kernel for operator in compile_model(_MODEL, board=board).manifest.operators}


def test_a_model_for_nna2_has_layers_on_the_nna():
    manifest = compile_model(_MODEL, board="nna2").manifest
    assert manifest.board.profile == "nna2"
    assert manifest.simd == load_board("a53").simd
    only_there = _kernels("nna2") - _kernels("a53")
    assert only_there and all("nna" in kernel for kernel in only_there)
