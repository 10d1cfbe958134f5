"""Compiling a model for a board with an NNA: code for its core, and layers on the NNA."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.host import compile_model
from edgekit.host.compiler.driver import compile_artifact
from edgekit.kb.targets.board import load_board

_MODEL = Path(__file__).parents[3] / "models" / "okay_nabu.tflite"


@pytest.mark.slow
def test_of_a_small_model_pointwise_layers_go_to_the_nna():
    """Pointwise layers use all weights of the array; depthwise layers would use only a diagonal."""
    there, here = (compile_model(_MODEL, board=board).manifest for board in ("nna2", "a53"))
    assert there.board.profile == "nna2" and there.simd == here.simd
    known = {operator.name: operator.kernel for operator in here.operators}
    moved = [known[o.name] for o in there.operators if o.kernel == "ek_nna_layer_neon"]
    assert len(moved) == 5
    assert all("s8_conv" in kernel or "s8_dense" in kernel for kernel in moved)
    assert sum("dwconv" in o.kernel for o in there.operators) == 8


def test_layers_go_to_the_nna_of_a_slower_core():
    board = load_board("nna2")
    slow = replace(board, compute=(replace(board.speeds[0], s8_per_cycle=0.01),))
    found = compile_artifact(_MODEL, slow).explain["operators"]
    assert {o["unit"] for o in found} == {"cpu", "nna"}
    assert all("nna" in o["kernel"] for o in found if o["unit"] == "nna")
