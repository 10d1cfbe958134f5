"""Depthwise convolutions: which have kernels of their own."""

from __future__ import annotations

import numpy as np

from edgekit.host.graph import ops
from edgekit.host.graph.types import DType, Graph, Node, Tensor
from edgekit.host.lower.lower import lower
from edgekit.kb.board import load_board


def test_strides_that_differ_have_kernels_of_their_own():
    w = np.ones((1, 3, 3, 20), np.float32)
    tensors = {
        "x": Tensor("x", (1, 8, 9, 20), DType.F32),
        "w": Tensor("w", w.shape, DType.F32, None, w),
        "y": Tensor("y", (1, 3, 7, 20), DType.F32),
    }
    node = Node("c", ops.DepthwiseConv2D((2, 1)), ("x", "w", None), ("y",))
    plan = lower(Graph("strides", tensors, (node,), ("x",), ("y",)), load_board("local"))
    assert "_dwconv_3x3s2x1_" in plan.lowered.steps[0].kernel
