"""Chains in strips of some of the columns, under qemu: they compute what their members compute,
apart from the order of sums at the ends of strips."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType
from edgekit.host.compiler.lowering.conv.chains import chain_for_time
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.support.group_graphs import expanded_block
from tests.support.half_graphs import in_half
from tests.support.kernel_runs import build
from tests.support.op_graphs import inputs_of

pytestmark = pytest.mark.cross

_SLOW = pytest.mark.exhaustive
_BOARDS = (
    "a53",
    *(pytest.param(name, marks=_SLOW) for name in ("a76", "bpi-f3")),
)
# Strips end within a tile, in the middle of the image and at its borders.
_BLOCKS = (
    (DType.F32, 1, 1, 112, 47),
    (DType.F32, 2, 1, 226, 31),
    (DType.I8, 2, 1, 450, 18),
    (DType.F16, 2, 1, 226, 41),
    *(
        pytest.param(block, marks=_SLOW)
        for block in (
            (DType.F32, 1, 2, 131, 19),
            (DType.F32, 2, 0, 227, 17),
            (DType.I8, 1, 1, 331, 37),
            (DType.F16, 1, 2, 201, 16),
        )
    ),
)
# of the largest value
_APART = {DType.F32: 1e-6, DType.F16: 2.0**-8, DType.I8: 0}


def _chain(dtype, stride, border, columns, rows, board):
    """The same block alone and as a chain; `border` pixels pad its image on each side."""
    kept = DType.F32 if dtype is DType.F16 else dtype
    graph = expanded_block(kept, stride, columns=columns, rows=rows, border=border)
    graph = in_half(graph) if dtype is DType.F16 else graph
    small = dataclasses.replace(board, l2_bytes=65536, l3_bytes=0)
    return graph, chain_for_time(graph, small, KnowledgeBase((board.platform,)))


@pytest.mark.parametrize("block", _BLOCKS)
@pytest.mark.parametrize("name", _BOARDS)
def test_strips_of_columns_compute_what_their_members_compute(name, block, virtual_board, tmp_path):
    board = load_board(name)
    if block[0] is DType.F16 and not board.computes_half:
        pytest.skip("the core has no f16")
    graph, chain = _chain(*block, board)
    assert sum(isinstance(n.op, ops.RowChain) for n in chain.nodes) == 1
    inputs = inputs_of(graph)
    cases = Cases(tuple(inputs[i][None] for i in graph.inputs), steps=1)
    machine = virtual_board(name)
    want = machine.run(build(graph, board, tmp_path / "alone"), cases, tmp_path)[0]
    for threads in (1, 3):
        plan = lower(chain, board, threads=threads).lowered
        (call,) = (c for s in plan.steps for c in s.calls if "chain" in c.kernel.symbol)
        assert call.fields["columns"] > 0
        folder = build(chain, board, tmp_path / f"{threads}", threads=threads)
        made = machine.run(folder, cases, tmp_path)[0]
        off = np.max(np.abs(made.astype(np.float64) - want))
        assert off <= _APART[block[0]] * np.max(np.abs(want.astype(np.float64)))
        np.testing.assert_array_equal(machine.run(folder, cases, tmp_path, threads)[0], made)
