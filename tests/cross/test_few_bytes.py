"""Products of so few bytes that their weights stay in registers, under qemu."""

from __future__ import annotations

import pytest

from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.support.few_bytes import few_bytes_graph
from tests.support.kernel_runs import build, check
from tests.support.op_graphs import inputs_of

pytestmark = pytest.mark.cross


def test_strips_of_pixels_equal_the_reference(virtual_board, tmp_path):
    """Pieces of threads begin and end within the panels of a tile."""
    graph, board = few_bytes_graph(), load_board("a72")
    steps = lower(graph, board).lowered.steps
    kernels = [dict(call.kernel.macros) for step in steps for call in step.calls]
    assert {"1", "2"} <= {k.get("STEPS") for k in kernels}
    assert sum("STEPS" not in k for k in kernels) == 2  # with -128
    assert {"FLIPPED", "HALF_STEP", "LOOK_UP", "ROUND_ONCE"} <= {m for k in kernels for m in k}
    assert {"0", "1"} <= {k.get("W_ZERO") for k in kernels}
    inputs = inputs_of(graph)
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    folder = build(graph, board, tmp_path / "release")
    for threads in (1, 3):
        rows = virtual_board("a57").run(folder, cases, tmp_path, threads)
        check(graph, {n: r[0] for n, r in zip(graph.outputs, rows, strict=True)}, inputs)
