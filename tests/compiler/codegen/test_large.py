"""Graphs with very many operators, and operators with very many operands."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.device.runtime.agent.model import LoadedModel
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.host.compiler.driver import units_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.schedule.schedule import schedule
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check, run_here
from tests.support.op_graphs import inputs_of


def _chain(count: int) -> Graph:
    tensors = {f"t{i}": Tensor(f"t{i}", (1, 8), DType.F32) for i in range(count + 1)}
    kinds = (ops.Tanh(), ops.Cos(), ops.Abs(), ops.Logistic())
    nodes = tuple(Node(f"n{i}", kinds[i % 4], (f"t{i}",), (f"t{i + 1}",)) for i in range(count))
    return Graph("chain", tensors, nodes, ("t0",), (f"t{count}",))


def test_a_long_section_is_functions_of_some_steps_each(tmp_path):
    graph = _chain(300)
    folder, inputs = build(graph, load_board("local"), tmp_path), inputs_of(graph)
    check(graph, run_here(folder, inputs), inputs)
    model = LoadedModel(ReleaseFiles(folder))
    assert all(0 < each < 1e9 for each in model.bench(1).operators[0])
    model.close()


@pytest.mark.slow
def test_very_many_sections_share_files(tmp_path):
    graph, board = _chain(600), load_board("local")
    parts = [part.operators for part in schedule(graph, board).subgraphs]
    plan = lower(graph, board, None, parts)
    written = [u for u in units_of(plan, board) if isinstance(u.source, str)]
    assert len(plan.sections) > len(written)
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path, parts), inputs), inputs)


def test_very_many_operands(tmp_path):
    shapes = [(3, 1 + i % 5) for i in range(200)]
    tensors = {f"x{i}": Tensor(f"x{i}", s, DType.F32) for i, s in enumerate(shapes)}
    inputs = tuple(tensors)
    tensors["y"] = Tensor("y", (3, sum(s[1] for s in shapes)), DType.F32)
    graph = Graph("join", tensors, (Node("y", ops.Concat(1), inputs, ("y",)),), inputs, ("y",))
    given = inputs_of(graph)
    made = run_here(build(graph, load_board("local"), tmp_path), given)
    np.testing.assert_array_equal(made["y"], np.concatenate(list(given.values()), 1))
