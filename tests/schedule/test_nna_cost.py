"""What a layer costs on the NNA, beside the account of the emulated one."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.device.arrays.nna import nna_conv3x3
from edgekit.host.graph import ops
from edgekit.host.graph.types import DType, Graph, Padding
from edgekit.host.schedule.cost import NNA, CostModel
from edgekit.host.schedule.nna_cost import nna_cycles
from edgekit.kb.board import load_board
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of

_SHAPES = [  # height, width, channels in and out, stride
    (8, 12, 3, 32, 1),
    (14, 14, 64, 64, 1),
    (28, 25, 32, 96, 2),
    (3, 40, 100, 32, 1),
    (25, 5, 64, 64, 1),
    (5, 6, 64, 96, 2),
]


def _layer(height: int, width: int, ic: int, oc: int, stride: int) -> Graph:
    x = tensor((1, height, width, ic), DType.I8, quant(0.1))
    w = constant(np.zeros((oc, 3, 3, ic)), DType.I8, quant(0.1))
    op = ops.Conv2D(stride=(stride, stride), padding=Padding(1, 1, 1, 1))
    return graph_of([Case(op, (x, w, None), quant(0.1))])


@pytest.mark.parametrize("name", ["nna1", "nna2"])
@pytest.mark.parametrize("shape", _SHAPES, ids=str)
def test_cycles_are_about_those_of_the_account(name, shape):
    height, width, ic, oc, stride = shape
    unit = load_board(name).nna
    assert unit is not None
    x, w = np.zeros((height, width, ic), np.int8), np.zeros((oc, 3, 3, ic), np.int8)
    _, account = nna_conv3x3(x, w, True, stride=stride, padding=1, chip=unit.chip)
    graph = _layer(*shape)
    assert nna_cycles(unit.chip, graph, graph.nodes[0]) == pytest.approx(account.cycles, rel=0.15)


def test_weights_that_serve_one_point_are_not_worth_loading():
    costs = CostModel(load_board("nna2"))
    row, w = (
        tensor((1, 64), DType.I8, quant(0.1)),
        constant(np.zeros((64, 64)), DType.I8, quant(0.1)),
    )
    few = graph_of([Case(ops.FullyConnected(), (row, w, None), quant(0.1))])
    many = _layer(28, 28, 64, 64, 1)
    assert costs.cost(few, few.nodes[0], NNA) > costs.cost(few, few.nodes[0])
    assert costs.cost(many, many.nodes[0], NNA) < costs.cost(many, many.nodes[0])
