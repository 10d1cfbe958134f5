"""Every kernel, compiled for each board's core and run under qemu, against the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import RVV
from tests.support.kernel_runs import build, check
from tests.support.op_graphs import FAMILIES, inputs_of, random_graph

pytestmark = pytest.mark.cross


# What a board has that others have not: the bytes that the A53 loads by eight, and floats, which it
# loads ahead; the dot product of the A76 and the matrix product of the A720, a compiler for plain C
# on RISC-V, the X60's products of bytes, two at a time, and what longer vectors leave at the end.
# Their other families are exhaustive.
_OWN = {
    "a53": re.compile("conv_8bit|hybrid|conv_f32|dense_f32|matmul"),
    "a76": re.compile("8bit|hybrid|binary|coded|halves|outlier|pruned|saturated|wide"),
    "a720": re.compile("conv_8bit|dense_8bit|hybrid|coded|outlier|pruned"),
    "bpi-f3": re.compile("8bit|hybrid"),
    "rv64gc": re.compile("conv_f32|dense_8bit|function|movement|recurrent|softmax"),
    "rv64gcv-zvl512b": re.compile(
        "conv_f32|dense_8bit|depthwise_f32|matmul|pruned|recurrent|row_chain|softmax|transpose"
    ),
}


def _runs() -> Iterator[Any]:
    for family in FAMILIES:
        for board in ("a53", "a57", "a76", "a720", "a7", "rv64gc", *RVV):
            own = board not in _OWN or _OWN[board].search(family)
            yield pytest.param(family, board, marks=() if own else pytest.mark.exhaustive)


@pytest.mark.parametrize(("family", "board"), list(_runs()))
def test_kernels_equal_the_reference(family, board, virtual_board, tmp_path):
    graph = random_graph(family, 16, seed=len(family) + 1)
    inputs = inputs_of(graph)
    folder = build(graph, load_board(board), tmp_path / "release")
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    rows = virtual_board(board).run(folder, cases, tmp_path)
    check(graph, {n: r[0] for n, r in zip(graph.outputs, rows, strict=True)}, inputs)
    assert np.all([r.shape[0] == 1 for r in rows])
