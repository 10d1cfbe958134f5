"""Random chains of convolutions, for `op_graphs`."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import (
    Activation,
    Array,
    DType,
    Operator,
    Padding,
    Quant,
    Tensor,
)
from tests.support.op_cases import Case, Rng, constant, pick, quant, tensor

_SIZES = (1, 2, 3, 5, 7, 8, 9, 14, 16, 17, 21, 23)
_CHANNELS = (2, 3, 4, 7, 8, 15, 16, 17, 23, 24)
_ACTIVATIONS = list(Activation)


def _weights(rng: Rng, dtype: DType, axis: int, *shape: int) -> Tensor:
    if dtype is DType.F32:
        return constant(rng.standard_normal(shape).astype(np.float32))
    if dtype is DType.U8:
        quantized = rng.integers(0, 256, shape)
        return constant(quantized, dtype, quant(0.01, int(rng.integers(256))))
    scales = rng.uniform(0.005, 0.02, shape[axis]).astype(np.float32)
    return constant(rng.integers(-127, 128, shape), dtype, quant(scales, 0, axis))


def _bias(rng: Rng, dtype: DType, channels: int) -> Tensor | None:
    if rng.random() < 0.2:
        return None
    if dtype is DType.F32:
        return constant(rng.standard_normal(channels))
    values: Array = rng.integers(-999, 999, channels)
    return constant(values, DType.I32)


def _quant(rng: Rng, dtype: DType, k: int) -> Quant | None:
    if not dtype.is_quantized:
        return None
    info = np.iinfo(dtype.numpy)
    return quant(0.05 * k**0.5, int(rng.integers(info.min, info.max + 1)))


def _depthwise(rng: Rng) -> tuple[tuple[int, int], ops.DepthwiseConv2D]:
    """A depthwise convolution whose window may or may not have a specialized kernel."""
    kernel = [(3, 3), (3, 3), (5, 5), (1, 3), (4, 7)][rng.integers(5)]
    dilation = (1, 1) if rng.random() < 0.8 else (2, 2)
    stride = [(1, 1), (2, 2), (1, 2), (3, 1)][rng.integers(4)]
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    pad = Padding(*(int(rng.integers(0, s)) for s in (span[0], span[0], span[1], span[1])))
    activation = _ACTIVATIONS[rng.integers(len(_ACTIVATIONS))]
    return kernel, ops.DepthwiseConv2D(stride, dilation, pad, 1, activation)


def chain(rng: Rng, dtype: DType) -> Case:
    kernel, depthwise = _depthwise(rng)
    pad, dilation = depthwise.padding, depthwise.dilation
    least = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    h = max(pick(rng, _SIZES), least[0] - pad.top - pad.bottom, 1)
    w = max(pick(rng, _SIZES), least[1] - pad.left - pad.right, 1)
    ic, c, oc = (pick(rng, _CHANNELS) for _ in range(3))
    form = int(rng.integers(3))  # conversion first, last or both
    members: list[Operator] = [depthwise]
    operands: list[list[Tensor | None]] = [
        [_weights(rng, dtype, 3, 1, *kernel, c), _bias(rng, dtype, c), None, None]
    ]
    activation = _ACTIVATIONS[rng.integers(len(_ACTIVATIONS))]
    if form != 1:
        members.insert(0, ops.Conv2D(activation=activation))
        operands.insert(0, [_weights(rng, dtype, 0, c, 1, 1, ic), _bias(rng, dtype, c), None, None])
    x = tensor((1, h, w, ic if form != 1 else c), dtype, _quant(rng, dtype, 1))
    if form != 0:
        members.append(ops.Conv2D(activation=activation))
        operands.append([_weights(rng, dtype, 0, oc, 1, 1, c), _bias(rng, dtype, oc), None, None])
    between = tuple(_quant(rng, dtype, 4) for _ in members[1:])
    op = ops.RowChain(tuple(members), between)
    ins = (x, *(t for own in operands for t in own))
    if form != 0 and dtype is DType.F32 and rng.random() < 0.4:
        ins = (*ins[:-2], tensor(op.infer(ins)[0][0]), None)
    return Case(op, ins, _quant(rng, dtype, 4))


FAMILIES = {"row_chain": (chain, (DType.F32, DType.I8, DType.U8))}
