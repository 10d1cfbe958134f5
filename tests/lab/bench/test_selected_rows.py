"""Which rows an engine may choose that computes in another precision."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, Tensor
from edgekit.host.compiler.target import HALF_LOSS
from edgekit.host.lab.bench.peer_check import Expected, largest_error
from edgekit.host.lab.bench.selected_rows import row_choices

_CELLS, _KEPT = 200, 20


def _boxes() -> Graph:
    """Of 200 boxes of 4 sides, the 20 best: [1, 20, 5] with their scores."""
    tensors = {
        "boxes": Tensor("boxes", (_CELLS, 4), DType.F32),
        "scores": Tensor("scores", (1, _CELLS), DType.F32),
        "best": Tensor("best", (1, _KEPT), DType.F32),
        "at": Tensor("at", (1, _KEPT), DType.I64),
        "taken": Tensor("taken", (1, _KEPT, 4), DType.F32),
        "column": Tensor("column", (1, _KEPT, 1), DType.F32),
        "y": Tensor("y", (1, _KEPT, 5), DType.F32),
    }
    nodes = (
        Node("best", ops.TopK(k=_KEPT), ("scores",), ("best", "at")),
        Node("take", ops.Gather(axis=0), ("boxes", "at"), ("taken",)),
        Node("column", ops.Reshape((1, _KEPT, 1)), ("best",), ("column",)),
        Node("y", ops.Concat(axis=2), ("taken", "column"), ("y",)),
    )
    return Graph("boxes", tensors, nodes, ("boxes", "scores"), ("y",))


def _rows(boxes: Array, scores: Array) -> Array:
    at = np.argsort(-scores[0], kind="stable")[:_KEPT]
    return np.concatenate((boxes[at], scores[0, at, None]), axis=1)[None]


@pytest.fixture(name="inputs")
def _inputs() -> dict[str, Array]:
    """All scores are nearly equal but for some that are much worse."""
    rng = np.random.default_rng(0)
    scores = np.where(np.arange(_CELLS) < 150, 0.6 + rng.uniform(0, 1e-3, _CELLS), 0.1)
    boxes = rng.uniform(0, 640, (_CELLS, 4)).astype(np.float32)
    return {"boxes": boxes, "scores": scores.astype(np.float32)[None]}


def _error(inputs: dict[str, Array], found: Array) -> float:
    choices = row_choices(_boxes(), inputs)
    want = _rows(inputs["boxes"], inputs["scores"])
    return largest_error(Expected(inputs, (want,), (640.0,), {0: choices["y"]}), [found])


def test_other_rows_with_near_scores_are_right(inputs: dict[str, Array]) -> None:
    noise = np.random.default_rng(1).uniform(-2e-3, 2e-3, _CELLS)
    scores = inputs["scores"] + np.where(inputs["scores"] > 0.5, noise, 0)
    found = _rows(inputs["boxes"] * 1.001, scores)
    same = np.isin(found[0, :, 4], _rows(inputs["boxes"], inputs["scores"])[0, :, 4])
    assert not np.any(same)
    assert 0 < _error(inputs, found) < HALF_LOSS


def test_rows_that_no_healthy_engine_gives_are_wrong(inputs: dict[str, Array]) -> None:
    right = _rows(inputs["boxes"], inputs["scores"])
    worse = _rows(inputs["boxes"], -inputs["scores"]) * [1, 1, 1, 1, -1]
    moved, sure = right.copy(), right.copy()
    moved[0, 7, 0] += 60
    sure[0, 3, 4] += 0.1
    assert _error(inputs, right) == 0
    for wrong in (worse, moved, sure, np.roll(right, 1, axis=2)):
        assert _error(inputs, wrong) > HALF_LOSS
    assert _error(inputs, right * np.nan) == math.inf
    assert _error(inputs, right[:, 1:]) == math.inf


def test_classes_have_to_be_equal() -> None:
    """The second choice is among the rows of the first; its place says which class it is."""
    tensors = {
        "x": Tensor("x", (1, 50), DType.F32),
        "v": Tensor("v", (1, 10), DType.F32),
        "at": Tensor("at", (1, 10), DType.I64),
        "w": Tensor("w", (1, 5), DType.F32),
        "class": Tensor("class", (1, 5), DType.I64),
    }
    nodes = (
        Node("first", ops.TopK(k=10), ("x",), ("v", "at")),
        Node("second", ops.TopK(k=5), ("v",), ("w", "class")),
    )
    graph = Graph("classes", tensors, nodes, ("x",), ("class",))
    inputs = {"x": np.linspace(1, 0, 50, dtype=np.float32)[None]}
    choice = row_choices(graph, inputs)["class"]
    assert choice.error(np.arange(5), (1, 5)) == 0
    assert choice.error(np.array([0, 1, 2, 3, 9]), (1, 5)) > HALF_LOSS


def test_graphs_without_choices_have_none() -> None:
    tensors = {n: Tensor(n, (1, 4), DType.F32) for n in "xy"}
    graph = Graph("g", tensors, (Node("y", ops.Tanh(), ("x",), ("y",)),), ("x",), ("y",))
    assert row_choices(graph, {"x": np.ones((1, 4), np.float32)}) == {}
