"""From where on values make no difference to the functions that read them."""

from __future__ import annotations

import math

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph, Node, Operator

Ends = tuple[float, float]

# Values pass through these as they are, so that what is behind says which of them count.
_MOVING = (ops.DepthToSpace, ops.Reshape, ops.StridedSlice, ops.Transpose)
_HALF_STEP = 1 / 512  # of logistic's codes; tanh's are twice as wide, from -1 to 1


def ends_of_use(graph: Graph) -> dict[str, Ends]:
    """Of tensors that only such functions read, directly or moved: the lowest and highest value
    beyond which results are the same codes."""
    consumers, found = graph.consumers(), dict[str, Ends]()
    for node in reversed(graph.nodes):
        for name in node.outputs:
            each = [_of_reader(reader, found) for reader in consumers[name]]
            known = [ends for ends in each if ends is not None]
            if known and len(known) == len(each) and name not in graph.outputs:
                found[name] = min(low for low, _ in known), max(high for _, high in known)
    return found


def _of_reader(node: Node, found: dict[str, Ends]) -> Ends | None:
    if isinstance(node.op, _MOVING):
        return found.get(node.outputs[0])
    return _of_function(node.op)


def _of_function(op: Operator) -> Ends | None:
    if isinstance(op, ops.HardSwish):
        return -3.0, math.inf
    if isinstance(op, ops.HardSigmoid) and op.alpha > 0:
        return -op.beta / op.alpha, (1 - op.beta) / op.alpha
    if isinstance(op, ops.Logistic):
        end = math.log(1 / _HALF_STEP - 1)
        return -end, end
    if isinstance(op, ops.Tanh):
        end = math.atanh(1 - 2 * _HALF_STEP)
        return -end, end
    return None
