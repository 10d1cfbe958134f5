"""Products that prefetch weights from memory, under qemu."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.lowering.plan import calls_of
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.support.half_graphs import check_half, in_half
from tests.support.kernel_runs import build, check
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of, inputs_of
from tests.support.places import few_or_all
from tests.support.read_ahead import read_ahead_graph

pytestmark = pytest.mark.cross


@pytest.mark.parametrize(
    ("board", "bits"), few_or_all(itertools.product(("a53", "a76"), (8, 4)), [("a53", 4)])
)
def test_rows_ahead_compute_what_others_do(virtual_board, tmp_path, board, bits):
    """Weights that end at a page boundary: with one partial panel, with two, with many."""
    rng, most = np.random.default_rng(1), 2 ** (bits - 1)
    layers = []
    for n, k, groups in ((5, 33, 1), (40, 130, 2), (83, 1056, 33), (200, 600, 1)):
        weights = constant(rng.integers(-most, most, (n, k)), DType.I8)
        scales = constant(rng.uniform(0.5, 1, (groups, n)) / 128)
        layers.append(Case(ops.OutlierFullyConnected(0.95), (tensor((1, k)), weights, scales)))
    graph = graph_of(layers)
    small = dataclasses.replace(load_board(board), l2_bytes=1024, l3_bytes=0)
    calls = [c for step in lower(graph, small).lowered.steps for c in step.calls]
    assert sum("I8_PREFETCH_DISTANCE" in dict(c.kernel.macros) for c in calls) >= len(layers)
    inputs = inputs_of(graph)
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    folders = [
        build(graph, b, tmp_path / name) for name, b in (("s", small), ("w", load_board(board)))
    ]
    found, plain = (virtual_board(board).run(f, cases, tmp_path, 1) for f in folders)
    check(graph, dict(zip(graph.outputs, (y[0] for y in found), strict=True)), inputs)
    for y, other in zip(found, plain, strict=True):
        np.testing.assert_array_equal(y, other)


@pytest.mark.parametrize("half", [False, True])
def test_convolutions_that_prefetch_for_others_compute_the_same(virtual_board, tmp_path, half):
    """Also where sums of f16 consist of those of runs."""
    graph = in_half(read_ahead_graph()) if half else read_ahead_graph()
    small = dataclasses.replace(load_board("rpi5"), l2_bytes=1 << (16 if half else 17), l3_bytes=0)
    calls = calls_of(c for step in lower(graph, small, threads=4).lowered.steps for c in step.calls)
    products = [call for call in calls if "READ_AHEAD" in dict(call.kernel.macros)]
    assert ["ahead" in call.fields for call in products] == [True, *[False] * 4]
    assert half == all("LONG_SUMS" in dict(call.kernel.macros) for call in products)
    inputs = inputs_of(graph)
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    folder = build(graph, small, tmp_path / "release", threads=4)
    one, four = (virtual_board("a76").run(folder, cases, tmp_path, n) for n in (1, 4))
    (check_half if half else check)(
        graph, dict(zip(graph.outputs, (y[0] for y in four), strict=True)), inputs
    )
    for y, other in zip(one, four, strict=True):
        np.testing.assert_array_equal(y, other)


def test_products_of_bytes_that_prefetch_for_others_compute_the_same(virtual_board, tmp_path):
    """Where a core out of order has no dot products."""
    graph = read_ahead_graph(dtype=DType.I8)
    small = dataclasses.replace(load_board("rpi4"), l2_bytes=1 << 15)
    calls = calls_of(c for step in lower(graph, small, threads=4).lowered.steps for c in step.calls)
    assert all("READ_AHEAD" in dict(call.kernel.macros) for call in calls)
    assert ["ahead" in call.fields for call in calls] == [True, *[False] * 4]
    inputs = inputs_of(graph)
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    folder = build(graph, small, tmp_path / "release", threads=4)
    for threads in (1, 4):
        rows = virtual_board("a57").run(folder, cases, tmp_path, threads)
        check(graph, dict(zip(graph.outputs, (y[0] for y in rows), strict=True)), inputs)
