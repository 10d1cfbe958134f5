"""A function of codes behind an 8-bit product becomes part of its kernel: a table of its results,
through which a tile's codes go while they are in the core's L1 (conv/look_up_rows.h).

Unlike functions of floats (epilogues.py) they stay nodes of the graph, as the codes between
have a scale of their own; here it is known whose kernels make them.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.host.graph import ops
from edgekit.host.graph.types import DType, Graph, Node
from edgekit.host.lower.context import Context, LookUp
from edgekit.host.lower.plan import Alias
from edgekit.host.lower.tables import tables_of
from edgekit.host.lower.units import NNA
from edgekit.host.passes.rewrite import Users

_PRODUCTS = (ops.Conv2D, ops.DepthwiseConv2D, ops.FullyConnected)
_MOST = 65536  # bytes of tables by channel: what one of all pairs of codes has


def look_ups_of(graph: Graph, units: Mapping[str, str]) -> dict[str, LookUp]:
    """By name of the product. Both must run on the same one of `units`, which is not the NNA."""
    users, found = Users(graph), {}
    for node in graph.nodes:
        unit = units.get(node.name)
        if unit == NNA or not _is_of_bytes(graph, node):
            continue
        after = users.only_consumer(node.outputs[0])
        if after is None or units.get(after.name) != unit:
            continue
        made, out = graph.tensors[node.outputs[0]], graph.tensors[after.outputs[0]]
        tables = tables_of(graph, after, made)
        if tables is not None and tables.itemsize == 1 and tables.size <= _MOST:
            found[node.name] = LookUp(after.name, out.name, tables)
    return found


def _is_of_bytes(graph: Graph, node: Node) -> bool:
    if type(node.op) not in _PRODUCTS:
        return False
    names = (*node.inputs[:2], node.outputs[0])
    types = tuple(graph.tensors[name or ""].dtype for name in names)
    return types in ((DType.I8,) * 3, (DType.U8,) * 3)


def place_look_ups(ctx: Context) -> None:
    """What is between a product and its function is made where the function's result is."""
    for node in ctx.graph.nodes:
        if found := ctx.look_ups.get(node.name):
            ctx.aliases[node.outputs[0]] = Alias(found.out)
