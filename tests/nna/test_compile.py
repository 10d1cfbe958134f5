"""A model compiled for a board with an NNA: code for its core, and layers on the NNA."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgekit.host import compile_model
from edgekit.host.compiler import compile_artifact
from edgekit.kb.board import load_board

_MODEL = Path(__file__).parents[2] / "models" / "okay_nabu.tflite"


def test_a_small_model_for_nna2_stays_on_its_core():
    """Its weights serve few points: to load them takes the NNA longer than the core needs."""
    there, here = (compile_model(_MODEL, board=board).manifest for board in ("nna2", "a53"))
    assert there.board.profile == "nna2" and there.simd == here.simd
    assert there.operators == here.operators


def test_layers_go_to_the_nna_of_a_slower_core():
    board = load_board("nna2")
    slow = replace(board, compute=(replace(board.speeds[0], s8_per_cycle=0.01),))
    found = compile_artifact(_MODEL, slow).explain["operators"]
    assert {o["unit"] for o in found} == {"cpu", "nna"}
    assert all("nna" in o["kernel"] for o in found if o["unit"] == "nna")
