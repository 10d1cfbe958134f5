"""Layers on the NNA: bit for bit those of the cores, chosen by cost."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from edgekit.host.compiler import units_of
from edgekit.host.graph import ops
from edgekit.host.graph.nna import fits_nna, misfit
from edgekit.host.graph.types import Activation, DType, Graph, Padding
from edgekit.host.lower.lower import lower
from edgekit.host.lower.units import NNA, assign_units
from edgekit.host.paths import cache_folder
from edgekit.host.schedule.cost import CostModel
from edgekit.host.toolchain.zig import Toolchain
from edgekit.kb.board import load_board
from tests.support.kernel_runs import check, run_here
from tests.support.op_cases import Case, Rng, constant, pick, quant, tensor
from tests.support.op_graphs import graph_of, inputs_of

_CHANNELS = (1, 3, 16, 31, 32, 33, 64, 70)


def _weights(rng: Rng, *shape: int) -> np.ndarray:
    return np.maximum(rng.integers(-128, 128, shape), -127)


def _conv(rng: Rng) -> Case:
    kernel = [(3, 3), (1, 3), (2, 1), (2, 3)][rng.integers(4)]
    stride = int(rng.choice([1, 2]))
    pads = [int(rng.integers(0, k)) for k in (kernel[0], kernel[0], kernel[1], kernel[1])]
    ic, oc = pick(rng, _CHANNELS), pick(rng, _CHANNELS)
    x = tensor((1, pick(rng, (3, 5, 8)), pick(rng, (3, 4, 9)), ic), DType.I8, quant(0.05, 7))
    scales = rng.uniform(0.005, 0.02, oc).astype(np.float32)
    w = constant(_weights(rng, oc, *kernel, ic), DType.I8, quant(scales, 0, 0))
    bias = constant(rng.integers(-9999, 9999, oc), DType.I32) if rng.random() < 0.8 else None
    op = ops.Conv2D((stride, stride), padding=Padding(*pads), activation=Activation.RELU)
    return Case(op, (x, w, bias), quant(0.1 * math.prod(kernel) * ic**0.5, -20))


def _points(rng: Rng) -> Case:
    """1x1, of one to ten groups of inputs, with strides that windows may not have and a border."""
    ic, oc = pick(rng, (1, 32, 33, 65, 288, 300)), pick(rng, _CHANNELS)
    x = tensor((1, pick(rng, (1, 5, 8)), pick(rng, (3, 4, 9)), ic), DType.I8, quant(0.05, 7))
    w = constant(_weights(rng, oc, 1, 1, ic), DType.I8, quant(0.01))
    stride, pads = (int(rng.integers(1, 4)), int(rng.integers(1, 4))), rng.integers(0, 2, 4)
    op = ops.Conv2D(stride, padding=Padding(*map(int, pads)))
    return Case(op, (x, w, None), quant(0.05 * ic**0.5, 3))


def _depthwise(rng: Rng) -> Case:
    kernel = [(3, 3), (1, 3), (3, 1), (2, 2), (1, 1)][rng.integers(5)]
    stride, c = int(rng.choice([1, 2])), pick(rng, _CHANNELS)
    pads = [int(rng.integers(0, k)) for k in (kernel[0], kernel[0], kernel[1], kernel[1])]
    x = tensor((1, pick(rng, (3, 5, 8)), pick(rng, (3, 4, 9)), c), DType.I8, quant(0.05, -7))
    scales = rng.uniform(0.005, 0.02, c).astype(np.float32)
    w = constant(_weights(rng, 1, *kernel, c), DType.I8, quant(scales, 0, 3))
    bias = constant(rng.integers(-9999, 9999, c), DType.I32)
    op = ops.DepthwiseConv2D((stride, stride), padding=Padding(*pads), activation=Activation.RELU6)
    return Case(op, (x, w, bias), quant(0.1, -100))


def _dense(rng: Rng) -> Case:
    m, k, n = pick(rng, (1, 4, 9)), pick(rng, (*_CHANNELS, 640)), pick(rng, _CHANNELS)
    x = tensor((m, k), DType.I8, quant(0.05, -3))
    w = constant(_weights(rng, n, k), DType.I8, quant(0.01))
    bias = constant(rng.integers(-9999, 9999, n), DType.I32)
    return Case(ops.FullyConnected(), (x, w, bias), quant(0.05 * k**0.5, 11))


def _graph(seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    return graph_of([make(rng) for make in (_conv, _points, _depthwise, _dense) * 4])


@pytest.mark.parametrize("chip", ["nna1", "nna2"])
def test_layers_are_bit_for_bit_those_of_the_reference(chip, tmp_path):
    graph = _graph(len(chip))
    board = dataclasses.replace(load_board("local"), nna=load_board(chip).nna)
    assert all(fits_nna(graph, node) for node in graph.nodes)
    plan = lower(graph, board, units={node.name: NNA for node in graph.nodes})
    library = Toolchain(board, cache_folder() / "objects").build(units_of(plan, board))
    (tmp_path / "model.so").write_bytes(library)
    (tmp_path / "weights.bin").write_bytes(plan.lowered.weights)
    assert {step.kernel for step in plan.lowered.steps} == {f"ek_nna_layer_{board.simd}"}
    inputs = inputs_of(graph)
    check(graph, run_here(tmp_path, inputs), inputs)


def _large(kernel: int, dtype: DType = DType.I8) -> Graph:
    rng = np.random.default_rng(0)
    q = quant(0.05) if dtype is DType.I8 else None
    w = constant(_weights(rng, 64, kernel, kernel, 64), dtype, quant(0.01) if q else None)
    pad = Padding(*[kernel // 2] * 4)
    x = tensor((1, 32, 32, 64), dtype, q)
    return graph_of([Case(ops.Conv2D(padding=pad), (x, w, None), q)])


def test_what_is_cheaper_there_goes_to_the_nna():
    board = load_board("nna2")
    cost = CostModel(board).cost
    assert assign_units(_large(3), board, cost) == {"n0": NNA}
    assert assign_units(_large(5), board, cost) == {}  # windows are 3x3
    assert assign_units(_large(3, DType.F32), board, cost) == {}
    assert assign_units(_large(3), board, lambda graph, node, unit: float(unit == NNA)) == {}
    assert assign_units(_large(3), load_board("a57"), cost) == {}


def _layer(op, x, w, dtype: DType = DType.I8) -> Graph:
    q = quant(0.1) if dtype is DType.I8 else None
    given = (tensor(x, dtype, q), constant(np.zeros(w), dtype, q), None)
    return graph_of([Case(op, given, q)])


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (_layer(ops.Conv2D(), (1, 8, 8, 4), (4, 5, 3, 4)), "windows of at most 3x3, found 5x3"),
        (_layer(ops.Conv2D((3, 3)), (1, 8, 8, 4), (4, 3, 3, 4)), "stride 1 or 2, found 3x3"),
        (_layer(ops.Conv2D((1, 2)), (1, 8, 8, 4), (4, 3, 3, 4)), "stride 1 or 2, found 1x2"),
        (_layer(ops.Conv2D(dilation=(2, 2)), (1, 8, 8, 4), (4, 3, 3, 4)), "dilation, found 2x2"),
        (_layer(ops.Conv2D(), (2, 8, 8, 4), (4, 1, 1, 4)), "one image, found 2"),
        (_layer(ops.Conv2D(), (1, 8, 8, 4), (4, 1, 1, 4), DType.F32), "s8 all over, found f32"),
        (
            _layer(ops.DepthwiseConv2D(multiplier=2), (1, 8, 8, 4), (1, 3, 3, 8)),
            "one output for each channel, found 2",
        ),
        (_layer(ops.DepthwiseConv2D(), (1, 8, 8, 4), (1, 1, 4, 4)), "3x3, found 1x4"),
    ],
)
def test_why_a_layer_does_not_fit_is_told(graph, said):
    why = misfit(graph, graph.nodes[0])
    assert why is not None and why.startswith("expected ") and said in why
    assert not fits_nna(graph, graph.nodes[0])


def test_points_may_have_any_stride():
    graph = _layer(ops.Conv2D((3, 1)), (1, 8, 8, 4), (4, 1, 1, 4))
    assert misfit(graph, graph.nodes[0]) is None
