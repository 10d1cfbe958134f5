"""What a join of channels alone reads is made in its place there."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from kernel_runs import build, check, run_here, x86_boards
from op_graphs import inputs_of

from edgekit.host.graph import ops
from edgekit.host.graph.types import DType, Graph, Node, Operator, Padding, Tensor
from edgekit.host.graph.views import parts_of_rows
from edgekit.host.lower.lower import lower
from edgekit.kb.board import load_board, load_profile

_SIZE = (6, 10)
_SAME = Padding(1, 1, 1, 1)


def _graph(channels: int = 16, outputs: tuple[str, ...] = ("y",)) -> Graph:
    """A small image enlarged twice, and two convolutions of a large one, beside that itself."""
    rng = np.random.default_rng(1)
    h, w = _SIZE
    tensors = {
        "small": Tensor("small", (1, h // 2, w // 2, channels), DType.F32),
        "large": Tensor("large", (1, h, w, channels), DType.F32),
    }

    def constant(name: str, data: np.ndarray, dtype: DType = DType.F32) -> str:
        tensors[name] = Tensor(name, data.shape, dtype, None, data.astype(dtype.numpy))
        return name

    nodes: list[Node] = []

    def emit(name: str, op: Operator, *inputs: str | None) -> str:
        ins = [None if i is None else tensors[i] for i in inputs]
        (shape, dtype), *_ = op.infer(ins)
        tensors[name] = Tensor(name, shape, dtype)
        nodes.append(Node(name, op, inputs, (name,)))
        return name

    twice = [constant(f"at{n}", np.repeat(np.arange(n // 2), 2), DType.I32) for n in _SIZE]
    kernel = constant("w3", rng.standard_normal((24, 3, 3, channels)))
    point = constant("w1", rng.standard_normal((channels, 1, 1, channels)))
    parts = [
        emit("bilinear", ops.ResizeBilinear(_SIZE), "small"),
        emit("nearest", ops.Gather(2), emit("rows", ops.Gather(1), "small", twice[0]), twice[1]),
        emit("conv", ops.Conv2D(padding=_SAME, epilogue=ops.Silu()), "large", kernel, None),
        "large",
        emit("added", ops.Conv2D(epilogue=ops.LeakyRelu(0.1)), "large", point, None, "large"),
    ]
    emit("y", ops.Concat(3), *parts)
    return Graph("joined", tensors, tuple(nodes), ("small", "large"), outputs)


@pytest.mark.parametrize("channels", [16, 5])
@pytest.mark.parametrize("board", x86_boards(), ids=lambda b: b.simd)
def test_parts_are_made_in_their_place(board, channels, tmp_path):
    graph = _graph(channels)
    assert parts_of_rows(graph).keys() == {"bilinear", "nearest", "conv", "added"}
    steps = {s.name: s for s in lower(graph, board).lowered.steps}
    assert len(steps["y"].calls) == 1  # of the input alone
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs, threads=2), inputs)


def test_what_others_read_is_copied():
    assert parts_of_rows(_graph(outputs=("y", "conv"))).keys() == {"bilinear", "nearest", "added"}
    graph = _graph()
    twice = dataclasses.replace(
        graph.nodes[-1], inputs=("conv", *graph.nodes[-1].inputs[:2], *graph.nodes[-1].inputs[2:])
    )
    graph = dataclasses.replace(graph, nodes=(*graph.nodes[:-1], twice))
    assert "conv" not in parts_of_rows(graph)


def test_parts_need_less_memory():
    plan = lower(_graph(), load_board("local"))
    h, w = _SIZE
    made_between = h * w // 2 * 16 * 4
    assert plan.memory.arena_bytes <= made_between + 64


def test_winograd_leaves_room(tmp_path):
    """The kernel is chosen on ARM alone: its code says where it stores."""
    graph = _graph()
    (step,) = [s for s in lower(graph, load_profile("a76")).lowered.steps if s.name == "conv"]
    assert step.calls[0].fields["pitch"] == 5 * 16 + 8
