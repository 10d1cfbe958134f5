"""Operators whose f32 weights f16, or 8-bit integers with a scale per row, represent exactly."""

from __future__ import annotations

from typing import Literal

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Array, DType, Padding
from tests.support.op_cases import Case, constant, tensor

Kind = Literal["f16", "s8", "f32"]


def narrow_weights(kind: Kind, *shape: int) -> Array:
    """f32 values with the precision of `kind`; each row has a scale of its own. Some f16 are
    subnormal, and one row is zero."""
    rng = np.random.default_rng(sum(shape))
    if kind == "s8":
        scales = rng.uniform(0.003, 0.02, (len(np.empty(shape)), *(1,) * (len(shape) - 1)))
        quantized = rng.integers(-128, 128, shape)
        quantized[1] = 0
        return quantized.astype(np.float32) * scales.astype(np.float32)
    values = rng.standard_normal(shape).astype(np.float32)
    values.flat[::7] *= np.float32(2.0**-20)
    values[1] = 0
    return values.astype(np.float16).astype(np.float32) if kind == "f16" else values


def narrow_cases(kind: Kind) -> list[Case]:
    """Products of one row, of a partial tile, and of many rows, with panels of any width; windows
    with borders; gathers; and recurrent layers, whose gates may be two products."""

    def weights(*shape: int) -> Array:
        return narrow_weights(kind, *shape)

    def dense(m: int, k: int, n: int) -> Case:
        bias = constant(np.arange(n, dtype=np.float32))
        return Case(ops.FullyConnected(), (tensor((m, k)), constant(weights(n, k)), bias))

    def conv(side: int, c: int, n: int, window: int, stride: int = 1) -> Case:
        op = ops.Conv2D((stride, stride), padding=Padding(1, 1, 1, 1), activation=Activation.RELU)
        return Case(op, (tensor((1, side, side, c)), constant(weights(n, window, window, c))))

    def recurrent(op: ops.Recurrent, batch: int) -> Case:
        states = [tensor((batch, 77))] * op.states
        gates = tensor((2, batch, op.gates * 77))
        return Case(op, (gates, constant(weights(op.gates * 77, 77)), None, *states))

    indices = constant(np.array([0, 2, 39, -1, 7]), DType.I32)
    return [
        dense(1, 367, 45),
        dense(5, 367, 45),
        dense(53, 331, 71),
        dense(70, 900, 300),  # widened panel by panel
        conv(9, 80, 23, 3, 2),
        conv(30, 32, 70, 3),
        Case(ops.Gather(), (constant(weights(40, 429)), indices)),
        recurrent(ops.Lstm(), 1),
        recurrent(ops.Gru(), 3),
    ]


def channels_first_cases(kind: Kind) -> list[Case]:
    """Pruned products of pixels, one with a residual, and each kernel of depthwise windows."""

    def pruned(side: int, c: int, n: int, joined: bool = False) -> Case:
        weights = narrow_weights(kind, n, 1, 1, c)
        weights[np.random.default_rng(c).random(weights.shape) < 0.6] = 0
        bias = constant(np.arange(n, dtype=np.float32))
        x, y = tensor((1, c, side, side)), tensor((1, n, side, side))
        op = ops.ChannelsFirstConv2D(activation=Activation.RELU6 if joined else Activation.NONE)
        return Case(op, (x, constant(weights), bias, *((y,) if joined else ())))

    def depthwise(side: int, c: int, window: int, stride: int = 1) -> Case:
        pad = Padding(*((window // 2,) * 4))
        op = ops.ChannelsFirstDepthwiseConv2D((stride, stride), (1, 1), pad)
        weights = narrow_weights(kind, c, window, window, 1).transpose(3, 1, 2, 0)
        return Case(op, (tensor((1, c, side, side)), constant(np.ascontiguousarray(weights))))

    return [
        pruned(7, 300, 65),
        pruned(13, 129, 131, joined=True),
        depthwise(12, 660, 5),
        depthwise(5, 660, 5, 2),
        depthwise(12, 1821, 3),
        depthwise(6, 340, 7),
    ]


def subnormal_cases() -> list[Case]:
    """Products of weights that are all subnormal halves, which arithmetic of 32-bit NEON takes for
    zero."""

    def weights(*shape: int) -> Array:
        values = np.random.default_rng(sum(shape)).standard_normal(shape) * 2.0**-18
        return values.astype(np.float16).astype(np.float32)

    sparse = weights(65, 1, 1, 300)
    sparse[np.random.default_rng(1).random(sparse.shape) < 0.6] = 0
    windows = np.ascontiguousarray(weights(660, 5, 5, 1).transpose(3, 1, 2, 0))
    pad = Padding(2, 2, 2, 2)
    return [
        Case(ops.FullyConnected(), (tensor((53, 331)), constant(weights(71, 331)), None)),
        Case(ops.ChannelsFirstConv2D(), (tensor((1, 300, 7, 7)), constant(sparse), None)),
        Case(
            ops.ChannelsFirstDepthwiseConv2D((1, 1), (1, 1), pad),
            (tensor((1, 660, 6, 6)), constant(windows)),
        ),
    ]
