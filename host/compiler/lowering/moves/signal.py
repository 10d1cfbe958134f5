"""Lowers the fixed-point operators of microphone front ends, and random bits."""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.fixed_fourier import Transform
from edgekit.host.compiler.ir.ops.signal import log_table
from edgekit.host.compiler.ir.types import DType, Node
from edgekit.host.compiler.lowering.common.arguments import C_NAMES, operand_of
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value

_GRAIN = 1024  # channels per task
_BLOCKS = 256  # of random words: fewer are a single task


@lowers(ops.AutoScale)
def lower_auto_scale(ctx: Context, node: Node) -> list[KernelCall]:
    x = ctx.tensor(node.inputs[0])
    y, bits = (Value(name) for name in node.outputs)
    fields: dict[str, Field] = {"n": x.elements, "x": operand_of(ctx, x), "y": y, "bits": bits}
    kernel = ctx.kernel("auto_scale", "signal/auto_scale.c", None, "ek_auto_scale_args")
    return [KernelCall(kernel, fields, 1)]


@lowers(ops.RandomBits)
def lower_random_bits(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.RandomBits)
    state = operand_of(ctx, ctx.tensor(node.inputs[0]))
    fields: dict[str, Field] = {"words": op.words, "state": state, "y": Value(node.outputs[0])}
    kernel = ctx.kernel("random_bits", "signal/random_bits.c", None, "ek_random_bits_args")
    return [KernelCall(kernel, fields, math.ceil(op.words / 4), _BLOCKS)]


@lowers(ops.FixedFourier)
def lower_fixed_fourier(ctx: Context, node: Node) -> list[KernelCall]:
    op, x = node.op, ctx.tensor(node.inputs[0])
    assert isinstance(op, ops.FixedFourier)
    rows, bits = math.prod(x.shape[:-1]), 8 * x.dtype.bytes
    transform = Transform(op.points, x.dtype, op.inverse)
    twiddles = np.concatenate([step.twiddles.reshape(-1) for step in transform.steps])
    fields: dict[str, Field] = {
        "half": transform.half,
        "length": x.shape[-1],
        "place": ctx.weights.add(np.argsort(transform.order).astype(np.int32)),
        "twiddles": ctx.weights.add(twiddles.astype(x.dtype.numpy)),
        "last": ctx.weights.add(transform.last.astype(x.dtype.numpy)),
        "x": operand_of(ctx, x),
        "y": Value(node.outputs[0]),
        "work": ctx.scratch(node, rows * op.points * x.dtype.bytes),
    }
    macros: dict[str, str | int] = {"INVERSE": 1} if op.inverse else {}
    kernel = ctx.kernel(
        f"{x.dtype.value}_fourier{'_back' if op.inverse else ''}",
        "signal/fourier.c",
        None,
        "ek_fourier_args",
        TX=C_NAMES[x.dtype],
        TW=f"int{2 * bits}_t",
        BITS=bits - 1,
        **macros,
    )
    return [KernelCall(kernel, fields, rows)]


@lowers(ops.AutomaticGain)
def lower_automatic_gain(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.AutomaticGain)
    noise, table = (operand_of(ctx, ctx.tensor(name)) for name in node.inputs[1:])
    fields: dict[str, Field] = {"shift": op.shift, "scale": 0, "noise": noise, "table": table}
    return _call_channels(ctx, node, fields, "GAIN", DType.I16)


@lowers(ops.FixedLog)
def lower_fixed_log(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.FixedLog)
    x, table = operand_of(ctx, ctx.tensor(node.inputs[0])), ctx.weights.add(log_table())
    fields: dict[str, Field] = {"shift": op.bits, "scale": op.scale, "noise": x, "table": table}
    return _call_channels(ctx, node, fields, "LOG", DType.U16)


def _call_channels(
    ctx: Context, node: Node, fields: dict[str, Field], function: str, table: DType
) -> list[KernelCall]:
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    fields |= {"x": operand_of(ctx, x), "y": Value(y.name)}
    macros: dict[str, str | int] = {f"OP_{function}": 1}
    kernel = ctx.kernel(
        f"channels_{function.lower()}",
        "signal/channels.c",
        None,
        "ek_channels_args",
        TY=C_NAMES[y.dtype],
        TT=C_NAMES[table],
        **macros,
    )
    return [KernelCall(kernel, fields, x.elements, _GRAIN)]
