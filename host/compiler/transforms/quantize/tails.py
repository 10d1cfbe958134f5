"""What follows the last layers of a detector: boxes in pixels and scores, joined to one output.

In 8 bits such a tensor would have one scale, whose step is larger than all scores.
"""

from __future__ import annotations

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.host.compiler.transforms.quantize.observe import Observed
from edgekit.host.compiler.transforms.quantize.rules import computed_floats, fixed_quant

_UNLIKE = 8.0  # ratio of the extents of parts that get no common scale


def float_tails(graph: Graph, observed: Observed) -> set[str]:
    """Names of the nodes that stay in float, because parts with much different extents are joined
    behind all layers with weights: what joins them, and all between the layers and that, but for
    functions with a known range and what they are computed of."""
    made, behind = graph.producer(), _behind_layers(graph)
    found: set[str] = set()
    for node in graph.nodes:
        if node.name not in behind or not isinstance(node.op, ops.Concat):
            continue
        parts = computed_floats(graph, node.inputs)
        sizes = [size for part in parts if (size := observed.extent(part)) > 0]
        if len(sizes) < 2 or max(sizes) < _UNLIKE * min(sizes):
            continue
        ahead = [node]
        while ahead:
            each = ahead.pop()
            if each.name in found or each.name not in behind or fixed_quant(each) is not None:
                continue
            found.add(each.name)
            ahead += [made[name] for name in each.inputs if name in made]
    return found


def _behind_layers(graph: Graph) -> set[str]:
    """Names of the nodes whose results no layer with weights reads, directly or not."""
    consumers = graph.consumers()
    found: set[str] = set()

    def is_behind(node: Node) -> bool:
        readers = [reader for name in node.outputs for reader in consumers[name]]
        return not isinstance(node.op, ops.Weighted | ops.Recurrent) and all(
            reader.name in found for reader in readers
        )

    for node in reversed(graph.nodes):
        if is_behind(node):
            found.add(node.name)
    return found
