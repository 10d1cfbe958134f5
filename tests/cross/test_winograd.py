"""3x3 Winograd convolutions whose panels are shared by several threads, under qemu."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from edgekit.device.runtime.kernel_facts import WINOGRAD_BYTES, WINOGRAD_FAR_BYTES
from edgekit.host.compiler.costs.methods.winograd import transformed_bytes
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.types import DType, Padding
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.lowering.plan import KernelCall
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import RVV
from tests.support.kernel_runs import build, check
from tests.support.narrow_cases import narrow_weights
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of, inputs_of
from tests.support.places import few_or_all

pytestmark = pytest.mark.cross
_MOST = WINOGRAD_BYTES // 4 // 8  # channels of which the kernel multiplies eight tiles at once


def test_threads_share_panels_of_few_tiles(virtual_board, tmp_path):
    """The last panel is narrow, the last tiles are clipped, and tile groups are partial."""
    rng, board = np.random.default_rng(1), load_board("a76")
    cases = []
    for (h, w), (c, oc) in (((7, 7), (64, 60)), ((8, 8), (32, 36)), ((13, 6), (32, 20))):
        weights = constant(rng.standard_normal((oc, 3, 3, c)).astype(np.float32))
        bias = constant(rng.standard_normal(oc).astype(np.float32))
        x = tensor((1, h, w, c))
        cases.append(Case(ops.Conv2D(padding=Padding(1, 1, 1, 1)), (x, weights, bias)))
    graph, table = graph_of(cases), KnowledgeBase((board.platform,))
    steps = lower(graph, board, table, threads=4).lowered.steps
    calls = [call for step in steps for call in step.calls if isinstance(call, KernelCall)]
    assert [call.kernel.source for call in calls] == ["conv/f32_winograd.c"] * 3
    assert all(int(str(call.fields["parts"])) > 1 and (call.tasks or 0) >= 3 for call in calls)
    _check(graph, board, table, virtual_board, tmp_path)


@pytest.mark.parametrize(
    "name", few_or_all(["rv64gc", "a7", "bpi-f3", *RVV[::2]], ["rv64gc", "a7", "bpi-f3"])
)
def test_other_cores_transform_as_well(virtual_board, tmp_path, name):
    """Of any channels where a vector has one lane; the last panel is narrow."""
    rng, board = np.random.default_rng(3), load_board(name)
    cases = []
    for (h, w), channels in (((12, 12), (37, 35)), ((9, 15), (16, 33))):
        c, oc = (round_up(n, board.isa.vl) for n in channels)
        weights = constant(rng.standard_normal((oc, 3, 3, c)).astype(np.float32))
        x = tensor((1, h, w, c))
        cases.append(Case(ops.Conv2D(padding=Padding(1, 1, 1, 1)), (x, weights, None)))
    graph, table = graph_of(cases), KnowledgeBase((board.platform,))
    steps = lower(graph, board, table).lowered.steps
    calls = [call for step in steps for call in step.calls if isinstance(call, KernelCall)]
    assert [call.kernel.source for call in calls] == ["conv/f32_winograd.c"] * 2
    _check(graph, board, table, virtual_board, tmp_path, threads=1)


def test_sums_of_the_most_channels_are_added_in_runs(virtual_board, tmp_path):
    rng, board = np.random.default_rng(2), load_board("a76")
    weights = constant(rng.standard_normal((20, 3, 3, _MOST)).astype(np.float32))
    op = ops.Conv2D(padding=Padding(1, 1, 1, 1))
    graph = graph_of([Case(op, (tensor((1, 14, 13, _MOST)), weights))])
    table = KnowledgeBase((board.platform,))
    (step,) = lower(graph, board, table, threads=4).lowered.steps
    assert step.calls[-1].kernel.source == "conv/f32_winograd.c"
    _check(graph, board, table, virtual_board, tmp_path)


def test_more_channels_are_multiplied_by_fewer_tiles_at_once(virtual_board, tmp_path):
    rng, board = np.random.default_rng(4), load_board("a76")
    weights = constant(rng.standard_normal((76, 3, 3, 2 * _MOST)).astype(np.float32))
    op = ops.Conv2D(padding=Padding(1, 1, 1, 1))
    graph = graph_of([Case(op, (tensor((1, 8, 7, 2 * _MOST)), weights))])
    table = KnowledgeBase((board.platform,))
    (step,) = lower(graph, board, table, threads=1).lowered.steps
    kernel = step.calls[-1].kernel
    assert (kernel.source, dict(kernel.macros)["MR"]) == ("conv/f32_winograd.c", "4")
    _check(graph, board, table, virtual_board, tmp_path, threads=1)


def test_weights_transformed_by_the_board_itself(virtual_board, tmp_path):
    """Weights in f32, f16 and 8 bits, the last panel narrow; all of them exceed the memory that may
    be used for transformed weights."""
    board, cases = dataclasses.replace(load_board("a76"), memory_bytes=32 << 20), []
    for kind, oc in (("f32", 60), ("f16", 64), ("s8", 68), ("f32", 260)):
        weights = constant(narrow_weights(kind, oc, 3, 3, 64))
        op = ops.Conv2D(padding=Padding(1, 1, 1, 1))
        cases.append(Case(op, (tensor((1, 13, 14, 64)), weights)))
    graph, table = graph_of(cases), KnowledgeBase((board.platform,))
    steps = lower(graph, board, table, threads=4).lowered.steps
    made = [step.calls[0].kernel for step in steps if len(step.calls) > 1]
    assert max(len(step.calls) for step in steps) > 2  # in parts
    assert {dict(kernel.macros).get("NARROW") for kernel in made} == {None, "16", "8"}
    _check(graph, board, table, virtual_board, tmp_path)


@pytest.mark.parametrize("core", few_or_all(["a53", "a55", "a76"], ["a53", "a55"]))
def test_groups_of_tiles_share_panels(virtual_board, tmp_path, core):
    """Of weights that exceed a cache. The last group is small, the last tiles cross the border, and
    the last panel is narrow."""
    rng, board = np.random.default_rng(5), load_board(core)
    cases = []
    for (h, w), (c, oc) in (((20, 18), (64, 36)), ((13, 14), (96, 20)), ((5, 39), (48, 40))):
        weights = constant(rng.standard_normal((oc, 3, 3, c)).astype(np.float32))
        op = ops.Conv2D(padding=Padding(1, 1, 1, 1))
        cases.append(Case(op, (tensor((1, h, w, c)), weights)))
        assert transformed_bytes(c, oc, "f32") > WINOGRAD_FAR_BYTES
    graph, table = graph_of(cases), KnowledgeBase((board.platform,))
    steps = lower(graph, board, table, threads=1).lowered.steps
    calls = [call for step in steps for call in step.calls if isinstance(call, KernelCall)]
    assert all(call.kernel.source == "conv/f32_winograd.c" for call in calls)
    assert all(call.fields["parts"] == 1 and (call.tasks or 0) > 1 for call in calls)
    _check(graph, board, table, virtual_board, tmp_path, threads=1)


@pytest.mark.parametrize(("core", "dtype", "threads"), [("a53", DType.I8, 1), ("a72", DType.U8, 4)])
def test_bytes_are_transformed_exactly(virtual_board, tmp_path, core, dtype, threads):
    """Odd numbers of channels, tiles across all borders, tables, and weights with a zero point;
    threads share panels of few tiles."""
    rng, board = np.random.default_rng(6), load_board(core)
    info, cases = np.iinfo(dtype.numpy), []
    for (h, w), (c, oc) in (((31, 30), (64, 36)), ((23, 31), (62, 63)), ((31, 34), (45, 64))):
        zero = int(rng.integers(info.min, info.max + 1))
        low = 1 if dtype is DType.U8 else -128
        weights = rng.integers(low, info.max + 1, (oc, 3, 3, c))
        scale = constant(weights, dtype, quant(0.01, 128 if dtype is DType.U8 else 0))
        bias = constant(rng.integers(-9999, 9999, oc), DType.I32)
        out = quant(0.02 * c**0.5, zero)
        x = tensor((1, h, w, c), dtype, quant(0.02, zero))
        op = ops.Conv2D(padding=Padding(1, 1, 1, 1))
        after = Case(ops.Logistic(), (), quant(1 / 256, info.min)) if c == 62 else None
        cases.append(Case(op, (x, scale, bias), out, after))
    graph, table = graph_of(cases), KnowledgeBase((board.platform,))
    steps = lower(graph, board, table, threads=threads).lowered.steps
    calls = [call for step in steps for call in step.calls]
    assert [call.kernel.source for call in calls] == ["conv/i8_winograd.c"] * 3
    assert any(call.fields["parts"] > 1 for call in calls) is (threads > 1)
    _check(graph, board, table, virtual_board, tmp_path, threads)


def _check(graph, board, table, virtual_board, tmp_path, threads=4):
    inputs = inputs_of(graph)
    folder = build(graph, board, tmp_path / "release", table=table, threads=threads)
    runs = Cases(tuple(inputs[n][None] for n in graph.inputs), steps=1)
    rows = virtual_board("a76" if board.arch == "aarch64" else board.name).run(
        folder, runs, tmp_path, threads
    )
    check(graph, {n: row[0] for n, row in zip(graph.outputs, rows, strict=True)}, inputs)
