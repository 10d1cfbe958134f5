"""Operators whose only reader is a channel concat write directly into its output."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Operator, Padding, Quant, Tensor
from edgekit.host.compiler.ir.views import parts_of_rows
from edgekit.host.compiler.lowering.gemm.epilogues import fuse_additions, fuse_epilogues
from edgekit.host.compiler.lowering.lower import lower
from edgekit.kb.targets.board import load_board, load_profile
from tests.support.joined_graphs import (
    EVERY_SECOND,
    HALF_OF_16,
    bottleneck,
    csp_block,
    ghost_block,
    residual_block,
    shuffled_block,
)
from tests.support.kernel_runs import build, check, run_here, x86_params
from tests.support.op_cases import quant
from tests.support.op_graphs import inputs_of

_SIZE = (6, 10)
_SAME = Padding(1, 1, 1, 1)
_PARTS = {"bilinear", "nearest", "conv", "added", "largest", "mean"}


def _graph(
    channels: int = 16, outputs: tuple[str, ...] = ("y",), dtype: DType = DType.F32
) -> Graph:
    """A small image enlarged twice, convolutions and pools of a large one, and that image
    itself."""
    rng = np.random.default_rng(1)
    h, w = _SIZE
    q = quant(0.05, -3) if dtype is DType.I8 else None
    tensors = {
        "small": Tensor("small", (1, h // 2, w // 2, channels), dtype, q),
        "large": Tensor("large", (1, h, w, channels), dtype, q),
    }

    def constant(name: str, data: np.ndarray, of: DType, scale: Quant | None = None) -> str:
        tensors[name] = Tensor(name, data.shape, of, scale, data.astype(of.numpy))
        return name

    def weights(name: str, *shape: int) -> str:
        if dtype is DType.F32:
            return constant(name, rng.standard_normal(shape), dtype)
        return constant(name, rng.integers(-127, 128, shape), dtype, quant(np.full(shape[0], 0.01)))

    nodes: list[Node] = []

    def emit(name: str, op: Operator, *inputs: str | None) -> str:
        ins = [None if i is None else tensors[i] for i in inputs]
        (shape, made), *_ = op.infer(ins)
        tensors[name] = Tensor(name, shape, made, quant(0.2, 9) if q and "sums" in name else q)
        nodes.append(Node(name, op, inputs, (name,)))
        return name

    twice = [constant(f"at{n}", np.repeat(np.arange(n // 2), 2), DType.I32) for n in _SIZE]
    kernel, point = weights("w3", 24, 3, 3, channels), weights("w1", channels, 1, 1, channels)
    if dtype is DType.F32:
        silu, leaky = ops.Conv2D(padding=_SAME, epilogue=ops.Silu()), ops.LeakyRelu(0.1)
        conv = emit("conv", silu, "large", kernel, None)
        added = emit("added", ops.Conv2D(epilogue=leaky), "large", point, None, "large")
    else:
        conv = emit("conv", ops.Conv2D(padding=_SAME), "large", kernel, None)
        added = emit("added", ops.Tanh(), emit("sums", ops.Conv2D(), "large", point, None))
    parts = [
        emit("bilinear", ops.ResizeBilinear(_SIZE), "small"),
        emit("nearest", ops.Gather(2), emit("rows", ops.Gather(1), "small", twice[0]), twice[1]),
        conv,
        "large",
        added,
        emit("largest", ops.MaxPool2D((3, 3), padding=_SAME), "large"),
        emit("mean", ops.AveragePool2D((3, 3), padding=_SAME), "large"),
    ]
    emit("y", ops.Concat(3), *parts)
    return Graph("joined", tensors, tuple(nodes), ("small", "large"), outputs)


@pytest.mark.slow
@pytest.mark.parametrize("channels", [16, 5])
@pytest.mark.parametrize("dtype", [DType.F32, DType.I8])
@pytest.mark.parametrize("board", x86_params())
def test_parts_are_made_in_their_place(board, dtype, channels, tmp_path):
    graph = _graph(channels, dtype=dtype)
    steps = {s.name: s for s in lower(graph, board).lowered.steps}
    last = "added" if dtype is DType.F32 else "sums"  # fused with its function
    assert steps.keys() == {*_PARTS - {"added"}, "rows", "y", last}
    assert len(steps["y"].calls) == 1  # for the input only
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs, threads=2), inputs)


def test_what_others_read_is_copied():
    assert parts_of_rows(_graph(outputs=("y", "conv"))).keys() == _PARTS - {"conv"}
    graph = _graph()
    twice = dataclasses.replace(
        graph.nodes[-1], inputs=("conv", *graph.nodes[-1].inputs[:2], *graph.nodes[-1].inputs[2:])
    )
    graph = dataclasses.replace(graph, nodes=(*graph.nodes[:-1], twice))
    assert "conv" not in parts_of_rows(graph)


def test_what_the_nna_makes_is_copied():
    assert parts_of_rows(_graph(), alone=["conv"]).keys() == _PARTS - {"conv"}


def test_parts_need_less_memory():
    plan = lower(_graph(), load_board("local"))
    h, w = _SIZE
    made_between = h * w // 2 * 16 * 4
    assert plan.memory.arena_bytes <= made_between + 64


def test_winograd_leaves_room(tmp_path):
    """The kernel is chosen only on ARM, so check the stride in the generated call."""
    graph = _graph()
    (step,) = [s for s in lower(graph, load_profile("a76")).lowered.steps if s.name == "conv"]
    assert step.calls[0].fields["pitch"] == 7 * 16 + 8


@pytest.mark.parametrize("board", x86_params())
def test_transposes_are_made_in_their_place_along_any_axis(board, tmp_path):
    tensors = {
        "turned": Tensor("turned", (3, 2, 7, 5), DType.F32),
        "other": Tensor("other", (2, 3, 4, 7), DType.F32),
        "part": Tensor("part", (2, 3, 5, 7), DType.F32),
        "y": Tensor("y", (2, 3, 9, 7), DType.F32),
    }
    nodes = (
        Node("part", ops.Transpose((1, 0, 3, 2)), ("turned",), ("part",)),
        Node("y", ops.Concat(2), ("part", "other"), ("y",)),
    )
    graph = Graph("turned", tensors, nodes, ("turned", "other"), ("y",))
    assert parts_of_rows(graph).keys() == {"part"}
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs), inputs)


@pytest.mark.parametrize("cut", [None, HALF_OF_16])
@pytest.mark.parametrize("dtype", [DType.F32, DType.I8])
@pytest.mark.parametrize("board", x86_params())
def test_slices_read_parts_where_they_were_made(board, dtype, cut, tmp_path):
    graph = csp_block(dtype, cut)
    read = {"half"} if dtype is DType.F32 else set()
    assert parts_of_rows(graph).keys() == {"all", "more"} | read
    steps = {s.name: s for s in lower(graph, board).lowered.steps}
    assert "y" not in steps or not steps["y"].calls
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs, threads=2), inputs)


@pytest.mark.slow
@pytest.mark.parametrize(("window", "channels"), [(3, 24), (5, 7), (9, 20)])
@pytest.mark.parametrize("dtype", [DType.F32, DType.I8])
@pytest.mark.parametrize("board", x86_params())
def test_depthwise_convolutions_read_and_write_in_place(board, dtype, window, channels, tmp_path):
    graph = ghost_block(dtype, window, channels)
    assert parts_of_rows(graph).keys() == {"first", "cheap"}
    steps = {s.name: s for s in lower(graph, board).lowered.steps}
    assert "y" not in steps or not steps["y"].calls
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs, threads=2), inputs)


@pytest.mark.parametrize("cut", [None, EVERY_SECOND])
@pytest.mark.parametrize("dtype", [DType.F32, DType.I8])
@pytest.mark.parametrize("board", x86_params())
def test_slices_are_made_in_their_place(board, dtype, cut, tmp_path):
    graph = shuffled_block(dtype, cut)
    read = {"rest"} if dtype is DType.F32 and cut is None else set()
    assert parts_of_rows(graph).keys() == {"half", "more"} | read
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs, threads=2), inputs)


def test_a_slice_of_rows_is_no_view_of_a_part():
    """Two rows of an image are one run of bytes, but not within a wider one."""
    rows = ops.StridedSlice((0, 0, 0, 0), (1,) * 4, (1, 2, 13, 16), (1, 2, 13, 16))
    assert parts_of_rows(csp_block(DType.F32, rows)).keys() == {"more"}


@pytest.mark.parametrize("board", x86_params())
def test_a_bottleneck_copies_nothing(board, tmp_path):
    graph = fuse_additions(fuse_epilogues(bottleneck()))
    assert parts_of_rows(graph).keys() == {"all", "half", "more", "deep", "skip"}
    steps = {s.name: s for s in lower(graph, board).lowered.steps}
    assert all("conv" in call.kernel.symbol for s in steps.values() for call in s.calls)
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs, threads=2), inputs)


def test_a_slice_that_is_an_output_or_read_as_a_whole_is_copied():
    graph = bottleneck()
    assert "half" not in parts_of_rows(dataclasses.replace(graph, outputs=("y", "half")))
    assert "half" not in parts_of_rows(graph)  # the addition reads it


@pytest.mark.slow
@pytest.mark.parametrize("half", [5, 16, 40])
@pytest.mark.parametrize("scale", [0.05, 0.1])
@pytest.mark.parametrize("board", x86_params())
def test_sums_of_bytes_are_made_in_their_place(board, half, scale, tmp_path):
    graph = residual_block(half, scale)
    assert "sum" in parts_of_rows(graph)
    steps = {s.name: s for s in lower(graph, board).lowered.steps}
    assert "y" not in steps or not any("copy" in c.kernel.symbol for c in steps["y"].calls[1:])
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs, threads=2), inputs)


def test_a_sum_with_a_constant_image_is_copied():
    graph = residual_block(5)
    b = graph.tensors["b"]
    tensors = {**graph.tensors, "b": dataclasses.replace(b, data=np.ones(b.shape, np.int8))}
    nodes = tuple(node for node in graph.nodes if node.name != "b")
    graph = dataclasses.replace(graph, tensors=tensors, nodes=nodes)
    assert "sum" not in parts_of_rows(graph)
