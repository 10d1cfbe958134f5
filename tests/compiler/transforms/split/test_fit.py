"""Layouts under a memory limit: pruned layers stay sparse if their transposes fit."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.driver import prepare
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import CompileOptions
from edgekit.kb.targets.board import load_board
from tests.support.op_graphs import inputs_of

pytestmark = pytest.mark.slow

_MODELS = Path(__file__).parents[4] / "models"


@pytest.mark.parametrize(
    "name, kib, channels_first",
    [
        ("face_detection_full_range_sparse", 4096, True),  # unsplit
        ("face_detection_full_range_sparse", 1500, True),  # in bands
        ("pose_detection", 1700, True),  # with transposes in parts
    ],
)
def test_what_fits_is_channel_major_where_that_fits_too(
    name: str, kib: int, channels_first: bool
) -> None:
    board, options = load_board("a57"), CompileOptions(memory_limit=kib << 10)
    made = prepare(_MODELS / f"{name}.tflite", board, options)
    assert bool(made.origin) == (kib < 4096)
    assert (
        any(isinstance(n.op, ops.ChannelsFirstConv2D) for n in made.graph.nodes) == channels_first
    )
    _, plan = plan_of(made.graph, board, options)
    assert plan.memory.arena_bytes + plan.state_bytes <= kib << 10


def test_a_pruned_model_that_memory_chains_chooses_layouts() -> None:
    """The chains that memory needs are none of those whose savings layouts would lose."""
    board, options = load_board("rpi4"), CompileOptions(memory_limit=2 << 20)
    made = prepare(_MODELS / "hand_landmark_lite.tflite", board, options)
    _, plan = plan_of(made.graph, board, options)
    assert plan.memory.arena_bytes + plan.state_bytes <= 2 << 20


@pytest.mark.parametrize("kib", [1500, 1280])
def test_the_note_compares_equal_layouts(kib: int) -> None:
    """A split multiplies some rows twice and none less, also where pruned weights are skipped."""
    options = CompileOptions(memory_limit=kib << 10)
    path = _MODELS / "face_detection_full_range_sparse.tflite"
    (note,) = [n for n in prepare(path, load_board("rpi4"), options).notes if "split to fit" in n]
    assert re.search(r"; \+\d+\.\d% multiply-adds", note), note


def test_a_pruned_model_in_bands_computes_what_the_whole_model_does() -> None:
    path = _MODELS / "face_detection_full_range_sparse.tflite"
    made = prepare(path, load_board("a57"), CompileOptions(memory_limit=1500 << 10))
    inputs = inputs_of(made.imported)
    found = evaluate(made.graph, inputs).outputs
    for name, want in evaluate(made.imported, inputs).outputs.items():
        np.testing.assert_allclose(found[name], want, rtol=0, atol=1e-5 * np.abs(want).max())
