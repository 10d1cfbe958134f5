"""Layouts under a memory limit: pruned layers stay sparse if their transposes fit."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.driver import PreparedGraph, prepare
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import CompileOptions
from edgekit.kb.targets.board import load_board
from tests.support.op_graphs import inputs_of

pytestmark = pytest.mark.slow

_MODELS = Path(__file__).parents[4] / "models"
_FACE = "face_detection_full_range_sparse"


@functools.cache
def _prepared(name: str, board: str, kib: int) -> PreparedGraph:
    return prepare(_MODELS / f"{name}.tflite", load_board(board), _within(kib))


def _within(kib: int) -> CompileOptions:
    return CompileOptions(memory_limit=kib << 10)


def _assert_fits(made: PreparedGraph, board: str, kib: int) -> None:
    _, plan = plan_of(made.graph, load_board(board), _within(kib))
    assert plan.memory.arena_bytes + plan.state_bytes <= kib << 10


@pytest.mark.parametrize(
    "name, kib",
    [
        pytest.param(_FACE, 1500, marks=pytest.mark.exhaustive),  # in bands
        pytest.param(_FACE, 4096, marks=pytest.mark.exhaustive),  # unsplit
        # with transposes in parts
        pytest.param("pose_detection", 1700, marks=pytest.mark.exhaustive),
    ],
)
def test_what_fits_is_channel_major_where_that_fits_too(name: str, kib: int) -> None:
    made = _prepared(name, "a57", kib)
    assert bool(made.origin) == (kib < 4096)
    assert any(isinstance(n.op, ops.ChannelsFirstConv2D) for n in made.graph.nodes)
    _assert_fits(made, "a57", kib)


def test_a_pruned_model_that_memory_chains_chooses_layouts() -> None:
    """The chains that memory needs are none of those whose savings layouts would lose."""
    _assert_fits(_prepared("hand_landmark_lite", "rpi4", 2048), "rpi4", 2048)


@pytest.mark.exhaustive
@pytest.mark.parametrize("board, kib", [("a57", 1500), ("rpi4", 1280)])
def test_the_note_compares_equal_layouts(board: str, kib: int) -> None:
    """A split multiplies some rows twice and none less, also where pruned weights are skipped."""
    (note,) = [n for n in _prepared(_FACE, board, kib).notes if "split to fit" in n]
    assert re.search(r"; \+\d+\.\d% multiply-adds", note), note


@pytest.mark.exhaustive
def test_a_pruned_model_in_bands_computes_what_the_whole_model_does() -> None:
    made = _prepared(_FACE, "a57", 1500)
    inputs = inputs_of(made.imported)
    found = evaluate(made.graph, inputs).outputs
    for name, want in evaluate(made.imported, inputs).outputs.items():
        np.testing.assert_allclose(found[name], want, rtol=0, atol=1e-5 * np.abs(want).max())
