"""A small 8-bit model in the style of MLPerf Tiny, with random weights.

It has two branches of separable convolutions, a layer that no NNA supports, and a fully connected
layer after them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgekit.host.compiler.exporters.tflite.writer import write_tflite
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import (
    Activation,
    DType,
    Graph,
    Node,
    Operator,
    Padding,
    Quant,
    Tensor,
)
from tests.support.op_cases import quant

_SAME, _RELU = Padding(1, 1, 1, 1), Activation.RELU


class _Maker:
    """Builds consecutive layers, named by number."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(22)
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []

    def tensor(self, name: str, shape: tuple[int, ...], q: Quant) -> str:
        self.tensors[name] = Tensor(name, shape, DType.I8, q)
        return name

    def layer(self, op: Operator, x: str, *shape: int, axis: int = 0) -> str:
        """Add weights of that shape with one scale per output channel, and a bias."""
        name, count = f"layer{len(self.nodes)}", shape[axis]
        scales = self.random.uniform(0.004, 0.01, count).astype(np.float32)
        weights = self.random.integers(-127, 128, shape).astype(np.int8)
        self.tensors[f"{name}/w"] = Tensor(
            f"{name}/w", shape, DType.I8, quant(scales, 0, axis), weights
        )
        bias = self.random.integers(-2000, 2000, count).astype(np.int32)
        scale = quant(scales * self.tensors[x].quant.scale[0])
        self.tensors[f"{name}/b"] = Tensor(f"{name}/b", (count,), DType.I32, scale, bias)
        return self.node(op, (x, f"{name}/w", f"{name}/b"), name)

    def node(self, op: Operator, ins: tuple[str, ...], name: str, q: Quant | None = None) -> str:
        ((shape, _),) = op.infer([self.tensors[t] for t in ins])
        self.nodes.append(Node(name, op, ins, (name,)))
        return self.tensor(name, tuple(shape), q or quant(0.06, -128))

    def separable(self, x: str, channels: int, outputs: int, stride: int = 1) -> str:
        depthwise = ops.DepthwiseConv2D((stride, stride), padding=_SAME, activation=_RELU)
        x = self.layer(depthwise, x, 1, 3, 3, channels, axis=3)
        return self.layer(ops.Conv2D(activation=_RELU), x, outputs, 1, 1, channels)


def tiny_graph() -> Graph:
    made = _Maker()
    x = made.tensor("image", (1, 33, 30, 3), quant(0.02, 5))
    x = made.layer(ops.Conv2D((2, 2), padding=_SAME, activation=_RELU), x, 40, 3, 3, 3)
    left = made.separable(x, 40, 72)
    wide = Padding(2, 2, 2, 2)
    right = made.layer(ops.Conv2D(padding=wide, activation=_RELU), x, 72, 5, 5, 40)
    x = made.node(ops.Add(), (left, right), "sum", quant(0.08, -128))
    x = made.separable(x, 72, 96, stride=2)
    height, width = made.tensors[x].shape[1:3]
    x = made.node(ops.AveragePool2D((height, width), (1, 1)), (x,), "pool")
    flat = ops.Reshape((1, 96))
    x = made.node(flat, (x,), "flat", made.tensors[x].quant)
    x = made.layer(ops.FullyConnected(), x, 200, 96)
    x = made.layer(ops.FullyConnected(), x, 12, 200)
    return Graph("tiny", made.tensors, tuple(made.nodes), ("image",), (x,))


def attention_graph(heads: int = 3, length: int = 50, depth: int = 32) -> Graph:
    """softmax(q · k) · v of computed matrices with nonzero zero points."""
    made = _Maker()
    shapes = {
        "q": (heads, length, depth),
        "k": (heads, depth, length),
        "v": (heads, length, depth),
    }
    for zero, (name, shape) in enumerate(shapes.items(), -5):
        made.tensor(name, shape, quant(0.03, zero))
    scores = made.node(ops.MatMul(), ("q", "k"), "scores", quant(0.05, 7))
    shares = made.node(ops.Softmax(), (scores,), "shares", quant(1 / 256, -128))
    y = made.node(ops.MatMul(), (shares, "v"), "y", quant(0.03, 3))
    return Graph("attention", made.tensors, tuple(made.nodes), tuple(shapes), (y,))


def tiny_model(path: Path) -> Path:
    """Write the model as a .tflite file."""
    path.write_bytes(write_tflite(tiny_graph()))
    return path
