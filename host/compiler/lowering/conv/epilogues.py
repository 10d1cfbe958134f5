"""A function behind a convolution becomes part of its kernel (device/kernels/conv/epilogue.h).

It comes last, when it is known which convolutions remain ordinary ones: those of channel-major
images, pruned weights or products of bytes have kernels without it.
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
from edgekit.host.compiler.lowering.context import Context, padded
from edgekit.host.compiler.lowering.elementwise.plain import parameters_of
from edgekit.host.compiler.lowering.plan import Field
from edgekit.host.compiler.transforms.passes.rewrite import Users, rewrite

_FEW = 8  # channels: rows of fewer are stored in parts of vectors, and slow to read back
_OPERAND = 4  # of a product's inputs: behind bias and residual


def fuse_epilogues(graph: Graph) -> Graph:
    """Products of floats with constant weights and a function as their only reader."""

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
    # A second operand is constant and per channel.
    operands = [graph.tensors[name or ""] for name in after.inputs[1:]]
    return all(t.data is not None and is_per_channel(t, made) for t in operands)


def epilogue_of(
    ctx: Context, node: Node, channels: int
) -> tuple[dict[str, int], str, dict[str, Field]]:
    """The macros of a kernel with the function of `node`, what sets its name apart, and the field
    `epilogue` of its arguments."""
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
    return macros, f"_{op.epilogue.kind}", {"epilogue": fields}


def tiled_operand(ctx: Context, node: Node, times: int) -> Tensor | None:
    """The epilogue's operand for channels that stand side by side so many times."""
    operand = ctx.optional(node, _OPERAND)
    if operand is None or operand.data is None:
        return None
    data = np.tile(operand.data.reshape(-1), times if operand.elements > 1 else 1)
    return Tensor(f"{operand.name}:tiled", data.shape, operand.dtype, data=data)
