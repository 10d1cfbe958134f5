"""What a compile says of each pruned layer: density, form, both times and where they are from."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.driver import prepare_graph
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph, Padding
from edgekit.host.compiler.lowering.sparse_decisions import SparseDecision
from edgekit.kb.targets.board import load_profile
from tests.support.group_graphs import pruned_layer
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of


def _convolution(side: int, inputs: int, outputs: int, window: int, density: float) -> Graph:
    rng = np.random.default_rng(5)
    weights = rng.standard_normal((outputs, window, window, inputs)).astype(np.float32)
    weights[rng.random(weights.shape) >= density] = 0
    pad = window // 2
    op = ops.Conv2D(padding=Padding(pad, pad, pad, pad))
    image = tensor((1, side, side, inputs))
    return graph_of([Case(op, (image, constant(weights), None))])


def _decided(graph: Graph, board: str) -> tuple[SparseDecision, ...]:
    return prepare_graph(graph, load_profile(board)).sparse


@pytest.mark.parametrize(("board", "core"), [("rpi4", "cortex-a72"), ("visionfive2", "sifive-u74")])
@pytest.mark.parametrize(
    ("graph", "form"),
    [
        (_convolution(24, 64, 64, 1, 0.1), "pixels"),
        (_convolution(32, 64, 64, 3, 0.1), "windows"),
        (pruned_layer(0.05), "strips"),
    ],
)
def test_layers_that_run_sparse(graph: Graph, form: str, board: str, core: str) -> None:
    (found,) = _decided(graph, board)
    assert found.form == form and 0.04 < found.density < 0.12
    assert found.sparse_us is not None and found.dense_us is not None
    assert 0 < found.sparse_us < found.dense_us
    assert found.times == f"estimated for {core}"
    assert found.why == f"sparse takes {found.sparse_us / found.dense_us:.2f} of the time of dense"


def test_borrowed_times_are_not_those_of_the_board() -> None:
    graph = pruned_layer(0.05)
    assert _decided(graph, "x86-64-v4")[0].times == "measured on x86-64-v4"
    assert _decided(graph, "x86-64-v3")[0].times == "measured on x86-64-v4 and borrowed"
    (own,), (lent,) = (_decided(graph, board) for board in ("rpi4", "jetson-nano"))
    assert lent.times == "estimated for cortex-a72 and borrowed"
    # The same cycles, at another clock: what a borrowed table must gain is no time.
    assert own.sparse_us is not None and lent.sparse_us is not None
    assert lent.sparse_us * 1430 == pytest.approx(own.sparse_us * 1800)


@pytest.mark.parametrize(
    ("graph", "board", "why"),
    [
        (_convolution(24, 64, 64, 1, 0.85), "rpi4", "dense is faster"),
        (_convolution(24, 64, 64, 3, 0.1), "x86-64-v4", "no sparse kernel for this window"),
    ],
)
def test_layers_that_run_dense_say_why(graph: Graph, board: str, why: str) -> None:
    (found,) = _decided(graph, board)
    assert (found.form, found.why) == ("dense", why)


def test_a_few_zeros_are_no_pruning() -> None:
    assert _decided(_convolution(8, 16, 16, 1, 0.95), "rpi4") == ()
