"""The estimated cost of a layer on the NNA, compared with the emulator's account."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.device.runtime.arrays.nna import nna_conv3x3, nna_depthwise3x3, nna_pointwise
from edgekit.host.compiler.costs.model import NNA, CostModel
from edgekit.host.compiler.costs.nna import nna_work
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Padding
from edgekit.kb.targets.board import load_board
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of

_SHAPES = [  # height, width, input and output channels, stride
    (8, 12, 3, 32, 1),
    (14, 14, 64, 64, 1),
    (28, 25, 32, 96, 2),
    (3, 40, 100, 32, 1),
    (25, 5, 64, 64, 1),
    (5, 6, 64, 96, 2),
    (23, 2, 23, 40, 2),  # narrower than a tile
    (15, 3, 42, 33, 1),
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
    assert nna_work(unit.chip, graph, graph.nodes[0]).cycles == pytest.approx(
        account.cycles, rel=0.06
    )


@pytest.mark.parametrize("name", ["nna1", "nna2"])
@pytest.mark.parametrize(
    ("height", "width", "channels", "stride"),
    [(8, 12, 20, 1), (28, 25, 64, 2), (48, 48, 100, 1), (32, 7, 96, 2), (15, 2, 8, 1)],
)
def test_cycles_of_depthwise_layers(name, height, width, channels, stride):
    unit = load_board(name).nna
    assert unit is not None
    x, w = np.zeros((height, width, channels), np.int8), np.zeros((3, 3, channels), np.int8)
    _, account = nna_depthwise3x3(x, w, True, stride=stride, padding=1, chip=unit.chip)
    op = ops.DepthwiseConv2D(stride=(stride, stride), padding=Padding(1, 1, 1, 1))
    case = Case(
        op,
        (
            tensor((1, height, width, channels), DType.I8, quant(0.1)),
            constant(np.zeros((1, 3, 3, channels)), DType.I8, quant(0.1)),
            None,
        ),
        quant(0.1),
    )
    graph = graph_of([case])
    assert nna_work(unit.chip, graph, graph.nodes[0]).cycles == pytest.approx(
        account.cycles, rel=0.05
    )


@pytest.mark.parametrize("name", ["nna1", "nna2"])
@pytest.mark.parametrize(
    ("points", "ic", "oc"),
    [(1, 640, 128), (5, 64, 64), (36, 256, 256), (144, 40, 96), (300, 300, 64), (2304, 8, 16)],
)
def test_cycles_of_points(name, points, ic, oc):
    unit = load_board(name).nna
    assert unit is not None
    x, w = np.zeros((points, ic), np.int8), np.zeros((oc, ic), np.int8)
    _, account = nna_pointwise(x, w, True, chip=unit.chip)
    q = quant(0.1)
    dense = Case(
        ops.FullyConnected(), (tensor(x.shape, DType.I8, q), constant(w, DType.I8, q), None), q
    )
    image, kernel = tensor((1, 1, points, ic), DType.I8, q), w.reshape(oc, 1, 1, ic)
    conv = Case(ops.Conv2D(), (image, constant(kernel, DType.I8, q), None), q)
    for case in (dense, conv):
        graph = graph_of([case])
        found = nna_work(unit.chip, graph, graph.nodes[0]).cycles
        assert found == pytest.approx(account.cycles, rel=0.15)


def test_weights_that_serve_few_points_are_not_worth_loading():
    """For 32 channels, nine diagonal taps take 9216 bytes; in pointwise layers every byte is a
    weight."""
    costs, q = CostModel(load_board("nna2")), quant(0.1)

    def cheaper_there(op, x, w):
        given = (tensor(x, DType.I8, q), constant(np.zeros(w), DType.I8, q), None)
        graph = graph_of([Case(op, given, q)])
        return costs.cost(graph, graph.nodes[0], NNA) < costs.cost(graph, graph.nodes[0])

    depthwise = ops.DepthwiseConv2D(padding=Padding(1, 1, 1, 1))
    assert not cheaper_there(depthwise, (1, 3, 3, 64), (1, 3, 3, 64))
    assert cheaper_there(depthwise, (1, 24, 24, 64), (1, 3, 3, 64))
    assert not cheaper_there(ops.FullyConnected(), (1, 8), (8, 8))
    assert cheaper_there(ops.FullyConnected(), (1, 640), (128, 640))
    assert cheaper_there(ops.Conv2D(), (1, 28, 28, 64), (64, 1, 1, 64))
    assert not cheaper_there(ops.Conv2D(), (1, 3, 3, 8), (8, 3, 3, 8))


def test_products_of_computed_matrices_go_there_where_rearranging_pays():
    """The core rearranges one operand per call; enough rows of the other must amortize that."""
    costs, q = CostModel(load_board("nna2")), quant(0.1)

    def cheaper_there(m: int, k: int, n: int) -> bool:
        pair = tensor((4, m, k), DType.I8, q), tensor((4, k, n), DType.I8, q)
        graph = graph_of([Case(ops.MatMul(), pair, q)])
        return costs.cost(graph, graph.nodes[0], NNA) < costs.cost(graph, graph.nodes[0])

    assert cheaper_there(196, 32, 196) and cheaper_there(64, 64, 64)
    assert not cheaper_there(1, 64, 64) and not cheaper_there(4, 8, 8)
