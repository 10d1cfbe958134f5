"""Depthwise convolutions: specialized kernels, and the storage of 8-bit weights."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Padding, Tensor
from edgekit.host.compiler.lowering.channels_first.channels_first import band_of
from edgekit.host.compiler.lowering.common.window import Window
from edgekit.host.compiler.lowering.lower import lower
from edgekit.kb.targets.board import load_board, load_profile
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of


def test_strides_that_differ_have_kernels_of_their_own():
    w = np.ones((1, 3, 3, 20), np.float32)
    tensors = {
        "x": Tensor("x", (1, 8, 9, 20), DType.F32),
        "w": Tensor("w", w.shape, DType.F32, None, w),
        "y": Tensor("y", (1, 3, 7, 20), DType.F32),
    }
    node = Node("c", ops.DepthwiseConv2D((2, 1)), ("x", "w", None), ("y",))
    plan = lower(Graph("strides", tensors, (node,), ("x",), ("y",)), load_board("local"))
    assert "_dwconv_3x3s2x1_" in plan.lowered.steps[0].kernel


@pytest.mark.parametrize(("side", "rows"), [(28, 28), (56, 28), (112, 19)])
def test_a_task_has_as_many_rows_as_scratch_holds(side, rows):
    """Of 56 columns it holds 40 rows, enough for 38 of y: two tasks get 28 each."""
    image = (1, side, side, 8)
    window = Window(image, image, (3, 3), (1, 1), (1, 1), Padding(1, 1, 1, 1))
    assert band_of(window, 4) == rows


@pytest.mark.parametrize(
    "board",
    ["a57", "a76", "a7", "rv64gc", "rv64gcv", "bpi-f3", "x86-64", "x86-64-v3", "x86-64-v4"],
)
@pytest.mark.parametrize("dtype", [DType.I8, DType.U8])
def test_weights_of_8_bits_are_bytes(dtype, board):
    info, codes = np.iinfo(dtype.numpy), quant(0.1, 7 if dtype is DType.U8 else 0)
    data = np.random.default_rng(1).integers(info.min, info.max + 1, (96, 5, 5, 96))
    x = tensor((1, 9, 9, 96), dtype, codes)
    for op, values in ((ops.Conv2D(), data), (ops.DepthwiseConv2D(), data[:1])):
        case = Case(op, (x, constant(values, dtype, codes), None), codes)
        stored = len(lower(graph_of([case]), load_profile(board)).lowered.weights)
        others = 4 * 4 * 96 + x.elements // 9 + 512  # bias and factors, a row of x, alignment
        assert stored < values.size + others, op


def _strip(board, side, channels):
    w = constant(np.ones((1, 3, 3, channels)))
    op, x = ops.DepthwiseConv2D(padding=Padding(1, 1, 1, 1)), tensor((1, side, side, channels))
    (step,) = lower(graph_of([Case(op, (x, w))]), load_profile(board)).lowered.steps
    (call,) = step.calls
    return call.fields["strip"]


@pytest.mark.parametrize("board", ["rpi3", "rk3566", "rpi4"])
def test_rows_that_leave_l1_are_made_in_strips(board):
    strip = _strip(board, 96, 32)
    assert 2 <= strip < 24 // 2
    assert 4 * strip * 32 * 4 * (3 + 1) <= 32768 // 2  # at least three lines of x and one of y
    assert _strip(board, 12, 32) == 3
    assert _strip(board, 96, 8) in (24, 24 // 2)  # two blocks share a cache line


def test_rows_are_whole_where_strips_do_not_pay():
    for board in ("rpi5", "bpi-f3", "x86-64-v4"):
        assert _strip(board, 96, 32) == 24, board
    # With this many channels strips would be single tiles; those pay only on in-order cores.
    assert _strip("rpi3", 24, 256) == 6 and _strip("rpi4", 24, 256) == 1
