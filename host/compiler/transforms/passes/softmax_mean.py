"""Fuses the mean of a distribution over constant values into one operator.

Detectors predict such a distribution for the distance to each side of a box.
"""

from __future__ import annotations

import math

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Array, DType, Graph, Node
from edgekit.host.compiler.transforms.passes.rewrite import Users, rewrite

_MOST = 1024  # values: beyond, sums in f32 would be less exact than the product they replace


def fuse_softmax_mean(graph: Graph) -> Graph:
    """Match the sum of softmax(x) · values over the last axis, written as a product and a sum or
    as a product of matrices or a convolution with one output channel."""

    def match(users: Users, node: Node) -> dict[str, Node | None] | None:
        softmax = node.op
        if not isinstance(softmax, ops.Softmax):
            return None
        after = users.only_consumer(node.outputs[0])
        if after is None or users.graph.tensors[node.outputs[0]].dtype is not DType.F32:
            return None
        values, end, keeps = _weights_of(users, node, after), after, True
        if values is None:
            values = _factors_of(users, node, after)
            total = users.only_consumer(after.outputs[0])
            if values is None or total is None or not _sums_rows(users, total):
                return None
            assert isinstance(total.op, ops.ReduceSum)
            end, keeps = total, total.op.keep_dims
        if len(values) > _MOST:
            return None
        mean = ops.SoftmaxMean(tuple(float(v) for v in values), softmax.beta, keeps)
        made = Node(end.name, mean, node.inputs, end.outputs)
        return {node.name: None, after.name: None, end.name: made}

    return rewrite(graph, match)


def _weights_of(users: Users, softmax: Node, after: Node) -> Array | None:
    """The weights of a product with one output for each row of the softmax."""
    op, tensors = after.op, users.graph.tensors
    if not isinstance(op, ops.Conv2D | ops.FullyConnected) or after.inputs[0] != softmax.outputs[0]:
        return None
    moves = isinstance(op, ops.Conv2D) and (op.stride != (1, 1) or op.padding.any)
    if moves or op.activation is not Activation.NONE or not _adds_nothing(users, after):
        return None
    row, made = (tensors[name].shape for name in (softmax.outputs[0], after.outputs[0]))
    weights = tensors[after.inputs[1] or ""].data
    if weights is None or weights.size != row[-1] or made != (*row[:-1], 1):
        return None
    return weights.reshape(-1)


def _adds_nothing(users: Users, product: Node) -> bool:
    """Whether a product has no bias but zeros, and no other operand."""
    added = [users.graph.tensors[name].data for name in product.inputs[2:] if name is not None]
    return all(data is not None and not data.any() for data in added)


def _factors_of(users: Users, softmax: Node, after: Node) -> Array | None:
    """The constant factors of a product, one for each value of a row of the softmax."""
    if not users.is_plain(after, ops.Mul) or after.inputs[0] == after.inputs[1]:
        return None
    tensors = users.graph.tensors
    other = next(tensors[name or ""] for name in after.inputs if name != softmax.outputs[0])
    count = tensors[softmax.outputs[0]].shape[-1]
    if other.data is None or not other.shape or other.shape[-1] != count:
        return None
    return other.data.reshape(-1) if math.prod(other.shape) == count else None


def _sums_rows(users: Users, node: Node) -> bool:
    last = len(users.graph.tensors[node.inputs[0] or ""].shape) - 1
    return isinstance(node.op, ops.ReduceSum) and tuple(node.op.axes) == (last,)
