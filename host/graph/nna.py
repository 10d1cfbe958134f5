"""The operators that a convolution accelerator can run."""

from __future__ import annotations

from edgekit.host.graph.ops import Conv2D, FullyConnected
from edgekit.host.graph.quantization import zero_point_of
from edgekit.host.graph.types import DType, Graph, Node

SIDE = 3  # of the NNA's windows


def fits_nna(graph: Graph, node: Node) -> bool:
    """Whether the NNA can run a node: s8, one image, a window of at most 3x3, stride 1 or 2."""
    op = node.op
    if not isinstance(op, Conv2D | FullyConnected):
        return False
    x, w = (graph.tensors[name or ""] for name in node.inputs[:2])
    y = graph.tensors[node.outputs[0]]
    if w.data is None or {x.dtype, w.dtype, y.dtype} != {DType.I8} or zero_point_of(w):
        return False
    if isinstance(op, FullyConnected):
        return True
    sides = max(w.shape[1:3]) <= SIDE and op.stride in ((1, 1), (2, 2))
    return sides and op.dilation == (1, 1) and x.shape[0] == 1
