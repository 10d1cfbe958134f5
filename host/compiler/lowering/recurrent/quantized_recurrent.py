"""Recurrent layers of 8-bit values (recurrent/quantized_lstm.c, quantized_svdf.c)."""

from __future__ import annotations

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Node
from edgekit.host.compiler.lowering.common.arguments import operand_of
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value

_TASK = 4096  # multiplications: the minimum work per thread


@lowers(ops.QuantizedLSTM)
def lower_quantized_lstm(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.QuantizedLSTM)
    x, cell = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[5])
    time, batch, size = x.shape
    cells, out = cell.shape[1], ctx.tensor(node.inputs[4]).shape[1]
    fields: dict[str, Field] = {
        "steps": time, "batch": batch, "size": size, "cells": cells, "out": out,
        "gates": op.gates,
        "y": Value(node.outputs[0]), "hidden": Value(node.outputs[1]),
        "cell": Value(node.outputs[2]),
        "sums": ctx.scratch(node, batch * op.gates * cells * cell.dtype.bytes),
        "of_input": op.of_input, "of_state": op.of_state, "of_cell": op.of_cell or ((0, 0),),
        "of_norm": op.of_norm or ((0, 0),), "guards": op.guards or (0,),
        "to_hidden": op.to_hidden, "to_output": op.to_output,
        "hidden_zero": op.hidden_zero, "zero": op.zero,
        "cell_clip": op.cell_clip, "clip": op.clip,
    }  # fmt: skip
    for i, name in enumerate((
        "x", "weights", "recurrent", "bias", "hidden_before", "cell_before", "peepholes",
        "projection", "projection_bias", "norms", "norm_bias",
    )):  # fmt: skip
        given = ctx.optional(node, i)
        fields[name] = None if given is None else operand_of(ctx, given)
    projected = fields["projection"] is not None
    fields["inner"] = ctx.scratch(node, batch * cells) if projected else None
    source = "recurrent/quantized_lstm"
    name = f"s8_lstm_q{op.cell_bits}"
    kernel = ctx.kernel(
        name, f"{source}.c", f"{source}.h", "ek_quantized_lstm_args", CELL_BITS=op.cell_bits
    )
    return [KernelCall(kernel, fields, None)]


@lowers(ops.QuantizedSVDF)
def lower_quantized_svdf(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.QuantizedSVDF)
    x, times = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[3])
    (batch, size), (filters, frames) = x.shape, times.shape
    units = filters // op.rank
    fields: dict[str, Field] = {
        "size": size, "units": units, "rank": op.rank, "frames": frames,
        "y": Value(node.outputs[0]), "state": Value(node.outputs[1]),
        "of_input": op.of_input, "to_output": op.to_output, "zero": op.zero,
    }  # fmt: skip
    for i, name in enumerate(("x", "weights", "offset", "times", "bias", "before")):
        fields[name] = operand_of(ctx, ctx.tensor(node.inputs[i]))
    source = "recurrent/quantized_svdf"
    kernel = ctx.kernel("s8_svdf", f"{source}.c", f"{source}.h", "ek_quantized_svdf_args")
    grain = max(1, _TASK // (op.rank * (size + frames)))
    return [KernelCall(kernel, fields, batch * units, grain)]
