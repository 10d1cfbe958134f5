"""Splitting: afterwards every operator fits, and nothing else changes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import DType, Graph, Node, Padding, Tensor
from edgekit.host.compiler.transforms.split import needed_bytes, split
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check, run_here
from tests.support.op_cases import constant, quant, stateful_graph, tensor
from tests.support.op_graphs import FAMILIES, inputs_of, random_graph
from tests.support.places import few_or_all


def _needs(graph: Graph) -> int:
    return max(needed_bytes(graph.tensors, node) for node in graph.nodes)


def _same_values(before: Graph, after: Graph) -> None:
    inputs = inputs_of(before)
    ours, theirs = evaluate(after, inputs).outputs, evaluate(before, inputs).outputs
    assert after.outputs == before.outputs
    for name, want in theirs.items():
        if want.dtype == np.float32:
            np.testing.assert_allclose(ours[name], want, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(ours[name], want)


def _halved(graph: Graph, share: float) -> Graph:
    """Split to a fraction of the largest operator's memory, or as far as possible."""
    limit = int(_needs(graph) * share)
    while True:
        try:
            after = split(graph, limit)
        except InputError:
            limit += max(limit // 4, 1)
            continue
        assert _needs(after.graph) <= limit
        assert set(after.origin) <= {n.name for n in after.graph.nodes}
        assert set(after.origin.values()) <= {n.name for n in graph.nodes}
        return after.graph


@pytest.mark.slow
@pytest.mark.parametrize("family", few_or_all(FAMILIES, list(FAMILIES)[1::3]))
@settings(max_examples=10)
@example(seed=65, share=0.5)  # u8 with a scale for each channel, if pruned_i8
@given(seed=st.integers(0, 10**6), share=st.floats(0.05, 0.8))
def test_every_operator_fits_and_computes_the_same(family, seed, share):
    graph = random_graph(family, 3, seed)
    _same_values(graph, _halved(graph, share))


def _together(graphs: list[Graph]) -> Graph:
    """Combine independent graphs into one."""
    tensors: dict[str, Tensor] = {}
    nodes, inputs, outputs = [], [], []
    for i, graph in enumerate(graphs):

        def name(old: str | None, i: int = i) -> str | None:
            return old and f"g{i}_{old}"

        for t in graph.tensors.values():
            made = dataclasses.replace(t, name=name(t.name))
            tensors[made.name] = made
        nodes += [
            Node(name(n.name), n.op, tuple(map(name, n.inputs)), tuple(map(name, n.outputs)))
            for n in graph.nodes
        ]
        inputs += map(name, graph.inputs)
        outputs += map(name, graph.outputs)
    return Graph("together", tensors, tuple(nodes), tuple(inputs), tuple(outputs))


@pytest.mark.slow
@pytest.mark.exhaustive
def test_kernels_compute_parts_as_they_compute_the_whole(tmp_path):
    """Integers bit for bit; floats up to the summation order, which depends on tile heights."""
    graphs = [random_graph(family, 3, seed) for seed, family in enumerate(FAMILIES)]
    graph, parts = _together(graphs), _together([_halved(g, 0.3) for g in graphs])
    inputs = inputs_of(graph)
    check(graph, run_here(build(parts, load_board("local"), tmp_path), inputs), inputs)


def _one(op: ops.Conv2D | ops.MaxPool2D | ops.Transpose | ops.Add, *ins: Tensor) -> Graph:
    tensors = {
        f"t{i}": Tensor(f"t{i}", t.shape, t.dtype, t.quant, t.data) for i, t in enumerate(ins)
    }
    names = tuple(tensors)
    shape, dtype = op.infer(list(tensors.values()))[0]
    tensors["y"] = Tensor("y", shape, dtype)
    inputs = tuple(n for n in names if tensors[n].data is None)
    return Graph("one", tensors, (Node("it", op, names, ("y",)),), inputs, ("y",))


def _axis(graph: Graph, limit: int) -> int:
    """The axis of the concat before the output."""
    joined = split(graph, limit).graph.producer()["y"]
    assert isinstance(joined.op, ops.Concat)
    return joined.op.axis


def test_axes_come_in_the_order_of_the_table():
    conv, weights = ops.Conv2D(), constant(np.ones((64, 1, 1, 8), np.float32))
    assert _axis(_one(conv, tensor((4, 8, 8, 8)), weights), 40_000) == 0
    assert _axis(_one(conv, tensor((1, 2, 2, 8)), weights), 2800) == 3
    assert _axis(_one(conv, tensor((1, 64, 64, 8)), weights), 400_000) == 1
    pool = ops.MaxPool2D((2, 2), (2, 2))
    assert _axis(_one(pool, tensor((3, 8, 8, 8))), 4000) == 0
    assert _axis(_one(pool, tensor((1, 8, 8, 8))), 2400) == 3
    swapped = ops.Transpose((0, 1, 3, 2))
    assert _axis(_one(swapped, tensor((2, 8, 8, 8))), 8000) == 0
    assert _axis(_one(swapped, tensor((1, 8, 8, 8))), 2400) == 1
    assert _axis(_one(ops.Add(), tensor((1, 8, 8, 8)), tensor((1, 8, 8, 8))), 3000) == 1


def test_rows_of_a_window_that_parts_share_are_read_by_both():
    weights = constant(np.ones((4, 3, 3, 4), np.float32))
    graph = _one(ops.Conv2D(padding=Padding(1, 1, 1, 1)), tensor((1, 16, 16, 4)), weights)
    after = split(graph, 3000).graph
    rows = [after.tensors[n.inputs[0]].shape[1] for n in after.nodes if n.op.kind == "conv2d"]
    assert len(rows) > 2 and sum(rows) == 16 + 2 * (len(rows) - 1)
    _same_values(graph, after)


def test_joins_and_slices_of_whole_runs_cost_no_copy(tmp_path):
    weights = constant(np.ones((4, 3, 3, 4), np.float32))
    graph = _one(ops.Conv2D(padding=Padding(1, 1, 1, 1)), tensor((1, 16, 16, 4)), weights)
    about = (
        build(split(graph, 3000).graph, load_board("local"), tmp_path) / "about.json"
    ).read_text()
    assert "copy" not in about and about.count('"conv2d"') > 2


def test_what_cannot_be_split_is_refused_by_name_bytes_and_limit():
    graph = _one(ops.MaxPool2D((2, 2), (1, 1)), tensor((1, 8, 8, 1)))
    with pytest.raises(InputError, match=r"operator it: expected at most 100 bytes .* found 452"):
        split(graph, 100)
    with pytest.raises(InputError, match="operator read"):
        split(stateful_graph(), 8)


def test_no_limit_leaves_the_graph_as_it_is():
    graph = random_graph("conv_f32", 3, 1)
    assert split(graph, None).graph is graph
    assert split(graph, 1 << 30).graph is graph


def test_quantized_channels_keep_their_scales():
    weights = constant(
        np.arange(64 * 8).reshape(64, 1, 1, 8) % 100, DType.I8, quant(np.linspace(0.01, 0.1, 64))
    )
    x = tensor((1, 8, 8, 8), DType.I8, quant(0.05, 3))
    graph = _one(ops.Conv2D(), x, weights)
    y = graph.tensors["y"]
    tensors = {**graph.tensors, "y": Tensor("y", y.shape, y.dtype, quant(0.2, -4))}
    graph = Graph("one", tensors, graph.nodes, graph.inputs, graph.outputs)
    after = split(graph, 3000).graph
    assert sum(n.op.kind == "conv2d" for n in after.nodes) > 1
    _same_values(graph, after)
