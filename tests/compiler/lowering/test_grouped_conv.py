"""Convolutions of the groups of an image's channels run as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Activation, Graph, Node, Padding
from edgekit.host.compiler.lowering.conv import grouped_conv
from edgekit.host.compiler.lowering.gemm.epilogues import fuse_epilogues
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.kb.targets.board import BoardProfile, load_board
from tests.support.grouped_graphs import SIZES, grouped
from tests.support.kernel_runs import build, check, run_here, x86_params
from tests.support.op_graphs import inputs_of

_SAME = Padding(1, 1, 1, 1)
_RPI4 = load_board("rpi4")
_PLAIN = ops.Conv2D(padding=_SAME)
_TALL = ops.Conv2D((2, 2), padding=_SAME)
_FORMS = (
    _PLAIN,
    ops.Conv2D((2, 2), padding=Padding(1, 1, 0, 1), activation=Activation.RELU),
    ops.Conv2D(dilation=(2, 2), padding=Padding(2, 2, 2, 2), activation=Activation.RELU6),
)


def join_groups(graph: Graph, board: BoardProfile) -> Graph:
    return grouped_conv.join_groups(graph, board, table_of(board))


def _kinds(graph: Graph) -> list[str]:
    return [node.op.kind for node in graph.nodes]


@pytest.mark.slow
@pytest.mark.parametrize("board", x86_params())
@pytest.mark.parametrize("op", _FORMS)
def test_joined_groups_compute_the_same(
    op: ops.Conv2D, board: BoardProfile, tmp_path: Path
) -> None:
    joined = 0
    for i, size in enumerate(SIZES):
        graph = grouped(size, op, bias=i % 2 == 0)
        made = join_groups(graph, board)
        joined += len(made.nodes) == 1
        _check_same(graph, made, board, tmp_path / str(i))
    assert joined >= 2 or board.isa.vl == 1


def _check_same(graph: Graph, made: Graph, board: BoardProfile, folder: Path) -> None:
    inputs = inputs_of(graph)
    want, found = (evaluate(each, inputs).outputs["y"] for each in (graph, made))
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
    check(made, run_here(build(made, board, folder), inputs), inputs)


@pytest.mark.parametrize("window", [(1, 1), (5, 2)])
def test_windows_of_other_sizes(window: tuple[int, int], tmp_path: Path) -> None:
    board = load_board("local")
    graph = grouped((8, 16, 16, 6), ops.Conv2D(), window)
    made = join_groups(graph, board)
    assert _kinds(made) == ["grouped_conv2d"]
    _check_same(graph, made, board, tmp_path)


@pytest.mark.parametrize("before", [False, True])
def test_functions_are_fused(before: bool, tmp_path: Path) -> None:
    """Those behind the concatenation, and those of each group before it."""
    board = load_board("local")
    graph = grouped((8, 16, 16, 6), _PLAIN, after=ops.Silu())
    graph = _functions_first(graph) if before else graph
    made = join_groups(fuse_epilogues(join_groups(graph, board)), board)
    assert _kinds(made) == ["grouped_conv2d"]
    _check_same(graph, made, board, tmp_path)


def _functions_first(graph: Graph) -> Graph:
    """The function of the concatenation before it instead."""
    *convs, concat, after = graph.nodes[1:]
    tensors, nodes = dict(graph.tensors), [graph.nodes[0]]
    for conv in convs:
        name = f"{conv.outputs[0]}f"
        tensors[name] = dataclasses.replace(tensors[conv.outputs[0]], name=name)
        nodes += [conv, Node(f"{conv.name}f", after.op, conv.outputs, (name,))]
    inputs = tuple(f"{name}f" for name in concat.inputs)
    nodes.append(Node("concat", concat.op, inputs, after.outputs))
    del tensors["all"]
    return dataclasses.replace(graph, tensors=tensors, nodes=tuple(nodes))


def test_few_groups_share_a_vector() -> None:
    """On a board with vectors of 4 floats, 6 channels of each of 8 groups become 12 of 4."""
    made = join_groups(grouped((8, 3, 6, 5), _PLAIN), _RPI4)
    assert [node.op for node in made.nodes] == [ops.GroupedConv2D(padding=_SAME, groups=4)]
    weights = made.tensors[made.nodes[0].inputs[1] or ""].data
    assert weights is not None and weights.shape == (48, 3, 3, 6)
    assert np.count_nonzero(weights) == weights.size / 2


def test_wide_groups_stay_apart() -> None:
    """More than six vectors of outputs are a product large enough on its own."""
    assert _kinds(join_groups(grouped((4, 8, 24, 5), _TALL), _RPI4)) == ["grouped_conv2d"]
    wide = grouped((4, 8, 28, 5), _TALL)
    assert join_groups(wide, _RPI4) is wide


def test_groups_of_transforms_stay_apart() -> None:
    """Winograd's transform saves more than a common search for pixels."""
    graph, small = (grouped((4, 24, 24, pixels), _PLAIN) for pixels in (12, 4))
    assert join_groups(graph, _RPI4) is graph
    assert _kinds(join_groups(small, _RPI4)) == ["grouped_conv2d"]
    strided = grouped((4, 24, 24, 12), _TALL)
    assert _kinds(join_groups(strided, _RPI4)) == ["grouped_conv2d"]


def _with(graph: Graph, name: str, **changes: Any) -> Graph:
    nodes = (dataclasses.replace(n, **changes) if n.name == name else n for n in graph.nodes)
    return dataclasses.replace(graph, nodes=tuple(nodes))


def _read_elsewhere(graph: Graph) -> Graph:
    return dataclasses.replace(graph, outputs=("y", "y1"))


def _shuffled(graph: Graph) -> Graph:
    return _with(graph, "concat", inputs=("y1", "y0", *graph.nodes[-1].inputs[2:]))


def _clamped(graph: Graph) -> Graph:
    other = dataclasses.replace(_PLAIN, activation=Activation.RELU)
    return _with(graph, "c1", op=other)


def _without_bias(graph: Graph) -> Graph:
    return _with(graph, "c1", inputs=("x1", "w1", None))


def _computed_weights(graph: Graph) -> Graph:
    tensors = {**graph.tensors, "w1": dataclasses.replace(graph.tensors["w1"], data=None)}
    return dataclasses.replace(graph, tensors=tensors, inputs=("x", "w1"))


@pytest.mark.parametrize(
    "change", [_read_elsewhere, _shuffled, _clamped, _without_bias, _computed_weights]
)
def test_other_graphs_are_unchanged(change: Callable[[Graph], Graph]) -> None:
    graph = change(grouped((4, 8, 8, 5), _PLAIN))
    assert join_groups(graph, _RPI4) is graph
