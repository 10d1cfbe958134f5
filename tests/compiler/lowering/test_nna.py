"""Layers on the NNA match the cores bit for bit, and are placed by cost."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from edgekit.device import nna_matmul, nna_pointwise
from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.costs.nna import product_form
from edgekit.host.compiler.driver import units_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.nna import fits_nna, misfit
from edgekit.host.compiler.ir.types import DType, Graph, Padding
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.lowering.nna.units import NNA, assign_units
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import check, run_here
from tests.support.nna_cases import operands
from tests.support.nna_graphs import layers, products, weights_of
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of, inputs_of
from tests.support.toolchains import toolchain_for


def _built(graph: Graph, chip: str, folder: Path) -> set[str]:
    """Build the model into `folder` with all nodes on the NNA; return its kernels."""
    board = dataclasses.replace(load_board("local"), nna=load_board(chip).nna)
    assert all(fits_nna(graph, node) for node in graph.nodes)
    plan = lower(graph, board, units={node.name: NNA for node in graph.nodes})
    library = toolchain_for(board).build(units_of(plan, board))
    (folder / "model.so").write_bytes(library)
    (folder / "weights.bin").write_bytes(plan.lowered.weights)
    return {step.kernel.removesuffix(f"_{board.simd}") for step in plan.lowered.steps}


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["nna1", "nna2"])
@pytest.mark.parametrize("seed", range(3))
def test_products_of_computed_matrices_are_bit_for_bit_those_of_the_reference(chip, seed, tmp_path):
    graph = products(seed)
    assert _built(graph, chip, tmp_path) == {"ek_nna_product"}
    for extremes in (False, True):
        inputs = inputs_of(graph, seed)
        if extremes:
            inputs = {
                name: np.where(x < 0, -128, 127).astype(np.int8) for name, x in inputs.items()
            }
        check(graph, run_here(tmp_path, inputs), inputs)


@pytest.mark.parametrize(
    ("m", "k", "n", "form"),
    [
        (64, 64, 64, "columns"),
        (196, 32, 196, "columns"),
        (1, 9, 512, "values"),
        (1, 9, 31, "values"),
    ],
)
def test_of_two_ways_a_product_takes_the_cheaper_one(m, k, n, form):
    chip = load_board("nna2").nna.chip
    a, b = operands(m, k, n)
    cycles = {
        "columns": nna_pointwise(a, np.ascontiguousarray(b.T), True, chip=chip)[1].cycles,
        "values": nna_matmul(a, b, True, chip=chip)[1].cycles,
    }
    assert min(cycles, key=cycles.__getitem__) == form == product_form(chip, m, k, n)


@pytest.mark.parametrize("chip", ["nna1", "nna2"])
def test_layers_are_bit_for_bit_those_of_the_reference(chip, tmp_path):
    graph = layers(len(chip))
    assert _built(graph, chip, tmp_path) == {"ek_nna_layer"}
    inputs = inputs_of(graph)
    check(graph, run_here(tmp_path, inputs), inputs)


def _large(kernel: int, dtype: DType = DType.I8) -> Graph:
    rng = np.random.default_rng(0)
    q = quant(0.05) if dtype is DType.I8 else None
    w = constant(weights_of(rng, 64, kernel, kernel, 64), dtype, quant(0.01) if q else None)
    pad = Padding(*[kernel // 2] * 4)
    x = tensor((1, 32, 32, 64), dtype, q)
    return graph_of([Case(ops.Conv2D(padding=pad), (x, w, None), q)])


def test_what_is_cheaper_there_goes_to_the_nna():
    board = load_board("nna2")
    cost = CostModel(board).cost
    assert assign_units(_large(3), board, cost) == {"n0": NNA}
    assert assign_units(_large(5), board, cost) == {}  # only 3x3 windows are supported
    assert assign_units(_large(3, DType.F32), board, cost) == {}
    assert assign_units(_large(3), board, lambda graph, node, unit: float(unit == NNA)) == {}
    assert assign_units(_large(3), load_board("a57"), cost) == {}


def _layer(op, x, w, dtype: DType = DType.I8) -> Graph:
    q = quant(0.1) if dtype is DType.I8 else None
    given = (tensor(x, dtype, q), constant(np.zeros(w), dtype, q), None)
    return graph_of([Case(op, given, q)])


def _product_of(k: int) -> Graph:
    a, b = tensor((1, k), DType.I8, quant(0.1)), tensor((k, 2), DType.I8, quant(0.1))
    return graph_of([Case(ops.MatMul(), (a, b), quant(0.1))])


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (_layer(ops.Conv2D(), (1, 8, 8, 4), (4, 5, 3, 4)), "windows of at most 3x3, found 5x3"),
        (_layer(ops.Conv2D((3, 3)), (1, 8, 8, 4), (4, 3, 3, 4)), "stride 1 or 2, found 3x3"),
        (_layer(ops.Conv2D((1, 2)), (1, 8, 8, 4), (4, 3, 3, 4)), "stride 1 or 2, found 1x2"),
        (_layer(ops.Conv2D(dilation=(2, 2)), (1, 8, 8, 4), (4, 3, 3, 4)), "dilation, found 2x2"),
        (_layer(ops.Conv2D(), (2, 8, 8, 4), (4, 1, 1, 4)), "one image, found 2"),
        (_layer(ops.Conv2D(), (1, 8, 8, 4), (4, 1, 1, 4), DType.F32), "s8 throughout, found f32"),
        (_product_of(40_000), "sums of at most 33025 products, found 40000"),
        (
            _layer(ops.DepthwiseConv2D(multiplier=2), (1, 8, 8, 4), (1, 3, 3, 8)),
            "one output for each channel, found 2",
        ),
        (_layer(ops.DepthwiseConv2D(), (1, 8, 8, 4), (1, 1, 4, 4)), "3x3, found 1x4"),
    ],
)
def test_the_reason_why_a_layer_does_not_fit_is_reported(graph, said):
    why = misfit(graph, graph.nodes[0])
    assert why is not None and why.startswith("expected ") and said in why
    assert not fits_nna(graph, graph.nodes[0])


def test_points_may_have_any_stride():
    graph = _layer(ops.Conv2D((3, 1)), (1, 8, 8, 4), (4, 1, 1, 4))
    assert misfit(graph, graph.nodes[0]) is None
