"""Windows that cross the border: 8-bit convolutions read them in place from a padded copy of the
image, f32 convolutions from copies of their rows or tap by tap."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Padding
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import cores
from tests.support.kernel_runs import build, check
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of, inputs_of

_SAME = Padding(1, 1, 1, 1)


def _convolution(
    shape: tuple[int, int, int, int],
    padding: Padding = _SAME,
    kernel: tuple[int, int] = (3, 3),
    stride: int = 1,
    dilation: tuple[int, int] = (1, 1),
    dtype: DType = DType.I8,
) -> Case:
    rng = np.random.default_rng(sum(shape))
    least = np.iinfo(dtype.numpy).min
    data = rng.integers(least + 1, least + 256, (11, *kernel, shape[3])).astype(dtype.numpy)
    bias = constant(rng.integers(-9999, 9999, 11), DType.I32)
    weights = constant(data, dtype, quant(0.02, 0 if dtype is DType.I8 else 128))
    op = ops.Conv2D((stride, stride), dilation, padding)
    x = tensor(shape, dtype, quant(0.05, least + 31))
    return Case(op, (x, weights, bias), quant(0.3, least + 100))


def _cases() -> list[Case]:
    return [
        _convolution((1, 32, 32, 3)),
        _convolution((1, 16, 16, 16)),
        _convolution((1, 8, 8, 64)),
        _convolution((2, 9, 17, 16)),  # two images, tiles spanning two rows
        _convolution((3, 8, 8, 16), Padding(2, 0, 0, 2)),
        _convolution((1, 16, 19, 16), Padding(0, 1, 3, 0), (2, 4), 2),
        _convolution((1, 13, 16, 16), Padding(2, 2, 1, 1), (3, 3), 1, (2, 1)),
        _convolution((1, 1, 8, 16)),
        _convolution((1, 9, 8, 64), dtype=DType.U8),
    ]


def _others() -> list[Case]:
    """Convolutions that are read in place or packed without copying the image."""
    return [
        _convolution((1, 16, 16, 16), Padding()),
        _convolution((2, 5, 80, 16)),  # long rows
        _convolution((1, 4, 72, 32), Padding(0, 1, 1, 0), (2, 2), 2),
        _convolution((1, 70, 32, 16)),  # exceeds L1
        _convolution((1, 6, 3, 5)),  # rows shorter than a vector
    ]


def _bordered(cases: list[Case], board: str, threads: int = 1) -> list[bool]:
    """For each case, whether its kernel copies the image with padding."""
    steps = lower(graph_of(cases), load_board(board), threads=threads).lowered.steps
    calls = [call for step in steps for call in step.calls]
    return ["bordered" in call.fields for call in calls if "conv" in call.kernel.symbol]


@pytest.mark.cross
@pytest.mark.parametrize(
    ("board", "cpu", "threads"),
    [
        ("a55", "cortex-a76", 1),
        ("a76", "cortex-a76", 1),
        ("a76", "cortex-a76", 4),
        pytest.param("a720", "max", 1, marks=pytest.mark.exhaustive),
    ],
)
def test_borders_equal_the_reference(board, cpu, threads, virtual_board, tmp_path):
    graph = graph_of(_cases() + _others())
    inputs = inputs_of(graph)
    folder = build(graph, load_board(board), tmp_path / "release", threads=threads)
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    rows = virtual_board(board, cpu).run(folder, cases, tmp_path, threads)
    check(graph, {n: r[0] for n, r in zip(graph.outputs, rows, strict=True)}, inputs)


@pytest.mark.cross
@pytest.mark.parametrize("board", cores("a57", "a53", "a76", "a7", "rv64gcv"))
def test_windows_of_few_bytes_are_not_read_past_the_image(board, virtual_board, tmp_path):
    """Behind each input of a virtual board is a page that ends the run when it is read."""
    graph = graph_of(
        [
            _convolution((1, 19, 16, channels), Padding(), kernel, stride, dtype=dtype)
            for channels, kernel, stride in ((1, (5, 1), 3), (1, (2, 2), 1), (2, (3, 1), 2))
            for dtype in (DType.I8, DType.U8)
        ]
    )
    inputs = inputs_of(graph)
    folder = build(graph, load_board(board), tmp_path / "release")
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    rows = virtual_board(board).run(folder, cases, tmp_path)
    check(graph, {n: r[0] for n, r in zip(graph.outputs, rows, strict=True)}, inputs)


def test_images_are_copied_by_one_thread_where_rows_are_short():
    cases, board = _cases(), "a76"
    assert _bordered(cases, board) == [True] * len(cases)
    assert _bordered(cases, board, threads=4) == [False] * len(cases)
    others = _others()
    assert _bordered(others, board) == [False] * len(others)


@pytest.mark.parametrize("board", ["a53", "a55", "a57", "a7", "rv64gcv", "bpi-f3"])
def test_other_products_leave_the_border_where_it_is(board):
    assert not any(_bordered(_cases(), board))


def _floats(side: int, channels: int, outputs: int, stride: int = 2) -> Case:
    rng = np.random.default_rng(side)
    weights = constant(rng.standard_normal((outputs, 3, 3, channels)).astype(np.float32) / 32)
    return Case(
        ops.Conv2D((stride, stride), padding=_SAME), (tensor((1, side, side, channels)), weights)
    )


@pytest.mark.parametrize(
    ("case", "copies"),
    [
        (_floats(9, 256, 128), False),
        (_floats(5, 128, 256, 1), False),
        (_floats(40, 128, 256), True),  # few windows cross the border
        (_floats(9, 32, 1024), True),  # taps of few channels
        (_floats(9, 64, 24), True),  # all panels share the copies of a tile
    ],
)
def test_floats_are_read_tap_by_tap_where_each_panel_would_copy_them(case, copies):
    (step,) = lower(graph_of([case]), load_board("rpi4")).lowered.steps
    (call,) = step.calls
    assert call.fields["row_segments"] == copies


@pytest.mark.cross
def test_floats_at_borders_are_near_the_reference(virtual_board, tmp_path):
    graph = graph_of([_floats(9, 256, 128)])
    inputs = inputs_of(graph)
    folder = build(graph, load_board("a57"), tmp_path / "release")
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    rows = virtual_board("a57").run(folder, cases, tmp_path)
    check(graph, {n: r[0] for n, r in zip(graph.outputs, rows, strict=True)}, inputs)
