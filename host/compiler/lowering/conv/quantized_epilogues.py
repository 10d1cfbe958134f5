"""A function of codes behind an 8-bit product becomes part of its kernel: a table of its results,
through which a tile's codes go while they are in the core's L1 (conv/look_up_rows.h).

Unlike functions of floats (epilogues.py) they stay nodes of the graph, as the codes between
have a scale of their own; here it is known whose kernels make them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor
from edgekit.host.compiler.lowering.context import Context, LookUp
from edgekit.host.compiler.lowering.elementwise.tables import codes_of, tables_of
from edgekit.host.compiler.lowering.nna.units import NNA
from edgekit.host.compiler.lowering.plan import Alias
from edgekit.host.compiler.transforms.passes.rewrite import Users

_MOST = 65536  # bytes of tables by channel: what one of all pairs of codes has


def look_ups_of(graph: Graph, units: Mapping[str, str]) -> dict[str, LookUp]:
    """The look-ups behind products, by the product's name. Both must run on the same one of
    `units`, which is not the NNA."""
    users, consumers, found = Users(graph), graph.consumers(), {}
    for node in graph.nodes:
        if not _is_of_bytes(graph, node):
            continue
        unit, made = units.get(node.name), node.outputs[0]
        if unit == NNA or made in graph.outputs:
            continue
        after = _function(graph, users, graph.tensors[made], consumers[made])
        if after is None or after.tables.itemsize != 1 or after.tables.size > _MOST:
            continue
        if all(units.get(name) == unit for name in after.nodes):
            found[node.name] = after
    return found


def _function(graph: Graph, users: Users, made: Tensor, readers: Sequence[Node]) -> LookUp | None:
    """What all readers of `made` are together, if that is a function of its codes: one, or one and
    its product with `made` (SiLU, hard swish)."""
    for first in readers:
        tables = tables_of(graph, first, made)
        if tables is None:
            continue
        if len(readers) == 1:
            return LookUp((first.name,), first.outputs[0], tables)
        gate = users.only_consumer(first.outputs[0])
        if gate is None or len(readers) != 2 or gate not in readers or type(gate.op) is not ops.Mul:
            continue
        out = graph.tensors[gate.outputs[0]]
        if out.is_quantized:
            given = {made.name: np.broadcast_to(codes_of(made), tables.shape)}
            given[first.outputs[0]] = tables
            names = [name or "" for name in gate.inputs]
            ins = [graph.tensors[name] for name in names]
            tables = gate.op.reference([given[name] for name in names], ins, [out])[0]
            return LookUp((first.name, gate.name), out.name, tables)
    return None


def _is_of_bytes(graph: Graph, node: Node) -> bool:
    if not node.op.takes_table:
        return False
    names = (*node.inputs[:2], node.outputs[0])
    types = tuple(graph.tensors[name or ""].dtype for name in names)
    return types in ((DType.I8,) * 3, (DType.U8,) * 3)


def place_look_ups(ctx: Context) -> None:
    """What is between a product and its function is made where the function's result is."""
    for node in ctx.graph.nodes:
        if found := ctx.look_ups.get(node.name):
            ctx.aliases[node.outputs[0]] = Alias(found.out)
