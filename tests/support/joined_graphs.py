"""Blocks of detectors whose convolutions write into a concatenation that is not their only
reader."""

from __future__ import annotations

import dataclasses

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.ops import Silu
from edgekit.host.compiler.ir.types import DType, Graph, Node, Operator, Padding, Tensor
from tests.support.op_cases import quant

SIZE = (9, 13)
EVERY_SECOND = ops.StridedSlice((0, 0, 0, 0), (1, 1, 1, 2), (1, *SIZE, 8), (1, *SIZE, 8))
HALF_OF_16 = ops.StridedSlice((0, 0, 0, 8), (1,) * 4, (1, *SIZE, 8), (1, *SIZE, 8))


class _Builder:
    """Appends nodes to a graph whose images all have SIZE, and one scale if they have 8 bits."""

    def __init__(self, dtype: DType, seed: int) -> None:
        self.dtype = dtype
        self.quant = quant(0.05, -3) if dtype is DType.I8 else None
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self._rng = np.random.default_rng(seed)

    def image(self, name: str, channels: int) -> str:
        self.tensors[name] = Tensor(name, (1, *SIZE, channels), self.dtype, self.quant)
        return name

    def weights(self, name: str, *shape: int) -> str:
        if self.quant is None:
            data = self._rng.standard_normal(shape).astype(np.float32)
            self.tensors[name] = Tensor(name, shape, self.dtype, None, data)
            return name
        scales = quant(np.full(shape[-1 if shape[0] == 1 and shape[1] > 1 else 0], 0.01))
        data = self._rng.integers(-127, 128, shape).astype(np.int8)
        self.tensors[name] = Tensor(name, shape, self.dtype, scales, data)
        return name

    def add(self, op: Operator, inputs: tuple[str | None, ...], *outputs: str) -> None:
        self.nodes.append(Node(outputs[0], op, inputs, outputs))

    def graph(self, name: str) -> Graph:
        return Graph(name, self.tensors, tuple(self.nodes), ("x",), ("y",))


def csp_block(dtype: DType, cut: Operator | None = None) -> Graph:
    """Half of a convolution's 16 channels, a convolution of that half, and all together."""
    to = _Builder(dtype, seed=2)
    images = {"x": 16, "all": 16, "half": 8, "more": 8, "y": 24}
    for name, channels in images.items():
        to.image(name, channels)
    to.add(ops.Conv2D(), ("x", to.weights("w", 16, 1, 1, 16), None), "all")
    if cut is None:
        to.add(ops.Split(3, (8, 8)), ("all",), to.image("first", 8), "half")
    else:
        to.add(cut, ("all",), "half")
    around = ops.Conv2D(padding=Padding(1, 1, 1, 1))
    to.add(around, ("half", to.weights("v", 8, 3, 3, 8), None), "more")
    to.add(ops.Concat(3), ("all", "more"), "y")
    return to.graph("csp")


def bottleneck(half: int = 8) -> Graph:
    """A CSP block whose half goes through two convolutions and is added to their result; a
    convolution of all three is joined with the block's input."""
    to = _Builder(DType.F32, seed=5)
    images = {"x": 16, "skip": 16, "all": 2 * half, "half": half, "within": half, "last": half}
    for name, channels in (images | {"more": half, "parts": 3 * half, "deep": 8, "y": 24}).items():
        to.image(name, channels)

    def silu(source: str, made: str, window: int) -> None:
        before, after = to.tensors[source], to.tensors[made]
        weights = to.weights(f"{made}:w", after.shape[3], window, window, before.shape[3])
        total = to.image(f"{made}:sum", after.shape[3])
        to.add(ops.Conv2D(padding=Padding(*[window // 2] * 4)), (source, weights, None), total)
        to.add(Silu(), (total,), made)

    silu("x", "skip", 3)
    silu("skip", "all", 3)
    cut = ops.StridedSlice((0, 0, 0, half), (1,) * 4, (1, *SIZE, half), (1, *SIZE, half))
    to.add(cut, ("all",), "half")
    silu("half", "within", 3)
    silu("within", "last", 3)
    to.add(ops.Add(), ("half", "last"), "more")
    to.add(ops.Concat(3), ("all", "more"), "parts")
    silu("parts", "deep", 1)
    to.add(ops.Concat(3), ("deep", "skip"), "y")
    return to.graph("bottleneck")


def residual_block(half: int, scale: float = 0.05) -> Graph:
    """Two images of bytes and their sum, all together; with a scale of 0.1, the sum is halfway
    between two values too often for the kernel that takes one step."""
    to = _Builder(DType.I8, seed=6)
    for name, channels in {"x": 16, "a": half, "b": half, "sum": half, "y": 2 * half}.items():
        to.image(name, channels)
    for name in ("a", "b"):
        to.add(ops.Conv2D(), ("x", to.weights(f"{name}:w", half, 1, 1, 16), None), name)
    parts = {name: to.tensors[name] for name in ("sum", "a", "y")}
    for name, tensor in parts.items():
        to.tensors[name] = dataclasses.replace(tensor, quant=quant(scale, 0))
    to.add(ops.Add(), ("a", "b"), "sum")
    to.add(ops.Concat(3), ("a", "sum"), "y")
    return to.graph("residual")


def shuffled_block(dtype: DType, cut: Operator | None = None) -> Graph:
    """Every second of 16 channels, or the first half of them, and a convolution of the rest."""
    to = _Builder(dtype, seed=4)
    images = {"x": 16, "half": 8, "rest": 8, "more": 24, "y": 32}
    for name, channels in images.items():
        to.image(name, channels)
    if cut is None:
        to.add(ops.Split(3, (8, 8)), ("x",), "half", "rest")
    else:
        to.add(cut, ("x",), "half")
        to.add(dataclasses.replace(cut, begin=(0, 0, 0, 1)), ("x",), "rest")
    to.add(ops.Conv2D(), ("rest", to.weights("w", 24, 1, 1, 8), None), "more")
    to.add(ops.Concat(3), ("half", "more"), "y")
    return to.graph("shuffled")


def ghost_block(dtype: DType, window: int, channels: int) -> Graph:
    """A convolution, a depthwise convolution of it, and both together; a window of 9 has no kernel
    of its own."""
    to = _Builder(dtype, seed=3)
    images = {"x": 8, "first": channels, "cheap": channels, "y": 2 * channels}
    for name, count in images.items():
        to.image(name, count)
    to.add(ops.Conv2D(), ("x", to.weights("w", channels, 1, 1, 8), None), "first")
    op = ops.DepthwiseConv2D(padding=Padding(*[window // 2] * 4))
    if dtype is DType.F32:
        op = dataclasses.replace(op, epilogue=Silu())
    weights = to.weights("v", 1, window, window, channels)
    to.add(op, ("first", weights, None), "cheap")
    to.add(ops.Concat(3), ("first", "cheap"), "y")
    return to.graph("ghost")
