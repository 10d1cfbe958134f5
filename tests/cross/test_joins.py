"""Convolutions that read and write parts of concatenations, under qemu."""

from __future__ import annotations

import itertools

import pytest

from edgekit.host.compiler.ir.types import DType
from edgekit.host.compiler.ir.views import parts_of_rows
from edgekit.host.compiler.lowering.gemm.epilogues import fuse_additions, fuse_epilogues
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import HALF, cores, half_board
from tests.support.half_graphs import check_half, in_half
from tests.support.joined_graphs import bottleneck, csp_block, ghost_block, residual_block
from tests.support.kernel_runs import build, check
from tests.support.op_graphs import inputs_of
from tests.support.places import few_or_all

pytestmark = pytest.mark.cross
_BLOCKS = {
    "csp": csp_block,
    "ghost": lambda dtype: ghost_block(dtype, 3, 24),
    "ghost of many taps": lambda dtype: ghost_block(dtype, 9, 7),
}
_BOTTLENECKS = {
    f"{half} channels, {'fused' if fused else 'added'}": (half, fused)
    for half, fused in itertools.product((5, 8, 16), (True, False))
}


def _run(graph, board, machine, folder):
    inputs = inputs_of(graph)
    runs = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    rows = machine.run(build(graph, board, folder / "release"), runs, folder)
    return inputs, {n: r[0] for n, r in zip(graph.outputs, rows, strict=True)}


_PARTS = list(
    itertools.product(("a57", "a53", "a7", "rv64gcv"), (DType.F32, DType.I8), tuple(_BLOCKS))
)
# All on one core; the other instruction sets have the same loops with other vectors.
_FEW_PARTS = [
    *(part for part in _PARTS if part[0] == "a57"),
    *((core, DType.I8, "csp") for core in ("a7", "rv64gcv")),
    *((core, DType.F32, "ghost") for core in ("a7", "rv64gcv")),
]


@pytest.mark.parametrize(("board", "dtype", "block"), few_or_all(_PARTS, _FEW_PARTS))
def test_parts_are_read_and_written_in_place(board, dtype, block, virtual_board, tmp_path):
    graph = _BLOCKS[block](dtype)
    inputs, made = _run(graph, load_board(board), virtual_board(board), tmp_path)
    check(graph, made, inputs)


@pytest.mark.parametrize(("half", "scale"), [(5, 0.05), (40, 0.05), (16, 0.1)])
@pytest.mark.parametrize("board", cores("a53", "a76", "a7", "rv64gcv"))
def test_sums_of_bytes_are_made_in_their_place(board, half, scale, virtual_board, tmp_path):
    graph = residual_block(half, scale)
    inputs, made = _run(graph, load_board(board), virtual_board(board), tmp_path)
    check(graph, made, inputs)


@pytest.mark.parametrize("block", _BLOCKS)
@pytest.mark.parametrize("core", ["a76"])
def test_halves_are_read_and_written_in_place(core, block, virtual_board, tmp_path):
    profile, cpu = HALF[core]
    graph = in_half(_BLOCKS[block](DType.F32))
    assert len(parts_of_rows(graph)) == (3 if block == "csp" else 2)
    inputs, made = _run(graph, half_board(profile), virtual_board(profile, cpu), tmp_path)
    check_half(graph, made, inputs)


def _bottleneck(name):
    half, fused = _BOTTLENECKS[name]
    graph = fuse_epilogues(bottleneck(half))
    return fuse_additions(graph) if fused else graph


@pytest.mark.parametrize("block", _BOTTLENECKS)
@pytest.mark.parametrize("board", cores("a53", "a76", "rv64gcv"))
def test_slices_are_read_and_added_in_place(board, block, virtual_board, tmp_path):
    graph = _bottleneck(block)
    inputs, made = _run(graph, load_board(board), virtual_board(board), tmp_path)
    check(graph, made, inputs)


_HALVES = list(itertools.product(("a76", "a55"), _BOTTLENECKS))


@pytest.mark.parametrize(("core", "block"), few_or_all(_HALVES, _HALVES[:7]))
def test_slices_of_halves_are_read_and_added_in_place(core, block, virtual_board, tmp_path):
    profile, cpu = HALF[core]
    graph = in_half(_bottleneck(block))
    inputs, made = _run(graph, half_board(profile), virtual_board(profile, cpu), tmp_path)
    check_half(graph, made, inputs)
