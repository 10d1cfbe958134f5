"""Lowers ensembles of decision trees."""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, Node
from edgekit.host.compiler.lowering.common.arguments import C_NAMES, operand_of
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value

_BLOCK = 16  # rows per task
_TESTS = 4096  # about as many tests are worth a hand-over


@lowers(ops.TreeEnsemble)
def lower_tree_ensemble(ctx: Context, node: Node) -> list[KernelCall]:
    op, x = node.op, ctx.tensor(node.inputs[0])
    assert isinstance(op, ops.TreeEnsemble)
    thresholds, nodes, roots, starts, targets, values = (
        ctx.constant(node, i, "trees") for i in range(1, 7)
    )
    counts = np.diff(starts)
    same = bool(counts.size) and bool(np.all(counts == counts[0]))
    fields: dict[str, Field] = {
        "rows": x.shape[0],
        "features": x.shape[1],
        "targets": op.targets,
        "trees": roots.size,
        "block": _BLOCK,
        "each": int(counts[0]) if same else 0,
        "x": operand_of(ctx, x),
        "nodes": ctx.weights.add(_packed_nodes(thresholds, nodes)),
        "roots": ctx.weights.add(roots.astype(np.int32)),
        "starts": ctx.weights.add(np.zeros(1, np.int32) if same else starts.astype(np.int32)),
        "entries": ctx.weights.add(_packed_entries(targets, values)),
        "y": Value(node.outputs[0]),
    }
    flags = ops.TreeEnsemble.EQUAL | ops.TreeEnsemble.MISSING
    has_flags = bool(np.any(nodes[:, 0] & flags))
    macros: dict[str, str | int] = {f"JOIN_{op.join.upper()}": 1}
    if has_flags:
        macros["FLAGS"] = 1
    kernel = ctx.kernel(
        f"{x.dtype.value}_trees_{op.join}{'_flags' if has_flags else ''}",
        "trees/ensemble.c",
        None,
        "ek_tree_ensemble_args",
        TX=C_NAMES[x.dtype],
        **macros,
    )
    depth = math.log2(max(len(nodes) / max(roots.size, 1), 1)) + 2
    grain = max(1, round(_TESTS / (_BLOCK * max(roots.size, 1) * depth)))
    return [KernelCall(kernel, fields, math.ceil(x.shape[0] / _BLOCK), grain)]


def _packed_nodes(thresholds: Array, nodes: Array) -> Array:
    """ek_tree_node[]."""
    kinds = [("threshold", thresholds.dtype), ("test", np.int32), ("child", np.int32, 2)]
    packed = np.zeros(len(nodes), np.dtype(kinds, align=True))
    packed["threshold"], packed["test"], packed["child"] = thresholds, nodes[:, 0], nodes[:, 1:]
    return packed


def _packed_entries(targets: Array, values: Array) -> Array:
    """ek_tree_entry[]."""
    packed = np.zeros(len(targets), np.dtype([("target", np.int32), ("value", np.float32)]))
    packed["target"], packed["value"] = targets, values
    return packed
