"""Fuses a function after a convolution into its kernel (device/kernels/conv/epilogue.h).

This runs last, when the remaining ordinary convolutions are known: the kernels for channels-first
images, pruned weights, and byte products have no epilogue.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.checks import FLOATS
from edgekit.host.compiler.ir.sums import is_per_channel
from edgekit.host.compiler.ir.traits import Epilogue
from edgekit.host.compiler.ir.types import Activation, Graph, Node, Tensor
from edgekit.host.compiler.lowering.common.arguments import parameters_of
from edgekit.host.compiler.lowering.context import Context, padded
from edgekit.host.compiler.lowering.plan import Field, Value
from edgekit.host.compiler.transforms.passes.rewrite import Users, rewrite

_FEW = 8  # channels: shorter rows are stored as partial vectors, which are slow to read back
_RESIDUAL = 3
_OPERAND = 4  # input index of the epilogue's operand, after bias and residual
_ADDED = 5  # input index of what is added to the epilogue's results


def fuse_epilogues(graph: Graph) -> Graph:
    """Fuses functions into float products with constant weights if they are their only reader."""

    def match(users: Users, node: Node) -> dict[str, Node | None] | None:
        op = node.op
        after = users.only_consumer(node.outputs[0]) if _takes_epilogue(graph, node) else None
        if after is None or not _is_epilogue(graph, node, after):
            return None
        assert isinstance(op, ops.Weighted)
        inputs = node.inputs
        if operand := after.inputs[1:]:
            inputs = (*inputs, *[None] * (_OPERAND - len(inputs)), *operand)
        fused = dataclasses.replace(op, epilogue=after.op)
        return {node.name: Node(node.name, fused, inputs, after.outputs), after.name: None}

    return rewrite(graph, match)


def fuse_additions(graph: Graph) -> Graph:
    """Fuses the addition of a tensor of equal shape into the float convolution before it whose
    function is already fused. Without a function, `fuse_residual` has fused it.

    The fused node replaces the addition, where both operands are available.
    """

    def match(users: Users, node: Node) -> dict[str, Node | None] | None:
        if not isinstance(node.op, ops.Add) or node.op.activation is not Activation.NONE:
            return None
        for mine, other in (node.inputs[:2], node.inputs[1::-1]):
            conv = users.single(mine)
            if conv is None or mine == other or not _takes_addend(graph, conv, other):
                continue
            inputs = (*conv.inputs, *[None] * (_ADDED - len(conv.inputs)), other)
            return {node.name: Node(conv.name, conv.op, inputs, node.outputs), conv.name: None}
        return None

    return rewrite(graph, match)


def _takes_addend(graph: Graph, node: Node, addend: str | None) -> bool:
    op = node.op
    if type(op) is not ops.Conv2D or op.epilogue is None or len(node.inputs) > _ADDED:
        return False
    made, other = graph.tensors[node.outputs[0]], graph.tensors[addend or ""]
    alike = (made.shape, made.dtype, None) == (other.shape, other.dtype, other.data)
    return alike and (len(node.inputs) <= _RESIDUAL or node.inputs[_RESIDUAL] is None)


def residual_of(ctx: Context, node: Node) -> dict[str, Field]:
    """The fields `residual` and `residual_pitch`."""
    added = ctx.optional(node, _RESIDUAL) or ctx.optional(node, _ADDED)
    if added is None:
        return {"residual": None, "residual_pitch": 0}
    return {"residual": Value(added.name), "residual_pitch": ctx.pitch(added.name)}


def _takes_epilogue(graph: Graph, node: Node) -> bool:
    op = node.op
    if not isinstance(op, ops.Weighted) or not op.takes_epilogue:
        return False
    x, w = (graph.tensors[name or ""] for name in node.inputs[:2])
    floats = x.dtype is w.dtype and x.dtype in FLOATS
    return floats and op.activation is Activation.NONE and op.epilogue is None


def _is_epilogue(graph: Graph, node: Node, after: Node) -> bool:
    form = after.op.epilogue_form
    if form is Epilogue.NO or after.inputs[0] != node.outputs[0]:
        return False
    made = graph.tensors[node.outputs[0]]
    if made.shape[-1] < _FEW and form is Epilogue.ON_ROWS:
        return False
    # A second operand must be constant and per channel.
    operands = [graph.tensors[name or ""] for name in after.inputs[1:]]
    return all(t.data is not None and is_per_channel(t, made) for t in operands)


def epilogue_of(
    ctx: Context, node: Node, channels: int
) -> tuple[dict[str, int], str, dict[str, Field]]:
    """The epilogue of `node`: kernel macros, kernel name suffix, and the field `epilogue`."""
    op = node.op
    assert isinstance(op, ops.Weighted)
    if op.epilogue is None:
        return {}, "", {}
    first, second = parameters_of(op.epilogue)
    fields: dict[str, Field] = {"p": first, "q": second}
    operand = ctx.optional(node, _OPERAND)
    if operand is not None:
        assert operand.data is not None
        width = round_up(channels, ctx.isa.vl)
        fields["operand"] = ctx.weights.add(padded(operand.data, width, operand.dtype.numpy))
    macros = {"EPILOGUE": 1 if operand is None else 2, f"OP_{op.epilogue.kind.upper()}": 1}
    suffix = f"_{op.epilogue.kind}"
    if ctx.optional(node, _ADDED) is not None:
        macros["ADDS_LAST"] = 1
        suffix += "_add"
    return macros, suffix, {"epilogue": fields}


def tiled_operand(ctx: Context, node: Node, times: int) -> Tensor | None:
    """The epilogue's operand repeated `times` times, for channels that are side by side."""
    operand = ctx.optional(node, _OPERAND)
    if operand is None or operand.data is None:
        return None
    data = np.tile(operand.data.reshape(-1), times if operand.elements > 1 else 1)
    return Tensor(f"{operand.name}:tiled", data.shape, operand.dtype, data=data)
