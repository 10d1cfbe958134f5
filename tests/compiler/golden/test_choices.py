"""Half precision is judged by what operators choose from, not by which of near values they take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.golden.half import half_loss, loss_of
from edgekit.host.compiler.golden.vectors import golden_of, random_input, trial_inputs
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, Tensor
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.pipeline import run_pipeline
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.compiler.target import HALF_LOSS, Target
from edgekit.host.compiler.transforms.passes.half import to_half
from edgekit.kb.targets.board import load_profile

_CELLS, _KEPT, _CHANNELS = 16 * 16, 100, 32


def _detector() -> Graph:
    """The best of 256 cells by score, and the 4 sides of the box of each."""
    rng = np.random.default_rng(0)
    side, sides = (1, 18, 18, _CHANNELS), (1, 16, 16, 4)
    tensors = {
        "x": Tensor("x", side, DType.F32),
        "scores": Tensor("scores", (1, 16, 16, 1), DType.F32),
        "line": Tensor("line", (1, _CELLS), DType.F32),
        "best": Tensor("best", (1, _KEPT), DType.F32),
        "at": Tensor("at", (1, _KEPT), DType.I64),
        "flat": Tensor("flat", (_KEPT,), DType.I64),
        "boxes": Tensor("boxes", sides, DType.F32),
        "rows": Tensor("rows", (_CELLS, 4), DType.F32),
        "y": Tensor("y", (_KEPT, 4), DType.F32),
    }
    for name, count in (("to_scores", 1), ("to_boxes", 4)):
        data = rng.standard_normal((count, 3, 3, _CHANNELS)).astype(np.float32)
        tensors[name] = Tensor(name, data.shape, DType.F32, data=data)
    nodes = (
        Node("scores", ops.Conv2D(), ("x", "to_scores", None), ("scores",)),
        Node("line", ops.Reshape((1, _CELLS)), ("scores",), ("line",)),
        Node("best", ops.TopK(k=_KEPT), ("line",), ("best", "at")),
        Node("flat", ops.Reshape((_KEPT,)), ("at",), ("flat",)),
        Node("boxes", ops.Conv2D(), ("x", "to_boxes", None), ("boxes",)),
        Node("rows", ops.Reshape((_CELLS, 4)), ("boxes",), ("rows",)),
        Node("take", ops.Gather(axis=0), ("rows", "flat"), ("y",)),
    )
    return Graph("detector", tensors, nodes, ("x",), ("y",))


def _loss(graph: Graph, made: Graph) -> float:
    return half_loss(graph, made, trial_inputs(graph), HALF_LOSS).off


def test_auto_takes_half_precision_though_near_scores_change_places() -> None:
    graph, board = _detector(), load_profile("a76")
    options, folder = CompileOptions(precision="auto"), cache_folder() / "golden"
    made = run_pipeline(graph, Target(board, options, None, table_of(board), folder))
    assert made.exact is not None, made.notes


def test_the_loss_is_that_of_the_same_choices() -> None:
    graph = _detector()
    made = to_half(graph)
    assert 0 < _loss(graph, made) < HALF_LOSS
    golden = golden_of(made, cache_folder() / "golden")
    assert loss_of(graph, made, golden).off < HALF_LOSS


@pytest.mark.parametrize("name", ["to_scores", "to_boxes"])
def test_wrong_values_are_refused_whatever_is_chosen(name: str) -> None:
    """Larger scores lead to the same choices, and other boxes to the same rows."""
    graph = _detector()
    made = to_half(graph)
    weights = made.tensors[f"{name}.half"]
    assert weights.data is not None
    wrong = replace(weights, data=weights.data * np.float16(1.1))
    made = replace(made, tensors={**made.tensors, wrong.name: wrong})
    assert _loss(graph, made) == pytest.approx(0.1, rel=0.2)


def test_classes_are_judged_by_their_scores() -> None:
    """The largest of 64 nearly equal scores: another one is no loss."""
    rng = np.random.default_rng(1)
    weights = rng.uniform(-1e-2, 1e-2, (64, 256)).astype(np.float32)
    bias = np.full(64, 30, np.float32)
    tensors = {
        "x": Tensor("x", (1, 256), DType.F32),
        "w": Tensor("w", weights.shape, DType.F32, data=weights),
        "b": Tensor("b", (64,), DType.F32, data=bias),
        "t": Tensor("t", (1, 64), DType.F32),
        "y": Tensor("y", (1, 1), DType.I64),
    }
    nodes = (
        Node("t", ops.FullyConnected(), ("x", "w", "b"), ("t",)),
        Node("y", ops.ArgExtreme(axis=1), ("t",), ("y",)),
    )
    graph = Graph("classes", tensors, nodes, ("x",), ("y",))
    assert 0 < _loss(graph, to_half(graph)) < HALF_LOSS


def test_trials_of_pictures_are_smooth() -> None:
    for shape, smooth in (((1, 3, 64, 64), True), ((1, 64, 64, 1), True), ((1, 8, 64, 64), False)):
        tensor = Tensor("x", shape, DType.F32)
        graph = Graph("g", {"x": tensor}, (), ("x",), ("x",))
        rough = random_input(tensor, np.random.default_rng(0))

        def step(x: Array) -> float:
            return float(np.abs(np.diff(x, axis=2)).mean() / np.abs(x - x.mean()).mean())

        steps = [step(each["x"]) for each in trial_inputs(graph)]
        assert (max(steps) < 0.8 * step(rough)) is smooth
