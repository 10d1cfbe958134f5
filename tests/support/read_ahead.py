"""Convolutions whose weights one of several threads prefetches."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph, Padding
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of


def read_ahead_graph(channels: int = 32, outputs: int = 32) -> Graph:
    """A 3x3 convolution of 400 pixels from `channels` to `outputs` channels, and four of 9 pixels
    with 37 KB of weights each."""
    layers = []
    for seed, (side, c, n) in enumerate([(40, channels, outputs), *[(5, 32, 32)] * 4]):
        data = np.random.default_rng(seed).standard_normal((n, 3, 3, c)) / 8
        operands = tensor((1, side, side, c)), constant(data.astype(np.float32))
        layers.append(Case(ops.Conv2D((2, 2), (1, 1), Padding(1, 1, 1, 1)), operands))
    return graph_of(layers)
