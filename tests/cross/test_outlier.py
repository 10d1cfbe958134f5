"""The outlier split of each board under qemu, against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import DType
from edgekit.host.compiler.lowering.context import WeightsFile
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.transforms.passes.compress import compress_weights
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import CPUS, RVV, cores
from tests.support.kernel_runs import build as build_graph
from tests.support.kernel_runs import check as check_graph
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of, inputs_of
from tests.support.outlier_cases import build, check, encoded, output_bytes, random_case
from tests.support.outlier_graphs import tied, with_shared_tables

pytestmark = pytest.mark.cross
# Rows, outputs, inputs, values per scale.
_FEW_BITS = [
    *((m, n, 256, 64) for m in (1, 5) for n in (5, 33, 83)),
    *((m, 48, 512, group) for m in (1, 9) for group in (16, 32, 128, 256)),
    (1, 32, 1024, 512),
]
# Outputs, inputs, values per scale, threshold: inputs are in [-1, 1].
_LOOKED_UP = [(83, 256, 64, 0.95), (64, 512, 32, 6.0), (5, 192, 96, 0.5), (145, 512, 256, 0.95)]


@pytest.mark.parametrize("board", cores("a57", "a76", "a720", "a7", "rv64gc", *RVV))
def test_products_marks_and_rows_are_numpys(board, virtual_board, tmp_path):
    rng = np.random.default_rng(len(board))
    cases = [random_case(rng) for _ in range(150)]
    library = build(load_board(board), tmp_path / "products.so")
    made = virtual_board(board).run_cases(library, encoded(cases), output_bytes(cases), 2)
    check(cases, made)


def test_subnormal_halves_are_not_zero(virtual_board, tmp_path):
    """32-bit NEON takes them for zero in arithmetic."""
    rng = np.random.default_rng(2)
    cases = [random_case(rng) for _ in range(30)]
    tiny = [(rng.standard_normal(case.x.shape) * 2.0**-18).astype(np.float16) for case in cases]
    cases = [replace(case, x=x) for case, x in zip(cases, tiny, strict=True)]
    library = build(load_board("a7"), tmp_path / "products.so")
    check(cases, virtual_board("a7").run_cases(library, encoded(cases), output_bytes(cases), 2))


@pytest.mark.parametrize("board", cores("a57", "a76", "a720", "a7", "rv64gc", *RVV))
def test_rows_are_picked_from_the_weights_of_a_product(board, virtual_board, tmp_path):
    graph, profile = compress_weights(tied(1003, 70), "int8"), load_board(board)
    tokens = np.array([[0], [63], [998], [1002], [-1], [5000]], np.int64)
    hidden = np.random.default_rng(1).standard_normal((len(tokens), 1, 70)).astype(np.float32)
    folder = build_graph(graph, profile, tmp_path / "release")
    rows = virtual_board(board).run(folder, Cases((tokens, hidden), steps=1), tmp_path)
    for i, token in enumerate(tokens):
        want = evaluate(graph, {"token": token, "hidden": hidden[i]}).outputs
        np.testing.assert_allclose(rows[0][i], want["logits"], rtol=1e-5, atol=1e-4)
        np.testing.assert_array_equal(rows[1][i], want["row"])
    deep = 80  # 70, rounded up to any core's step; scales and biases take three words
    assert (folder / "weights.bin").stat().st_size < 1003 * (deep + 20)


@pytest.mark.parametrize("board", cores("a57", "a76", "a7", *RVV))
def test_rows_are_picked_from_the_weights_that_a_product_streams(board, virtual_board, tmp_path):
    rng, rows, k, group, parts = np.random.default_rng(2), 83, 256, 64, []
    indices = np.array([0, 5, 63, 64, 82, -1, 500], np.int32)
    for most, kept in ((2, np.float16), (4, np.float16), (8, np.float32), (128, np.float16)):
        table = constant(rng.integers(1 - most, most, (rows, k)), DType.I8)
        scale = rng.uniform(0.5, 1, (rows, k // group)).astype(kept).astype(np.float32)
        parts.append(
            Case(ops.GatherQuantized(), (table, constant(indices, DType.I32), constant(scale)))
        )
        by = tensor((1, k)), table, constant(np.ascontiguousarray(scale.T))
        parts.append(Case(ops.OutlierFullyConnected(0.95), by))
    graph, profile = with_shared_tables(graph_of(parts)), load_board(board)
    low = lower(graph, profile).lowered
    streams = [c.kernel.symbol for s in low.steps for c in s.calls if "stream" in c.kernel.symbol]
    assert len(streams) == (0 if board == "rv64gcv-zvl512b" else 4)
    inputs = inputs_of(graph)
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    folder = build_graph(graph, profile, tmp_path / "release")
    made = virtual_board(board).run(folder, cases, tmp_path)
    check_graph(graph, dict(zip(graph.outputs, (y[0] for y in made), strict=True)), inputs)


@pytest.mark.parametrize("most", [2, 4])
@pytest.mark.parametrize("board", cores("a57", "a76", "a55", "a7", *RVV))
def test_products_by_weights_of_few_bits_are_numpys(board, most, virtual_board, tmp_path):
    """Rows and several rows; groups of 16 to 512, panels that are full and that are not."""
    rng, layers = np.random.default_rng(3), []
    for m, n, k, group in _FEW_BITS:
        weights = constant(rng.integers(-most, most, (n, k)), DType.I8)
        scales = constant(rng.uniform(0.5, 1, (k // group, n)).astype(np.float16) / 4)
        layers.append(Case(ops.OutlierFullyConnected(0.95), (tensor((m, k)), weights, scales)))
    graph = graph_of(layers)
    inputs = inputs_of(graph)
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    folder = build_graph(graph, load_board(board), tmp_path / "release")
    made = virtual_board(board, CPUS.get(board, CPUS["a76"])).run(folder, cases, tmp_path, 2)
    check_graph(graph, dict(zip(graph.outputs, (y[0] for y in made), strict=True)), inputs)


def test_a_row_by_weights_that_threads_read_in_turn_is_numpys(virtual_board, tmp_path):
    rng, (n, k), board = np.random.default_rng(6), (1037, 2048), load_board("rk3566")
    weights = constant(rng.integers(-2, 2, (n, k)), DType.I8)
    scales = constant(rng.uniform(0.5, 1, (k // 256, n)).astype(np.float16) / 4)
    graph = graph_of([Case(ops.OutlierFullyConnected(0.95), (tensor((1, k)), weights, scales))])
    folder = build_graph(graph, board, tmp_path / "release", threads=4)
    assert b"in_turn" in (folder / "model.so").read_bytes()
    inputs = inputs_of(graph)
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    (y,) = virtual_board("a76").run(folder, cases, tmp_path, 4)
    check_graph(graph, {graph.outputs[0]: y[0]}, inputs)


@pytest.mark.parametrize("least", [-2, -1])
def test_rows_that_look_sums_up_are_numpys(least, virtual_board, tmp_path):
    """Also where an embedding reads the rows of their weights."""
    rng, layers = np.random.default_rng(4), []
    for n, k, group, threshold in _LOOKED_UP:
        weights = constant(rng.integers(least, 2, (n, k)), DType.I8)
        scale = rng.uniform(0.5, 1, (n, k // group)).astype(np.float16).astype(np.float32)
        rows = constant(np.arange(n), DType.I32)
        layers.append(Case(ops.GatherQuantized(), (weights, rows, constant(scale))))
        by = tensor((1, k)), weights, constant(np.ascontiguousarray(scale.T))
        layers.append(Case(ops.OutlierFullyConnected(threshold, tables=True), by))
    graph = with_shared_tables(graph_of(layers))
    inputs = inputs_of(graph)
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    folder = build_graph(graph, load_board("a57"), tmp_path / "release")
    made = virtual_board("a57").run(folder, cases, tmp_path, 2)
    check_graph(graph, dict(zip(graph.outputs, (y[0] for y in made), strict=True)), inputs)


@pytest.mark.parametrize("n", [145, 64, 37])
def test_several_rows_read_weights_that_a_row_looks_up(n, virtual_board, tmp_path):
    rng, k, board = np.random.default_rng(5), 256, load_board("a57")
    weights = constant(rng.integers(-2, 2, (n, k)), DType.I8)
    scales = constant(rng.uniform(0.5, 1, (4, n)).astype(np.float16) / 4)
    one, several = (
        graph_of(
            [
                Case(
                    ops.OutlierFullyConnected(0.95, tables=m == 1),
                    (tensor((m, k)), weights, scales),
                )
            ]
        )
        for m in (1, 9)
    )
    stored = WeightsFile()
    lower(one, board, weights=stored)
    stored.end_variant()
    before, inputs = stored.stored, inputs_of(several)
    folder = build_graph(several, board, tmp_path / "release", weights=stored)
    assert stored.stored - before < n * k // 4  # the weights are those of the row
    cases = Cases(tuple(inputs[name][None] for name in several.inputs), steps=1)
    (y,) = virtual_board("a57").run(folder, cases, tmp_path, 2)
    check_graph(several, {several.outputs[0]: y[0]}, inputs)
