"""f16 convolutions by Winograd's transform, under qemu."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Activation, Padding
from edgekit.host.compiler.lowering.gemm.winograd_memory import with_winograd
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.lab.zoo.cases import Cases
from tests.cross.conftest import HALF, half_board
from tests.support.half_graphs import in_half
from tests.support.kernel_runs import build
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of, inputs_of

pytestmark = pytest.mark.cross


def _winograd_graph(rng, vl):
    """Odd sizes, narrow last panels, partial groups of tiles, runs of 32 channels and a rest."""
    cases = []
    sizes = ((15, 10, 16, 24), (7, 9, 40, 16), (11, 17, 72, 32), (7, 8, 512, 32))
    ends = (ops.Silu(), None, ops.HardSwish(), None)
    for (h, w, *channels), end in zip(sizes, ends, strict=True):
        c, oc = (round_up(n, vl) for n in channels)
        weights = constant(rng.standard_normal((oc, 3, 3, c)).astype(np.float32) / (9 * c) ** 0.5)
        bias = constant(rng.standard_normal(oc).astype(np.float32))
        activation = Activation.NONE if end else Activation.RELU
        op = ops.Conv2D(padding=Padding(1, 1, 1, 1), activation=activation, epilogue=end)
        x = tensor((1, h, w, c))
        more = () if end else (tensor(op.infer([x, weights, bias])[0][0]),)
        cases.append(Case(op, (x, weights, bias, *more)))
    return graph_of(cases)


def _run(graph, inputs, board, machine, folder):
    built = build(graph, board, folder / "release", table=KnowledgeBase((board.platform,)))
    runs = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    rows = machine.run(built, runs, folder)
    return {name: row[0] for name, row in zip(graph.outputs, rows, strict=True)}


@pytest.mark.parametrize("core", ["a76", "x60"])
def test_winograd_in_f16_rounds_as_the_reference(virtual_board, tmp_path, core):
    profile, cpu = HALF[core]
    board, machine = half_board(profile), virtual_board(profile, cpu)
    direct = in_half(_winograd_graph(np.random.default_rng(1), board.isa.of_half.vl))
    graph = with_winograd(direct, board, KnowledgeBase((board.platform,)), 1)
    marked = [n.op.winograd for n in graph.nodes if isinstance(n.op, ops.Conv2D)]
    assert marked == [True] * 4
    inputs = inputs_of(graph)
    made = _run(graph, inputs, board, machine, tmp_path)
    for name, want in evaluate(graph, inputs).outputs.items():
        off, largest = np.abs(made[name] - want), np.max(np.abs(want))
        # Partial groups of tiles add the products of a narrow panel in another order.
        assert np.max(off) <= 2**-8 * largest and np.mean(off) <= 2**-12 * largest, name
