"""Every kernel, compiled for each board's core and run under qemu, against the reference."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Padding
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import RVV
from tests.support.kernel_runs import (
    KEEPS_NAN,
    PLAIN_C,
    VARIANTS,
    build,
    check,
    check_nan,
    with_nan,
)
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import FAMILIES, graph_of, inputs_of, random_graph

pytestmark = pytest.mark.cross


# Families that reach core-specific code; the A57 runs all that have vectors. 32-bit NEON and RVV:
# every primitive of their vector headers. A53: 8-byte loads and prefetching. A76: the dot product.
# A720: the matrix product. X60: products of byte pairs. 512 bits: long tails. The others are
# exhaustive.
_VECTORS = "conv_(f32|8bit)|unary|every_function|softmax|transpose$|pruned_i8|recurrent$"
_OWN = {
    "a53": re.compile("conv_8bit|dense_f32"),
    "a57": re.compile(f"(?!{PLAIN_C}|{VARIANTS})"),
    "a76": re.compile("(conv|dense)_8bit|pruned_i8"),
    "a720": re.compile("dense_8bit"),
    "a7": re.compile(_VECTORS),
    "bpi-f3": re.compile("dense_8bit"),
    "rv64gc": re.compile("dense_8bit|channels_first|sparse_window|pruned"),
    "rv64gcv": re.compile(_VECTORS),
    "rv64gcv-zvl512b": re.compile("depthwise_f32"),
}


def _runs() -> Iterator[Any]:
    for family in FAMILIES:
        for board, own in _OWN.items():
            marks = () if own.match(family) else pytest.mark.exhaustive
            yield pytest.param(family, board, marks=marks)


@pytest.mark.parametrize(("family", "board"), list(_runs()))
def test_kernels_equal_the_reference(family, board, virtual_board, tmp_path):
    count = 16
    if "EDGEKIT_TEST_ALL" not in os.environ:
        count = 6 if board in RVV else 8  # compiling and QEMU are slow
    # QEMU takes half a minute for RVV's convolutions of the first seed.
    graph = random_graph(family, count, seed=len(family) + (2 if board in RVV else 1))
    runs = [inputs_of(graph)]
    if family in KEEPS_NAN and "riscv" not in load_board(board).target:
        runs.append(with_nan(runs[0]))
    folder = build(graph, load_board(board), tmp_path / "release")
    cases = Cases(tuple(np.stack([r[name] for r in runs]) for name in graph.inputs), steps=1)
    rows = virtual_board(board).run(folder, cases, tmp_path)
    assert np.all([r.shape[0] == len(runs) for r in rows])
    outputs = [
        {n: r[i] for n, r in zip(graph.outputs, rows, strict=True)} for i in range(len(runs))
    ]
    check(graph, outputs[0], runs[0])
    for found, inputs in zip(outputs[1:], runs[1:], strict=True):
        check_nan(graph, found, inputs)


@pytest.mark.parametrize("board", ["rv64gc", "rv64gcv"])
def test_without_an_activation_nan_is_no_bound(board, virtual_board, tmp_path):
    """Full and partial panels of channels, and Winograd's."""
    rng, around = np.random.default_rng(0), Padding(1, 1, 1, 1)
    x, many = tensor((1, 4, 4, 3)), tensor((1, 8, 8, 32))
    weights = [
        constant(rng.standard_normal(shape).astype(np.float32))
        for shape in ((21, 1, 1, 3), (1, 3, 3, 3), (32, 3, 3, 32))
    ]
    graph = graph_of(
        [
            Case(ops.Conv2D(), (x, weights[0])),
            Case(ops.DepthwiseConv2D(padding=around), (x, weights[1])),
            Case(ops.Conv2D(padding=around), (many, weights[2])),
        ]
    )
    inputs = with_nan(inputs_of(graph))
    folder = build(graph, load_board(board), tmp_path / "release")
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    rows = virtual_board(board).run(folder, cases, tmp_path)
    check_nan(graph, {n: r[0] for n, r in zip(graph.outputs, rows, strict=True)}, inputs)


_FUNCTIONS = (ops.Silu(), ops.Logistic(), ops.Tanh(), ops.Gelu(), ops.Exp())


@pytest.mark.parametrize("board", ["a57", "rv64gc", "bpi-f3"])
def test_functions_are_exact_for_large_and_small_values(board, virtual_board, tmp_path):
    """29 values: runs of four, two and one vectors, and a part of one. The same after a product."""
    x = np.array([0, 1e-20, 1e-5, 0.1, 1, 4, 17, 19.9, 20.1, 88, 89, 104, 1e30, np.inf], np.float32)
    given = np.concatenate([x, -x, [np.nan]]).astype(np.float32)
    pixel, weights = tensor((1, 1, 1, 1)), constant(given.reshape(29, 1, 1, 1))
    graph = graph_of(
        [Case(op, (tensor((29,)),)) for op in _FUNCTIONS]
        + [Case(ops.Conv2D(), (pixel, weights), after=Case(op, ())) for op in _FUNCTIONS]
    )
    one = np.ones(pixel.shape, np.float32)
    inputs = {n: given if graph.tensors[n].shape == (29,) else one for n in graph.inputs}
    folder = build(graph, load_board(board), tmp_path / "release")
    cases = Cases(tuple(inputs[n][None] for n in graph.inputs), steps=1)
    rows = virtual_board(board).run(folder, cases, tmp_path)
    for op, made in zip(2 * _FUNCTIONS, rows, strict=True):
        with np.errstate(all="ignore"):
            want = op.reference((given,), (tensor((29,)),), (tensor((29,)),))[0]
        if isinstance(op, ops.Silu | ops.Gelu):
            want[given == -np.inf] = 0
        np.testing.assert_allclose(made.ravel(), want, 5e-7, 1e-37, err_msg=str(op))
