"""Products of a few rows that read the second operand in place, under qemu."""

from __future__ import annotations

import dataclasses
import os
from itertools import product

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of, inputs_of

pytestmark = pytest.mark.cross

_SIZES = ((17, 16), (83, 130), (260, 257), (64, 40), (16, 37))  # k, n
if "EDGEKIT_TEST_ALL" not in os.environ:
    _SIZES = _SIZES[:3]  # each has kernels of its own
_BESIDE = (0, 2, 1, 3)  # the head axis moved after the rows, as models store it


def _graph() -> Graph:
    """For each number of rows, dot products with columns and accumulated rows, over matrices stored
    consecutively and over interleaved ones, including one b shared by two batches of a."""
    cases = []
    for m, (k, n) in product((1, 2, 3, 4), _SIZES):
        cases += [
            Case(ops.MatMul(), (tensor((2, 3, m, k)), tensor((2, 3, k, n)))),
            Case(
                ops.ViewedMatMul(b_axes=(0, 1, 3, 2), scale=0.25),
                (tensor((2, 3, m, k)), tensor((1, 3, n, k))),
            ),
            Case(
                ops.ViewedMatMul(_BESIDE, (0, 2, 3, 1), _BESIDE),
                (tensor((1, m, 3, k)), tensor((1, n, 3, k))),
            ),
            Case(
                ops.ViewedMatMul(b_axes=_BESIDE, y_axes=_BESIDE, scale=0.5),
                (tensor((1, 3, m, k)), tensor((1, k, 1, n))),
            ),
        ]
    table = constant(np.random.default_rng(1).standard_normal((64, 80)))
    return graph_of([*cases, Case(ops.MatMul(), (tensor((3, 64)), table))])


_MORE = ("a53", "a76", "bpi-f3", "rv64gc", "rv64gcv-zvl512b")


@pytest.mark.parametrize(
    ("board", "threads"),
    [
        *(("a7", 1), ("a76", 4)),
        *(pytest.param(board, 1, marks=pytest.mark.exhaustive) for board in _MORE),
        pytest.param("a7", 4, marks=pytest.mark.exhaustive),
    ],
)
def test_few_rows_meet_matrices_where_they_lie(virtual_board, tmp_path, board, threads):
    """64-bit ARM cores prefetch, since the data exceeds their caches."""
    graph = _graph()
    small = dataclasses.replace(load_board(board), l2_bytes=1024, l3_bytes=0)
    steps = lower(graph, small, threads=threads).lowered.steps
    kernels = [call.kernel for step in steps for call in step.calls]
    assert {k.source for k in kernels} == {"product/streamed.c"}
    assert all(
        (dict(k.macros)["PREFETCH_DISTANCE"] != "0") == (board in ("a53", "a76")) for k in kernels
    )
    inputs = inputs_of(graph)
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    folder = build(graph, small, tmp_path / "r", threads=threads)
    found = virtual_board(board).run(folder, cases, tmp_path, threads)
    check(graph, dict(zip(graph.outputs, (y[0] for y in found), strict=True)), inputs)
