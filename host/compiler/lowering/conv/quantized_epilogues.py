"""Fuses a function of quantized values after an 8-bit product into its kernel.

The function is a lookup table, applied to a tile while it is in L1 (conv/look_up_rows.h). Unlike
float epilogues (gemm/epilogues.py), the functions stay nodes of the graph, because the intermediate
values have their own scale; this module records which product's kernel applies them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor
from edgekit.host.compiler.lowering.common.tables import every_value_of, tables_of
from edgekit.host.compiler.lowering.context import Context, LookUp
from edgekit.host.compiler.lowering.nna.units import NNA
from edgekit.host.compiler.lowering.plan import Alias
from edgekit.host.compiler.transforms.passes.rewrite import Users

_MOST = 65536  # bytes of per-channel tables: the size of one table of all pairs of 8-bit values


def look_ups_of(graph: Graph, units: Mapping[str, str]) -> dict[str, LookUp]:
    """Lookup functions after products, by product name.

    The product and its function must run on the same one of `units`, and not on the NNA.
    """
    users, consumers, found = Users(graph), graph.consumers(), {}
    for node in graph.nodes:
        if not _is_of_bytes(graph, node):
            continue
        unit, made = units.get(node.name), node.outputs[0]
        if unit == NNA or made in graph.outputs:
            continue
        after = _combined_lookup(graph, users, graph.tensors[made], consumers[made])
        if after is None or after.tables.itemsize != 1 or after.tables.size > _MOST:
            continue
        if all(units.get(name) == unit for name in after.nodes):
            found[node.name] = after
    return found


def _combined_lookup(
    graph: Graph, users: Users, made: Tensor, readers: Sequence[Node]
) -> LookUp | None:
    """The combined function of all readers of `made`, if it depends on its values alone.

    Either a single reader, or a reader and its product with `made` (SiLU, hard swish).
    """
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
            given = {made.name: np.broadcast_to(every_value_of(made), tables.shape)}
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
    """Aliases each product's output to the result of its lookup function."""
    for node in ctx.graph.nodes:
        if found := ctx.look_ups.get(node.name):
            ctx.aliases[node.outputs[0]] = Alias(found.out)
