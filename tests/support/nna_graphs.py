"""Random layers and products that an NNA supports."""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, DType, Graph, Padding
from tests.support.op_cases import Case, Rng, constant, pick, quant, tensor
from tests.support.op_graphs import graph_of

_CHANNELS = (1, 3, 16, 31, 32, 33, 64, 70)


def weights_of(rng: Rng, *shape: int) -> np.ndarray:
    return np.maximum(rng.integers(-128, 128, shape), -127)


def _conv(rng: Rng) -> Case:
    kernel = [(3, 3), (1, 3), (2, 1), (2, 3)][rng.integers(4)]
    stride = int(rng.choice([1, 2]))
    pads = [int(rng.integers(0, k)) for k in (kernel[0], kernel[0], kernel[1], kernel[1])]
    ic, oc = pick(rng, _CHANNELS), pick(rng, _CHANNELS)
    x = tensor((1, pick(rng, (3, 5, 8)), pick(rng, (3, 4, 9)), ic), DType.I8, quant(0.05, 7))
    scales = rng.uniform(0.005, 0.02, oc).astype(np.float32)
    w = constant(weights_of(rng, oc, *kernel, ic), DType.I8, quant(scales, 0, 0))
    bias = constant(rng.integers(-9999, 9999, oc), DType.I32) if rng.random() < 0.8 else None
    op = ops.Conv2D((stride, stride), padding=Padding(*pads), activation=Activation.RELU)
    return Case(op, (x, w, bias), quant(0.1 * math.prod(kernel) * ic**0.5, -20))


def _points(rng: Rng) -> Case:
    """1x1 with one to ten input groups, with strides that larger windows do not support, and
    padding."""
    ic, oc = pick(rng, (1, 32, 33, 65, 288, 300)), pick(rng, _CHANNELS)
    x = tensor((1, pick(rng, (1, 5, 8)), pick(rng, (3, 4, 9)), ic), DType.I8, quant(0.05, 7))
    w = constant(weights_of(rng, oc, 1, 1, ic), DType.I8, quant(0.01))
    stride, pads = (int(rng.integers(1, 4)), int(rng.integers(1, 4))), rng.integers(0, 2, 4)
    op = ops.Conv2D(stride, padding=Padding(*map(int, pads)))
    return Case(op, (x, w, None), quant(0.05 * ic**0.5, 3))


def _depthwise(rng: Rng) -> Case:
    kernel = [(3, 3), (1, 3), (3, 1), (2, 2), (1, 1)][rng.integers(5)]
    stride, c = int(rng.choice([1, 2])), pick(rng, _CHANNELS)
    pads = [int(rng.integers(0, k)) for k in (kernel[0], kernel[0], kernel[1], kernel[1])]
    x = tensor((1, pick(rng, (3, 5, 8)), pick(rng, (3, 4, 9)), c), DType.I8, quant(0.05, -7))
    scales = rng.uniform(0.005, 0.02, c).astype(np.float32)
    w = constant(weights_of(rng, 1, *kernel, c), DType.I8, quant(scales, 0, 3))
    bias = constant(rng.integers(-9999, 9999, c), DType.I32)
    op = ops.DepthwiseConv2D((stride, stride), padding=Padding(*pads), activation=Activation.RELU6)
    return Case(op, (x, w, bias), quant(0.1, -100))


def _dense(rng: Rng) -> Case:
    m, k, n = pick(rng, (1, 4, 9)), pick(rng, (*_CHANNELS, 640)), pick(rng, _CHANNELS)
    x = tensor((m, k), DType.I8, quant(0.05, -3))
    w = constant(weights_of(rng, n, k), DType.I8, quant(0.01))
    bias = constant(rng.integers(-9999, 9999, n), DType.I32)
    return Case(ops.FullyConnected(), (x, w, bias), quant(0.05 * k**0.5, 11))


def _product(rng: Rng) -> Case:
    """Products of two computed matrices, batched and broadcast. The last has few rows and many
    columns, where values of a take the place of weights."""
    m, k, n = [(7, 33, 40), (1, 64, 31), (12, 300, 33), (1, 9, 500), (2, 20, 1030)][rng.integers(5)]
    stack = [((), ()), ((3,), (3,)), ((2, 2), (1, 2)), ((1,), (2,))][rng.integers(4)]
    a = tensor((*stack[0], m, k), DType.I8, quant(0.05, int(rng.integers(-128, 128))))
    b = tensor((*stack[1], k, n), DType.I8, quant(0.02, int(rng.integers(-128, 128))))
    return Case(ops.MatMul(), (a, b), quant(0.05 * k**0.5, int(rng.integers(-20, 20))))


def layers(seed: int) -> Graph:
    """Sixteen layers of all kinds, in parallel."""
    rng = np.random.default_rng(seed)
    return graph_of([make(rng) for make in (_conv, _points, _depthwise, _dense) * 4])


def products(seed: int) -> Graph:
    """Eight products of two computed matrices."""
    rng = np.random.default_rng(seed)
    return graph_of([_product(rng) for _ in range(8)])
