"""Convolution cases that random tests rarely hit: ties in rounding, and large borders.

Ties are sums halfway between two quantized values; a large border needs more memory than the
windows of a tile.
"""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, DType, Padding
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check, run_here, x86_boards, x86_params
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of, inputs_of


def _halves(bits: int, activation: Activation, y_zero: int) -> Case:
    """A 1x1 convolution whose sums are multiples of 2^-bits output steps, with ties and signs."""
    rng = np.random.default_rng(bits)
    x = tensor((1, 9, 11, 4), DType.I8, quant(1.0, 3))
    w = constant(rng.integers(-2, 3, (33, 1, 1, 4)).astype(np.int8), DType.I8, quant(2.0**-bits, 0))
    bias = constant(rng.integers(-9, 10, 33), DType.I32)
    return Case(ops.Conv2D(activation=activation), (x, w, bias), quant(1.0, y_zero))


@pytest.mark.parametrize("board", x86_params())
def test_sums_halfway_between_quantized_values_round_as_in_the_reference(board, tmp_path):
    graph = graph_of(
        [
            _halves(bits, activation, y_zero)
            for bits in (1, 2, 3, 5)
            for activation in (Activation.NONE, Activation.RELU)
            for y_zero in (-128, 0, 100)
        ]
    )
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs), inputs)


@pytest.mark.parametrize(
    ("kernel", "stride", "channels"), [((3, 1), (1, 1), 3000), ((1, 1), (2, 2), 2048)]
)
def test_borders_of_many_channels_stay_in_scratch(kernel, stride, channels, tmp_path):
    rng = np.random.default_rng(0)
    w = constant(rng.standard_normal((5, *kernel, channels)).astype(np.float32))
    op = ops.Conv2D(stride, padding=Padding(1, 1, 1, 1))
    graph = graph_of([Case(op, (tensor((1, 7, 6, channels)), w, None))])
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, load_board("local"), tmp_path), inputs), inputs)


def test_nan_comes_through_where_no_activation_clamps(tmp_path):
    """Bounds of minus and plus infinity would make it minus infinity."""
    bias = constant(np.where(np.arange(64) == 5, np.nan, 0).astype(np.float32))
    weights = constant(np.ones((64, 1, 1, 8), np.float32))
    graph = graph_of([Case(ops.Conv2D(), (tensor((1, 5, 5, 8)), weights, bias))])
    (y,) = run_here(build(graph, load_board("local"), tmp_path), inputs_of(graph)).values()
    assert np.isnan(y).any(axis=(0, 1, 2)).nonzero()[0].tolist() == [5]


@pytest.mark.parametrize("board", [pytest.param(b, id=b.simd) for b in x86_boards()[1:2]])
def test_windows_of_bytes_are_widened_without_byte_products(board, tmp_path):
    """Behind a window, only the rest of its depth is zeroed."""
    weights = np.random.default_rng(0).integers(-127, 128, (9, 3, 3, 3)).astype(np.int8)
    x, w = tensor((1, 5, 6, 3), DType.I8, quant(0.1, 3)), constant(weights, DType.I8, quant(0.1, 0))
    op = ops.Conv2D(padding=Padding(1, 1, 1, 1))
    graph = graph_of([Case(op, (x, w, None), quant(1.0, 0))])
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs), inputs)


@pytest.mark.parametrize(
    ("times", "size", "dtype"),
    [
        (2, (1, 63, 5, 13), DType.F32),  # one value less than two tasks repeat
        (3, (1, 9, 5, 91), DType.I8),
        (5, (1, 63, 1, 65), DType.F32),
    ],
)
def test_channels_of_several_filters_are_repeated_in_blocks(times, size, dtype, tmp_path):
    weights = np.random.default_rng(0).integers(-9, 10, (1, 3, 3, size[3] * times))
    scales = (
        (None, None, None) if dtype is DType.F32 else (quant(0.1, 3), quant(0.1, 0), quant(1, 0))
    )
    w = constant(weights.astype(dtype.numpy), dtype, scales[1])
    op = ops.DepthwiseConv2D(padding=Padding(1, 1, 1, 1), multiplier=times)
    graph = graph_of([Case(op, (tensor(size, dtype, scales[0]), w, None), scales[2])])
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, load_board("local"), tmp_path), inputs), inputs)
