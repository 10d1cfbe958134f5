"""Random depthwise convolutions with the largest specialized window, for `op_graphs`.

Covers one and two rows at a time, widths with and without full tiles, borders on all sides.
"""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, DType, Padding
from tests.support.op_cases import Case, Rng, constant, pick, quant, tensor
from tests.support.quantized_graphs import scale

_SIZE = 7


def depthwise(rng: Rng, dtype: DType) -> Case:
    channels, stride = pick(rng, (1, 3, 8, 17, 33, 65)), pick(rng, (1, 1, 2))
    pads = Padding(*(int(p) for p in rng.integers(0, _SIZE, 4)))
    shape = (pick(rng, (1, 1, 2)), pick(rng, (7, 8, 13)), pick(rng, (7, 11, 23)), channels)
    op = ops.DepthwiseConv2D((stride, stride), (1, 1), pads, 1, Activation.RELU)
    window = (1, _SIZE, _SIZE, channels)
    if dtype is DType.F32:
        w = constant(rng.standard_normal(window).astype(np.float32))
        return Case(op, (tensor(shape), w, constant(rng.standard_normal(channels, np.float32))))
    scales = rng.uniform(0.005, 0.02, channels).astype(np.float32)
    w = constant(rng.integers(-127, 128, window), dtype, quant(scales, 0, 3))
    bias = constant(rng.integers(-999, 999, channels), DType.I32)
    return Case(op, (tensor(shape, dtype, scale(rng, dtype)), w, bias), quant(0.3, 5))


FAMILIES = {"depthwise_seven": (depthwise, (DType.F32, DType.I8))}
