"""1x1 convolutions run before the upsampling of what they read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgekit.host.compiler.costs.work import multiply_adds
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Activation, Array, DType, Graph, Node, Padding, Tensor
from edgekit.host.compiler.transforms.passes.upsample import upsample_late

_OUTPUTS = 8
_PLAIN = ops.Conv2D()


def _neck(
    channels: tuple[int, ...] = (16, 8),
    first: int = 0,
    op: ops.Conv2D = _PLAIN,
    side: int = 3,
    window: int = 1,
) -> Graph:
    """Maps of 6 x 6; that at `first` is one of side x side, upsampled."""
    rng, twice = np.random.default_rng(0), np.arange(6) * side // 6
    tensors: dict[str, Tensor] = {}

    def add(name: str, shape: tuple[int, ...], data: Array | None = None) -> str:
        dtype = DType.F32 if data is None or data.dtype == np.float32 else DType.I64
        tensors[name] = Tensor(name, shape, dtype, data=data)
        return name

    parts = [add(f"m{i}", (1, 6, 6, c)) for i, c in enumerate(channels)]
    small = add("small", (1, side, side, channels[first]))
    wide = add("wide", (1, 6, side, channels[first]))
    indices = add("twice", (6,), twice)
    joined = add("joined", (1, 6, 6, sum(channels)))
    shape = (_OUTPUTS, window, window, sum(channels))
    weights = add("w", shape, rng.standard_normal(shape).astype(np.float32))
    bias = add("b", (_OUTPUTS,), rng.standard_normal(_OUTPUTS).astype(np.float32))
    nodes = (
        Node("down", ops.Gather(axis=1), (small, indices), (wide,)),
        Node("across", ops.Gather(axis=2), (wide, indices), (parts[first],)),
        Node("join", ops.Concat(axis=3), tuple(parts), (joined,)),
        Node("conv", op, (joined, weights, bias), (add("y", (1, 6, 6, _OUTPUTS)),)),
    )
    inputs = tuple(name for name in (*parts, small) if name != parts[first])
    return Graph("neck", tensors, nodes, inputs, ("y",))


@pytest.mark.parametrize(
    ("channels", "first", "kinds"),
    [
        ((16, 8), 0, ["conv2d", "gather", "gather", "conv2d"]),
        ((8, 16), 1, ["conv2d", "gather", "gather", "conv2d"]),
        ((4, 16, 8), 1, ["conv2d", "gather", "gather", "concat", "conv2d"]),
    ],
)
@pytest.mark.parametrize("activation", list(Activation))
def test_products_of_copies_are_computed_once(
    channels: tuple[int, ...], first: int, kinds: list[str], activation: Activation
) -> None:
    graph = _neck(channels, first, ops.Conv2D(activation=activation))
    made = upsample_late(graph)
    assert [node.op.kind for node in made.nodes] == kinds
    _assert_equal(graph, made)
    assert _work(made) < _work(graph)


def _assert_equal(graph: Graph, made: Graph) -> None:
    rng = np.random.default_rng(1)
    inputs = {
        name: rng.standard_normal(graph.tensors[name].shape).astype(np.float32)
        for name in graph.inputs
    }
    want, found = (evaluate(each, inputs).outputs["y"] for each in (graph, made))
    np.testing.assert_allclose(found, want, atol=1e-5)


def _work(graph: Graph) -> int:
    return sum(multiply_adds(graph, node) for node in graph.nodes)


def test_means_of_pixels_are_upsampled_late_too() -> None:
    graph = _neck()
    resize = Node("up", ops.ResizeBilinear((6, 6)), ("small",), ("m0",))
    graph = replace(graph, nodes=(resize, *graph.nodes[2:]))
    made = upsample_late(graph)
    assert [node.op.kind for node in made.nodes] == ["conv2d", "resize_bilinear", "conv2d"]
    _assert_equal(graph, made)


@pytest.mark.parametrize(
    "graph",
    [
        _neck((4, 16)),  # fewer channels than results: more would be copied
        _neck(side=6),
        _neck(op=ops.Conv2D(padding=Padding(1, 1, 1, 1)), window=3),
        replace(_neck(), outputs=("y", "joined")),
        replace(_neck(), outputs=("y", "m0")),
    ],
)
def test_others_stay(graph: Graph) -> None:
    assert upsample_late(graph) is graph
