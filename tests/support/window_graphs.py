"""Random depthwise convolutions with specialized windows, the largest in one of two, for
`op_graphs`.

Covers one and two rows and one and several channel blocks at a time, widths with and without full
tiles, borders on all sides.
"""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, DType, Padding
from tests.support.op_cases import Case, Rng, constant, pick, quant, tensor
from tests.support.quantized_graphs import scale

_LARGEST = (7, 7)
_OTHERS = ((2, 4), (3, 1), (3, 3))


def depthwise(rng: Rng, dtype: DType) -> Case:
    channels, stride = pick(rng, (1, 3, 8, 17, 33, 65, 172)), pick(rng, (1, 1, 2))
    others = _OTHERS[rng.integers(len(_OTHERS))]
    height, width = others if rng.random() < 0.5 else _LARGEST
    most = (height, height, width, width)
    pads = Padding(*(int(p) for p in rng.integers(0, most)))
    shape = (pick(rng, (1, 1, 2)), pick(rng, (7, 8, 13)), pick(rng, (7, 11, 23)), channels)
    op = ops.DepthwiseConv2D((stride, stride), (1, 1), pads, 1, Activation.RELU)
    window = (1, height, width, channels)
    if dtype is DType.F32:
        w = constant(rng.standard_normal(window).astype(np.float32))
        return Case(op, (tensor(shape), w, constant(rng.standard_normal(channels, np.float32))))
    scales = rng.uniform(0.005, 0.02, channels).astype(np.float32)
    w = constant(rng.integers(-127, 128, window), dtype, quant(scales, 0, 3))
    bias = constant(rng.integers(-999, 999, channels), DType.I32)
    return Case(op, (tensor(shape, dtype, scale(rng, dtype)), w, bias), quant(0.3, 5))


FAMILIES = {"depthwise_windows": (depthwise, (DType.F32, DType.I8))}
