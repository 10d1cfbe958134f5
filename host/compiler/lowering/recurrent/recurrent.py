"""Recurrent layers (recurrent/layer.c), with weights in panels."""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.types import Array, DType, Node, Operator
from edgekit.host.compiler.lowering.common.arguments import operand_of, parameters_of
from edgekit.host.compiler.lowering.context import Context, lowers, padded
from edgekit.host.compiler.lowering.narrow import narrowed
from edgekit.host.compiler.lowering.packing import pack_panels
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value, Weights

_SEQUENCES = 4  # sequences of a batch that share a pass over the weights
_VECTORS = 4  # vectors per panel, if there are enough registers for the sums


@lowers(ops.Recurrent)
def lower_recurrent(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.Recurrent)
    x, lengths = ctx.tensor(node.inputs[0]), ctx.optional(node, 2)
    ctx = ctx.of_floats(x.dtype)
    time, batch, width = x.shape
    hidden = width // op.gates
    rows = min(batch, _SEQUENCES)
    vectors = _VECTORS if rows == 1 or ctx.isa.registers > 16 else _VECTORS // 2
    macros: dict[str, str | int] = {"MR": rows, "NV": vectors, f"OP_{op.kind.upper()}": 1}
    fields: dict[str, Field] = {
        "steps": time,
        "batch": batch,
        "hidden": hidden,
        "backwards": int(op.backwards),
        "x": operand_of(ctx, x),
        "lengths": None if lengths is None else operand_of(ctx, lengths),
        "hidden_before": operand_of(ctx, ctx.tensor(node.inputs[3])),
        "y": Value(node.outputs[0]),
        "state": Value(node.outputs[1]),
        "clip": op.clip,
    }
    weights = ctx.constant(node, 1, "weights of the state")
    narrow = narrowed(weights)
    scales = None if narrow is None else narrow.scales
    weights = weights if narrow is None else narrow.values
    row, name = round_up(width, ctx.isa.vl), op.kind
    if isinstance(op, ops.Lstm):
        fields |= _lstm_fields(ctx, node, op)
        if fields["terms"] is not None:
            macros["PEEPHOLES"], name = 1, "lstm_peepholes"
    if isinstance(op, ops.Gru) and op.linear_before_reset:
        bias = ctx.optional(node, 4)
        zeros = np.zeros(hidden, np.float32)
        fields["terms"] = ctx.weights.add(zeros) if bias is None else operand_of(ctx, bias)
        macros["LINEAR_BEFORE_RESET"], name = 1, "gru_linear"
    elif isinstance(op, ops.Gru):
        fields["inner"] = _add_panels(ctx, weights[2 * hidden :], vectors)
        weights = weights[: 2 * hidden]
        if scales is not None:
            fields["inner_scales"] = _add_scales(ctx, scales[2 * hidden :])
            scales = scales[: 2 * hidden]
        row = round_up(2 * hidden, ctx.isa.vl) + round_up(hidden, ctx.isa.vl) + hidden
    if x.dtype is DType.F16:
        row += hidden  # of the state
    if min(op.clip, getattr(op, "cell_clip", math.inf)) < math.inf:
        macros["CLIPPED"], name = 1, f"{name}_clipped"
    if weights.dtype != x.dtype.numpy:
        bits = 8 * weights.itemsize
        macros["NARROW"], name = bits, f"{name}_{'f16' if bits == 16 else 's8'}"
        fields["scales"] = None if scales is None else _add_scales(ctx, scales)
    fields |= {
        "weights": _add_panels(ctx, weights, vectors),
        "row": row,
        "scratch": ctx.scratch(node, batch * row * x.dtype.bytes),
    }
    for place in ("gate", "squash", "last"):
        function = getattr(op, place, None)
        if function is not None:
            macros[place.upper()] = f"apply_{function.kind}"
            fields[place] = _function_parameters(function)
            name += f"_{function.kind}"
    kernel = ctx.kernel(
        f"{x.dtype.value}_{name}_{rows}x{vectors * ctx.isa.vl}",
        "recurrent/layer.c",
        "recurrent/layer.h",
        "ek_recurrent_args",
        **macros,
    )
    return [KernelCall(kernel, fields, None)]


def _lstm_fields(ctx: Context, node: Node, op: ops.Lstm) -> dict[str, Field]:
    peepholes = ctx.optional(node, 5)
    return {
        "cell_before": operand_of(ctx, ctx.tensor(node.inputs[4])),
        "cell": Value(node.outputs[2]),
        "cell_clip": op.cell_clip,
        "terms": None if peepholes is None else operand_of(ctx, peepholes),
    }


def _add_panels(ctx: Context, weights: Array, vectors: int) -> Weights:
    return ctx.weights.add(pack_panels(weights, vectors * ctx.isa.vl, ctx.isa.vl))


def _add_scales(ctx: Context, scales: Array) -> Weights:
    width = round_up(len(scales), ctx.isa.vl)
    return ctx.weights.add(padded(scales, width, np.dtype(np.float32)))


def _function_parameters(function: Operator) -> tuple[float, float]:
    if isinstance(function, ops.Clamp):
        return function.activation.bounds
    return parameters_of(function)
