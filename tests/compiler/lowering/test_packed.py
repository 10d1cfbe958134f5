"""Attention products read and write through transposes, if a board has the kernel."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor
from edgekit.host.compiler.lowering.gemm.packed import with_views
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.compiler.tables.gemm_table import OperatorRow
from edgekit.kb.features import key_of
from edgekit.kb.targets.board import load_profile
from tests.support.op_graphs import inputs_of

_SHAPES = MappingProxyType(
    {
        **dict.fromkeys("QKV", (1, 17, 3, 8)),
        **dict.fromkeys("qv", (1, 3, 17, 8)),
        "k": (1, 3, 8, 17),
        **dict.fromkeys(("s", "scaled", "p"), (1, 3, 17, 17)),
        "o": (1, 3, 17, 8),
        "y": (1, 17, 3, 8),
    }
)


def _attention() -> Graph:
    tensors = {name: Tensor(name, shape, DType.F32) for name, shape in _SHAPES.items()}
    factor = np.full((1,), 0.25, np.float32)
    tensors["factor"] = Tensor("factor", (1,), DType.F32, None, factor)
    nodes = (
        Node("tq", ops.Transpose((0, 2, 1, 3)), ("Q",), ("q",)),
        Node("tk", ops.Transpose((0, 2, 3, 1)), ("K",), ("k",)),
        Node("tv", ops.Transpose((0, 2, 1, 3)), ("V",), ("v",)),
        Node("scores", ops.MatMul(), ("q", "k"), ("s",)),
        Node("scale", ops.Mul(), ("s", "factor"), ("scaled",)),
        Node("softmax", ops.Softmax(), ("scaled",), ("p",)),
        Node("values", ops.MatMul(), ("p", "v"), ("o",)),
        Node("to", ops.Transpose((0, 2, 1, 3)), ("o",), ("y",)),
    )
    return Graph("attention", tensors, nodes, ("Q", "K", "V"), ("y",))


@pytest.mark.parametrize("board", ["a53", "a76", "rv64gcv"])
def test_transposes_and_factors_around_products_are_read_through(board):
    graph = _attention()
    after = with_views(graph, load_profile(board))
    assert [n.name for n in after.nodes] == ["scores", "softmax", "values"]
    inputs = inputs_of(graph)
    want, made = (evaluate(g, inputs).outputs["y"] for g in (graph, after))
    np.testing.assert_array_equal(made, want)
    plan = lower(after, load_profile(board))
    assert len([s for s in plan.lowered.steps for _ in s.calls]) == 3


@pytest.mark.parametrize("board", ["x86-64-v4", "a7", "rv64gc"])
def test_other_boards_keep_transposes(board):
    graph = _attention()
    assert with_views(graph, load_profile(board)) is graph


def test_a_transpose_stays_that_others_read_or_whose_rows_are_apart():
    board, graph = load_profile("a53"), _attention()
    read = Graph("read", graph.tensors, graph.nodes, graph.inputs, ("y", "q"))
    assert "tq" in [n.name for n in with_views(read, board).nodes]
    turned = Tensor("P", (1, 3, 17, 17), DType.F32)
    nodes = (
        Node("tp", ops.Transpose((0, 1, 3, 2)), ("P",), ("p",)),
        Node("values", ops.MatMul(), ("p", "v"), ("o",)),
    )
    tensors = {name: graph.tensors[name] for name in ("p", "v", "o")} | {"P": turned}
    apart = Graph("apart", tensors, nodes, ("P", "v"), ("o",))
    assert [n.name for n in with_views(apart, board).nodes] == ["tp", "values"]


def _token(rows: int) -> Graph:
    """Attention of a few query rows over caches stored as [heads, length, size]."""
    shapes = {"q": (3, rows, 8), "K": (3, 17, 8), "k": (3, 8, 17), "V": (3, 17, 8)}
    shapes |= dict.fromkeys("sp", (3, rows, 17)) | {"y": (3, rows, 8)}
    tensors = {name: Tensor(name, shape, DType.F32) for name, shape in shapes.items()}
    nodes = (
        Node("tk", ops.Transpose((0, 2, 1)), ("K",), ("k",)),
        Node("scores", ops.MatMul(), ("q", "k"), ("s",)),
        Node("softmax", ops.Softmax(), ("s",), ("p",)),
        Node("values", ops.MatMul(), ("p", "V"), ("y",)),
    )
    return Graph("token", tensors, nodes, ("q", "K", "V"), ("y",))


@pytest.mark.parametrize("rows", [1, 4, 5])
@pytest.mark.parametrize("board", ["a53", "a76", "a7", "rv64gc", "bpi-f3", "x86-64-v4"])
def test_a_few_rows_meet_caches_where_they_lie(board, rows):
    profile = load_profile(board)
    graph = with_views(_token(rows), profile)
    streams = rows <= 4 and board != "x86-64-v4"
    transposed = not streams and board in ("a7", "rv64gc", "x86-64-v4")
    assert ("tk" in [n.name for n in graph.nodes]) == transposed
    found = {s.name: s.compiled for s in lower(graph, profile).lowered.steps}
    other = "unpacked" if transposed else "packed"
    for name in ("scores", "values"):
        compiled = found[name]
        assert compiled is not None and compiled.choice.form is not None
        assert compiled.method.family == ("streamed" if streams else other)
        runner_up = compiled.choice.runner_up
        if streams:
            assert runner_up is not None
            assert runner_up.cost > 1 or runner_up.method.family == "unpacked"
        else:
            assert runner_up is None


def test_a_row_of_a_table_has_the_caches_packed():
    profile = load_profile("a76")
    graph = with_views(_token(2), profile)
    first = next(s.compiled for s in lower(graph, profile).lowered.steps if s.name == "scores")
    assert first is not None and first.choice.form is not None
    assert first.choice.runner_up is not None
    form, packed = first.choice.form, first.choice.runner_up.method
    table = table_of(profile)
    key = key_of(
        form.shape, table.platforms.index(profile.platform), table.for_operators, "f32", 1, "b",
        form.name,
    )  # fmt: skip
    row = OperatorRow(key, packed, form.shape, "tuner")
    steps = lower(graph, profile, replace(table, operators=(row,))).lowered.steps
    found = next(s.compiled for s in steps if s.name == "scores")
    assert found is not None and found.choice.rule == "exact" and found.method == packed
    assert found.kernel.startswith("ek_f32_packed_")
