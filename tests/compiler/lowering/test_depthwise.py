"""Depthwise convolutions: specialized kernels, rows at a time, storage of 8-bit weights."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.costs.methods.operators import Form, candidates_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Padding, Tensor
from edgekit.host.compiler.lowering.channels_first.channels_first import band_of
from edgekit.host.compiler.lowering.common.window import Window
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.kb.features import GemmShape
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


@pytest.mark.parametrize(
    ("window", "dilation", "columns", "name"),
    [
        ((3, 1), (1, 1), 12, "_dwconv_3x1s1_"),
        ((1, 5), (1, 1), 12, "_dwconv_1x5s1_"),
        ((4, 4), (1, 1), 12, "_dwconv_4x4s1_"),
        ((7, 7), (1, 1), 12, "_dwconv_7x7s1_"),
        ((7, 7), (1, 1), 7, "_dwconv_7x7s1_"),
        ((3, 1), (1, 1), 3, "_dwconv_neon"),  # no tile of columns
        ((1, 9), (1, 1), 12, "_dwconv_neon"),
        ((3, 1), (2, 1), 12, "_dwconv_neon"),
    ],
)
def test_small_windows_have_kernels_of_their_own(window, dilation, columns, name):
    x, w = tensor((1, 9, columns, 16)), constant(np.ones((1, *window, 16)))
    case = Case(ops.DepthwiseConv2D(dilation=dilation), (x, w))
    (step,) = lower(graph_of([case]), load_profile("a57")).lowered.steps
    assert name in step.kernel


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
    info, quantized = np.iinfo(dtype.numpy), quant(0.1, 7 if dtype is DType.U8 else 0)
    data = np.random.default_rng(1).integers(info.min, info.max + 1, (96, 5, 5, 96))
    x = tensor((1, 9, 9, 96), dtype, quantized)
    for op, values in ((ops.Conv2D(), data), (ops.DepthwiseConv2D(), data[:1])):
        case = Case(op, (x, constant(values, dtype, quantized), None), quantized)
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


@pytest.mark.parametrize(
    ("board", "side", "channels", "stride", "several"),
    [
        ("rpi4", 14, 512, 1, True), ("rpi4", 28, 256, 2, True), ("rpi4", 12, 640, 1, True),
        ("rpi4", 56, 128, 1, False), ("rpi4", 56, 144, 2, False), ("rpi4", 14, 514, 1, False),
        ("rpi3", 14, 512, 1, True), ("rpi3", 28, 512, 2, False), ("rpi3", 28, 256, 1, False),
        ("rpi5", 14, 512, 1, False), ("bpi-f3", 14, 512, 1, False),
    ],
)  # fmt: skip
def test_whole_lines_are_read_where_l1_would_evict_them(board, side, channels, stride, several):
    w = constant(np.ones((1, 3, 3, channels)))
    op = ops.DepthwiseConv2D((stride, stride), padding=Padding(1, 1, 1, 1))
    case = Case(op, (tensor((1, side, side, channels)), w))
    (step,) = lower(graph_of([case]), load_profile(board)).lowered.steps
    assert ("_blocks_" in step.kernel) == several


@pytest.mark.parametrize(
    ("board", "rows"),
    [("a53", 2), ("a7", 1), ("rv64gc", 2), ("rv64gcv", 1), ("bpi-f3", 2), ("x86-64-v3", 1),
     ("x86-64-v4", 2)],
)  # fmt: skip
def test_depthwise_makes_two_rows_at_once_where_registers_hold_both(board, rows):
    profile, shape = load_profile(board), GemmShape(64, 9, 24)
    form = Form("depthwise", shape, "f32", (1, 8, 8), (3, 3))
    usual = [c.method.mr for c in candidates_of(form, profile.isa, profile) if c.proven]
    assert usual == [rows]


@pytest.mark.parametrize(
    ("board", "dtype", "side", "channels", "rows"),
    [
        ("rpi5", "f32", 6, 64, 2), ("rpi5", "s8", 6, 64, 2), ("rpi3", "f32", 12, 32, 2),
        ("rk3566", "f32", 32, 28, 1),  # five lines of 64 x 28 floats exceed its L1
        ("rpi4", "f32", 12, 32, 1), ("rpi4", "s8", 12, 32, 2), ("jetson-nano", "f32", 12, 32, 1),
        ("bpi-f3", "f32", 12, 32, 1), ("x86-64-v4", "f32", 12, 32, 1),
    ],
)  # fmt: skip
def test_depthwise_with_a_stride_makes_two_rows_where_that_gained(
    board, dtype, side, channels, rows
):
    profile, shape = load_profile(board), GemmShape(side * side, 9, channels)
    form = Form("depthwise", shape, dtype, (1, side, side), (3, 3), (2, 2))
    usual = [c.method.mr for c in candidates_of(form, profile.isa, profile) if c.proven]
    assert usual == [rows]
    several = candidates_of(form, profile.isa, profile, threads=4)
    assert [c.method.mr for c in several if c.proven] == [1]


def test_two_rows_of_a_depthwise_convolution_are_dearer_where_one_is_left():
    a76, costs = load_profile("a76"), []
    for height in (2, 3):
        form = Form("depthwise", GemmShape(8 * height, 9, 64), "f32", (1, height, 8), (3, 3))
        one, two = (c.cost for c in candidates_of(form, a76.isa, a76) if c.method.nr == 4)
        costs.append(two / one)
    assert costs[0] < costs[1] < 1


@pytest.mark.parametrize(
    ("height", "threads", "rows"), [(12, 1, 2), (12, 4, 1), (3, 1, 2), (3, 4, 1), (6, 4, 2)]
)
def test_depthwise_rows_are_made_in_twos_unless_one_thread_gets_more_of_them(height, threads, rows):
    """On four threads, twelve rows are three per thread, or four for one thread in pairs: in
    simulated time the former takes 0.74 to 0.95 of the latter on A76 and A55, in f32 and 8
    bits."""
    profile = load_board("rpi5")
    case = Case(
        ops.DepthwiseConv2D(padding=Padding(1, 1, 1, 1)),
        (tensor((1, height, 12, 16)), constant(np.ones((1, 3, 3, 16), np.float32)), None),
    )
    table = KnowledgeBase((profile.platform,))
    (step,) = lower(graph_of([case]), profile, table, threads=threads).lowered.steps
    assert step.compiled is not None and step.compiled.method.mr == rows


@pytest.mark.parametrize(("width", "threads", "rows"), [(5, 1, 2), (5, 4, 2), (12, 4, 1)])
def test_depthwise_rows_of_few_columns_are_made_in_twos(width, threads, rows):
    """Between the borders of five columns no tile fits, and single columns are slower, but less so
    in pairs of rows. A keyword spotter's 25 rows are 7 per thread, or 8 in pairs: in simulated
    board time the latter takes 0.74 on four A76, 0.68 on A72, 0.62 on A55, 0.55 on A53."""
    profile = load_board("rpi5")
    case = Case(
        ops.DepthwiseConv2D(padding=Padding(1, 1, 1, 1)),
        (tensor((1, 25, width, 64)), constant(np.ones((1, 3, 3, 64), np.float32)), None),
    )
    table = KnowledgeBase((profile.platform,))
    (step,) = lower(graph_of([case]), profile, table, threads=threads).lowered.steps
    assert step.compiled is not None and step.compiled.method.mr == rows


def test_layers_share_the_line_that_pads_images():
    """The second layer has shorter rows, and so reads a part of the first one's line of zeros."""

    def stored(widths):
        w = np.ones((1, 3, 3, 16), np.float32)
        tensors, nodes = {"w": Tensor("w", w.shape, DType.F32, None, w)}, []
        for i, width in enumerate(widths):
            shape = (1, 4, width, 16)
            tensors |= {f"{n}{i}": Tensor(f"{n}{i}", shape, DType.F32) for n in "xy"}
            op = ops.DepthwiseConv2D((1, 1), padding=Padding(1, 1, 1, 1))
            nodes.append(Node(f"c{i}", op, (f"x{i}", "w", None), (f"y{i}",)))
        ends = [tuple(f"{n}{i}" for i in range(len(widths))) for n in "xy"]
        return len(
            lower(Graph("g", tensors, tuple(nodes), *ends), load_board("rpi4")).lowered.weights
        )

    assert stored([64, 32]) == stored([64])
