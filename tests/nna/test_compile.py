"""A model compiled for a board with an NNA runs on the board's core."""

from __future__ import annotations

from pathlib import Path

from edgekit.host import compile_model
from edgekit.kb.board import load_board

_MODEL = Path(__file__).parents[2] / "models" / "okay_nabu.tflite"


def test_a_model_for_nna2_is_the_one_for_its_core():
    bundle = compile_model(_MODEL, board="nna2")
    assert bundle.manifest.board.profile == "nna2"
    assert bundle.manifest.simd == load_board("a53").simd
    assert bundle.files["model.so"] == compile_model(_MODEL, board="a53").files["model.so"]
