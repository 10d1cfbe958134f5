"""Products of u8 with weights that have a zero point: old quantized models, and ONNX u8."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.costs.methods.operators import Form, OperatorMethod
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Padding
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check
from tests.support.method_cases import table_of_operators
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of, inputs_of

pytestmark = pytest.mark.cross


def _convolution(side: int, c: int, n: int, zero: int, kernel: int = 1, batch: int = 1) -> Case:
    rng = np.random.default_rng(side * c + n)
    weights = constant(rng.integers(0, 256, (n, kernel, kernel, c)), DType.U8, quant(0.02, zero))
    bias = constant(rng.integers(-9999, 9999, n), DType.I32)
    op = ops.Conv2D(padding=Padding(*4 * (kernel // 2,)))
    return Case(
        op,
        (tensor((batch, side, side, c), DType.U8, quant(0.05, 121)), weights, bias),
        quant(9, 117),
    )


_CASES = [
    _convolution(7, 40, 37, 122),
    _convolution(7, 40, 37, 122, batch=2),
    _convolution(5, 16, 21, 3),  # the last pixel ends at the end of x
    _convolution(9, 17, 64, 128),
    _convolution(1, 33, 40, 100),
    _convolution(6, 11, 40, 131, kernel=3),
    _convolution(33, 5, 24, 122),  # exceeds the number of cached tiles
]


def _walks(split: str) -> list[tuple[Form, OperatorMethod]]:
    """A table row for each 1x1 convolution, with loop order `split`."""
    found = []
    for case in _CASES:
        x, weights = case.ins[:2]
        assert x is not None and weights is not None
        (batch, h, w, c), (n, kh, kw, _) = x.shape, weights.shape
        shape = GemmShape(batch * h * w, kh * kw * c, n)
        form = Form("conv", shape, "s8", (batch, h, w), (kh, kw))
        found.append((form, OperatorMethod("in_place", "s8", 4, 4, split)))
    return found


@pytest.mark.parametrize("split", ["m", "n"])
@pytest.mark.parametrize(("board", "cpu"), [("a53", "cortex-a53"), ("a76", "cortex-a76")])
def test_products_equal_the_reference(split, board, cpu, virtual_board, tmp_path):
    graph, profile = graph_of(_CASES), load_board(board)
    table = table_of_operators(profile, *_walks(split)) if board == "a53" else None
    inputs = inputs_of(graph)
    folder = build(graph, profile, tmp_path / "release", table=table)
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    rows = virtual_board(board, cpu).run(folder, cases, tmp_path)
    check(graph, {n: r[0] for n, r in zip(graph.outputs, rows, strict=True)}, inputs)


@pytest.mark.parametrize(
    ("split", "flipped"), [("m", [1, 1, 1, 1, 0, 1, 1]), ("n", [1, 1, 1, 1, 0, 0, 0])]
)
def test_bytes_are_flipped_once_where_panels_share_them(split, flipped):
    board = load_board("a53")
    table = table_of_operators(board, *_walks(split))
    steps = lower(graph_of(_CASES), board, table=table).lowered.steps
    calls = [call for step in steps for call in step.calls]
    assert [call.fields["panel_outer"] for call in calls] == [int(split == "n")] * len(calls)
    assert ["FLIPPED" in dict(call.kernel.macros) for call in calls] == list(map(bool, flipped))
