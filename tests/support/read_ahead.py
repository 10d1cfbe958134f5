"""Convolutions whose weights one of several threads prefetches."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Padding
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of


def read_ahead_graph(channels: int = 32, outputs: int = 32, dtype: DType = DType.F32) -> Graph:
    """A 3x3 convolution of 400 pixels from `channels` to `outputs` channels, and four of 9 pixels
    with 37 KB of weights each, or 9 KB of signed bytes."""
    layers, of_bytes = [], dtype is DType.I8
    for seed, (side, c, n) in enumerate([(40, channels, outputs), *[(5, 32, 32)] * 4]):
        data = np.random.default_rng(seed).standard_normal((n, 3, 3, c)) / 8
        held, q = (np.rint(data * 200), quant(0.02)) if of_bytes else (data, None)
        weights = constant(held.astype(np.float32), dtype, q)
        op = ops.Conv2D((2, 2), (1, 1), Padding(1, 1, 1, 1))
        layers.append(Case(op, (tensor((1, side, side, c), dtype, q), weights), q and quant(0.5)))
    return graph_of(layers)
