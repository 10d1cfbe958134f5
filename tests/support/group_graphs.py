"""Small networks whose operators' methods are chosen jointly."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, DType, Graph, Node, Padding, Quant, Tensor
from tests.support.op_graphs import Case, constant, graph_of, tensor

SIDE, CHANNELS = 12, 32  # image size of `pruned_blocks`
HEIGHT, WIDTH = 40, 28  # usual image size of `expanded_block`


def pruned_blocks(density: float) -> Graph:
    """Two depthwise and 1x1 convolution blocks, an addition, and a resize that supports one
    layout."""
    rng = np.random.default_rng(1)
    image = (1, SIDE, SIDE, CHANNELS)
    tensors = {n: Tensor(n, image, DType.F32) for n in ("x", "a", "b", "c", "d", "sum")}
    tensors["y"] = Tensor("y", (1, 2 * SIDE, 2 * SIDE, CHANNELS), DType.F32)

    def constant(name: str, *shape: int, share: float = 1.0) -> None:
        data = rng.standard_normal(shape).astype(np.float32)
        data[rng.random(shape) >= share] = 0
        tensors[name] = Tensor(name, shape, DType.F32, None, data)

    for name in ("wa", "wc"):
        constant(name, 1, 3, 3, CHANNELS)
    for name in ("wb", "wd"):
        constant(name, CHANNELS, 1, 1, CHANNELS, share=density)
    constant("bias", CHANNELS)
    window = ops.DepthwiseConv2D(padding=Padding(1, 1, 1, 1))
    point = ops.Conv2D(activation=Activation.RELU)
    nodes = (
        Node("depth_a", window, ("x", "wa", "bias"), ("a",)),
        Node("point_b", point, ("a", "wb", "bias"), ("b",)),
        Node("depth_c", window, ("b", "wc", None), ("c",)),
        Node("point_d", point, ("c", "wd", "bias", "b"), ("d",)),
        Node("add", ops.Add(), ("d", "b"), ("sum",)),
        Node("resize", ops.ResizeBilinear((2 * SIDE, 2 * SIDE)), ("sum",), ("y",)),
    )
    return Graph("blocks", tensors, nodes, ("x",), ("y",))


def _quant(dtype: DType, scale: float, zero: int = 3) -> Quant | None:
    return Quant(np.float32([scale]), np.int64([zero])) if dtype.is_quantized else None


def expanded_block(
    dtype: DType = DType.F32,
    stride: int = 1,
    frames: int = 1,
    columns: int = WIDTH,
    rows: int = HEIGHT,
    border: int = 1,
) -> Graph:
    """Expand, depthwise, project, as in MobileNet v2, with a residual where dtypes allow; `border`
    pixels of padding on each side."""
    rng = np.random.default_rng(stride)
    height, width = ((n + 2 * border - 3) // stride + 1 for n in (rows, columns))
    tensors: dict[str, Tensor] = {}

    def image(name: str, h: int, w: int, c: int, scale: float) -> str:
        tensors[name] = Tensor(name, (frames, h, w, c), dtype, _quant(dtype, scale))
        return name

    def weights(name: str, *shape: int) -> str:
        data = rng.standard_normal(shape).astype(np.float32)
        if dtype.is_quantized:
            data = np.clip(np.round(data * 40), -127, 127).astype(np.int8)
        tensors[name] = Tensor(name, shape, dtype, _quant(dtype, 0.02, 0), data)
        return name

    image("x", rows, columns, 16, 0.05)
    image("wide", rows, columns, 72, 0.1)
    image("deep", height, width, 72, 0.2)
    image("y", height, width, 16, 0.4)
    relu = Activation.RELU6
    adds = ("x",) if dtype is DType.F32 and stride == border == 1 else ()
    depthwise = ops.DepthwiseConv2D((stride, stride), (1, 1), Padding(*[border] * 4), 1, relu)
    nodes = (
        Node("expand", ops.Conv2D(activation=relu), ("x", weights("a", 72, 1, 1, 16)), ("wide",)),
        Node("depth", depthwise, ("wide", weights("b", 1, 3, 3, 72), None), ("deep",)),
        Node("project", ops.Conv2D(), ("deep", weights("c", 16, 1, 1, 72), None, *adds), ("y",)),
    )
    return Graph("block", tensors, nodes, ("x",), ("y",))


def pruned_layer(density: float, rows: int = 1) -> Graph:
    """300 inputs, 96 outputs."""
    rng = np.random.default_rng(4)
    weights = rng.standard_normal((96, 300)).astype(np.float32)
    weights[rng.random(weights.shape) >= density] = 0
    bias = constant(rng.standard_normal(96).astype(np.float32))
    op = ops.FullyConnected(activation=Activation.RELU6)
    return graph_of([Case(op, (tensor((rows, 300)), constant(weights), bias))])
