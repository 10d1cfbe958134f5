"""Operators on plain types: functions, comparisons, conversions, totals, gathers, products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from edgekit.device.runtime.kernel_facts import MAP_CHUNK, MAP_DIMS, MATMUL_DIMS, REDUCE_BLOCK
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import strides_of
from edgekit.host.compiler.ir.checks import FLOATS, UNSIGNED
from edgekit.host.compiler.ir.quantization import matrix_multiplier, short_factor, zero_point_of
from edgekit.host.compiler.ir.quantized_elementwise import quotient_factors
from edgekit.host.compiler.ir.types import Array, DType, Node, Operator, Tensor
from edgekit.host.compiler.lowering.broadcast import collapse
from edgekit.host.compiler.lowering.common.arguments import (
    C_NAMES,
    C_TYPES,
    operand_of,
    parameters_of,
)
from edgekit.host.compiler.lowering.common.copies import strided_copy
from edgekit.host.compiler.lowering.common.tables import (
    lower_single,
    lower_table,
    table_of_pairs,
)
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.gemm.computed import form_of_product, operands_of
from edgekit.host.compiler.lowering.gemm.packed import lower_packed
from edgekit.host.compiler.lowering.gemm.streamed import lower_streamed
from edgekit.host.compiler.lowering.methods import method_of
from edgekit.host.compiler.lowering.moves.quantized_rows import gather_narrow
from edgekit.host.compiler.lowering.narrow import narrowed
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value


def _c_name(ctx: Context, node: Node, dtype: DType) -> str:
    """The C type of a dtype: f16 is a number if the kernels compute in f16, else raw bits."""
    if dtype is DType.F16 and ctx.isa.is_half:
        return C_TYPES[dtype]
    if dtype not in C_NAMES:
        raise ctx.unsupported(node, f"type {dtype.value}")
    return C_NAMES[dtype]


def _call_map(
    ctx: Context,
    node: Node,
    name: str,
    operands: Sequence[Tensor],
    parameters: tuple[float, float] = (0.0, 0.0),
    table: Array | None = None,
    **macros: str | int,
) -> list[KernelCall]:
    """y = f(operands) by elementwise/map.c; the macros select f, and `table` holds its results."""
    y = ctx.tensor(node.outputs[0])
    shapes = [t.shape for t in operands]
    # Unused operands get the strides of y, so that their step is 1.
    shapes += [y.shape] * (3 - len(operands))
    form = collapse(shapes, y.shape, MAP_DIMS)
    chunks = math.ceil(form.dims[-1] / MAP_CHUNK)
    values = [operand_of(ctx, t) for t in operands]
    values += values[:1] * (3 - len(values))
    fields: dict[str, Field] = {"dim": form.dims, "chunks": chunks}
    for letter, stride, value in zip("abc", form.strides, values, strict=True):
        fields[f"{letter}_stride"] = stride
        fields[letter] = value
    if table is not None:
        fields["c"] = ctx.weights.add(table)
        fields["c_stride"] = (0,) * MAP_DIMS
    fields |= {"y": Value(y.name), "p": parameters[0], "q": parameters[1]}
    kernel = ctx.kernel(
        name,
        "elementwise/map.c",
        "elementwise/map.h",
        "ek_map_args",
        ARITY=len(operands),
        TA=_c_name(ctx, node, operands[0].dtype),
        TY=_c_name(ctx, node, y.dtype),
        **macros,
    )
    tasks = math.prod(form.dims[:-1]) * chunks
    return [KernelCall(kernel, fields, tasks, max(1, 4096 // max(form.dims[-1], 1)))]


@lowers(ops.Function)
def lower_function(ctx: Context, node: Node) -> list[KernelCall]:
    op, x = node.op, ctx.tensor(node.inputs[0])
    assert isinstance(op, ops.Function)
    if x.is_quantized:
        return lower_table(ctx, node)
    first, second = parameters_of(op)
    if isinstance(op, ops.Clip) and not x.dtype.is_float:
        limit = 2.0 ** (8 * x.dtype.bytes - 1)
        first, second = max(first, -limit), min(second, limit * (1 - 2.0**-24))
    return lower_plain(ctx, node, (first, second))


def lower_plain(
    ctx: Context, node: Node, parameters: tuple[float, float] = (0.0, 0.0)
) -> list[KernelCall]:
    """Lowers a one-operand function that elementwise/functions.h defines under the same name."""
    x = ctx.tensor(node.inputs[0])
    macro: dict[str, Any] = {f"OP_{node.op.kind.upper()}": 1}
    name = f"{x.dtype.value}_{node.op.kind}"
    return _call_map(ctx.of_floats(x.dtype), node, name, [x], parameters, **macro)


@lowers(ops.Binary)
def lower_binary(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    a, b = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    if isinstance(op, ops.Binary) and op.are_quantized(a, b):
        return lower_pairs(ctx, node, op)
    kind = op.kind
    if isinstance(op, ops.FloorDiv) and a.dtype is DType.F32:
        kind = "floor_div_float"
    if isinstance(op, ops.Pow) and a.dtype is not DType.F32:
        kind = "int_power"
    if isinstance(op, ops.Modulo):
        kind = "modulo_truncated" if op.truncated else "modulo"
        if a.dtype is DType.F32:
            kind = "fmod" if op.truncated else "fmod_floored"
    macros: dict[str, Any] = {f"OP_{kind.upper()}": 1}
    return _call_map(ctx.of_floats(a.dtype), node, f"{a.dtype.value}_{kind}", [a, b], **macros)


def lower_pairs(ctx: Context, node: Node, op: Operator) -> list[KernelCall]:
    """Looks results up in a table of all pairs of quantized values."""
    a, b = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    if calls := lower_single(ctx, node):
        return calls
    if isinstance(op, ops.Div) and a.dtype is DType.I16:
        factors = quotient_factors(a, b, ctx.tensor(node.outputs[0]))
        return _call_map(
            ctx, node, f"{a.dtype.value}_quotient", [a, b], table=factors, OP_QUOTIENT=1
        )
    if a.dtype.bytes != 1:
        raise ctx.unsupported(node, f"type {a.dtype.value}")
    table = table_of_pairs(op, a, b, ctx.tensor(node.outputs[0]))
    return _call_map(ctx, node, f"{table.itemsize}_of_pairs", [a, b], table=table, OP_PAIRS=1)


@lowers(ops.Where)
def lower_where(ctx: Context, node: Node) -> list[KernelCall]:
    operands = [ctx.tensor(name) for name in node.inputs]
    return _call_map(ctx, node, f"{operands[1].dtype.value}_where", operands)


@lowers(ops.Convert)
def lower_convert(ctx: Context, node: Node) -> list[KernelCall]:
    assert isinstance(node.op, ops.Convert)
    x, to = ctx.tensor(node.inputs[0]), node.op.to
    macro = "OP_CONVERT_BOOL" if to is DType.BOOL else "OP_CONVERT"
    name, ends = f"{x.dtype.value}_to_{to.value}", (0.0, 0.0)
    if node.op.saturate:
        macro, name = "OP_SATURATE", f"{name}_saturated"
        bits = 8 * to.bytes
        ends = (0.0, 2.0**bits) if to in UNSIGNED else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1))
    macros: dict[str, Any] = {macro: 1}
    if x.dtype is DType.F16:
        macros["FROM_F16"] = 1
    if to is DType.F16:
        macros["TO_F16"] = 1
    return _call_map(ctx, node, name, [x], ends, **macros)


@lowers(ops.Total)
def lower_total(ctx: Context, node: Node, saturates: bool = False) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.Total)
    macro = f"OP_{op.kind.removeprefix('reduce_').upper()}"
    name, macros = (f"{op.kind}_saturated", {"SATURATED": 1}) if saturates else (op.kind, {})
    return [_call_reduction(ctx, node, op.axes, macro, name, **macros)]


@lowers(ops.ArgExtreme)
def lower_arg_extreme(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.ArgExtreme)
    macros = {"LAST": 1} if op.last else {}
    kind = "argmin" if op.smallest else "argmax"
    name = f"{kind}_last" if op.last else kind
    return [_call_reduction(ctx, node, (op.axis,), f"OP_{kind.upper()}", name, **macros)]


def _call_reduction(
    ctx: Context, node: Node, over: tuple[int, ...], macro: str, kind: str, **macros: str | int
) -> KernelCall:
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    axes = sorted(a for a in over if x.shape[a] > 1)
    if axes and math.prod(x.shape[axes[0] : axes[-1] + 1]) != math.prod(x.shape[a] for a in axes):
        raise ctx.unsupported(node, f"a reduction over the separate axes {axes}")
    first, last = (axes[0], axes[-1] + 1) if axes else (0, 0)
    outer, inner = math.prod(x.shape[:first]), math.prod(x.shape[last:])
    fields: dict[str, Field] = {
        "reduced": math.prod(x.shape[first:last]),
        "inner": inner,
        "x": operand_of(ctx, x),
        "y": Value(y.name),
    }
    source = "arg_extreme" if isinstance(node.op, ops.ArgExtreme) else "total"
    kernel = ctx.kernel(
        f"{x.dtype.value}_{kind}",
        f"reduce/{source}.c",
        "reduce/total.h",
        "ek_total_args",
        TX=_c_name(ctx, node, x.dtype),
        **{macro: 1},
        **macros,
    )
    return KernelCall(kernel, fields, outer * math.ceil(inner / REDUCE_BLOCK))


@lowers(ops.Gather)
def lower_gather(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.Gather)
    x, indices = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    y, axis = ctx.tensor(node.outputs[0]), op.axis
    if x.data is not None and axis == 0 and y.name not in ctx.parts:
        rows = narrowed(x.data.reshape(len(x.data), -1))
        if rows is not None:
            return gather_narrow(ctx, node, rows)
    run = math.prod(x.shape[axis + 1 :]) * x.dtype.bytes
    fields: dict[str, Field] = {
        "size": x.shape[axis],
        "count": indices.elements,
        "run": run,
        "pitch": ctx.parts[y.name].pitch if y.name in ctx.parts else run,
        "x": operand_of(ctx, x),
        "indices": operand_of(ctx, indices),
        "y": Value(y.name),
    }
    kernel = ctx.kernel(
        f"gather_{indices.dtype.value}",
        "layout/gather.c",
        "layout/gather.h",
        "ek_gather_args",
        TI=C_NAMES[indices.dtype],
    )
    tasks = math.prod(x.shape[:axis]) * indices.elements
    return [KernelCall(kernel, fields, tasks, max(1, 16384 // max(run, 1)))]


@lowers(ops.BroadcastTo)
def lower_broadcast_to(ctx: Context, node: Node) -> list[KernelCall]:
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    size = y.dtype.bytes
    wide = (1,) * (len(y.shape) - len(x.shape)) + x.shape
    source = [
        0 if d == 1 else s for d, s in zip(wide, strides_of(wide, size), strict=True)
    ]  # a repeated operand does not advance
    return [
        strided_copy(
            ctx, y.shape, source, strides_of(y.shape, size), size, Value(x.name), Value(y.name)
        )
    ]


@lowers(ops.MatMul, ops.ViewedMatMul)
def lower_matmul(ctx: Context, node: Node) -> list[KernelCall]:
    a, b = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    y = ctx.tensor(node.outputs[0])
    if a.dtype in FLOATS:
        operands = operands_of(node, a, b, y)
        method = method_of(ctx.of_floats(a.dtype), node, form_of_product(node, operands, a.dtype))
        assert method is not None
        if method.family == "streamed":
            return lower_streamed(ctx, node, operands)
        if method.family == "packed":
            return lower_packed(ctx, node, operands, method)
    m, n, k = y.shape[-2], y.shape[-1], a.shape[-1]
    form = collapse([a.shape[:-2], b.shape[:-2]], y.shape[:-2], MATMUL_DIMS)
    whole = f"uint{8 * a.dtype.bytes}_t"
    macros: dict[str, str | int] = {"MR": 1, "OP_INTEGER": 1, "TU": whole}
    name = f"{a.dtype.value}_matmul"
    if a.dtype is DType.F32:
        tile = ctx.isa.f32_tiles[0]
        macros = {"MR": tile.mr, "NV": tile.nv}
        name = f"f32_matmul_{tile.mr}x{tile.nv * ctx.isa.vl}"
    quantized: dict[str, Field] = {}
    if a.is_quantized:
        kind = a.dtype.value
        macros, name = {"MR": 1, f"OP_{kind.upper()}": 1}, f"{kind}_matmul"
        quantized = quantized_fields(a, b, y)
    blocks = math.ceil(m / int(macros["MR"]))
    fields: dict[str, Field] = {
        "m": m,
        "k": k,
        "n": n,
        "blocks": blocks,
        "dim": form.dims,
        "a_stride": tuple(s * m * k for s in form.strides[0]),
        "b_stride": tuple(s * k * n for s in form.strides[1]),
        "a": operand_of(ctx, a),
        "b": operand_of(ctx, b),
        "y": Value(y.name),
        **quantized,
    }
    kernel = ctx.kernel(name, "product/matmul.c", "product/matmul.h", "ek_matmul_args", **macros)
    return [KernelCall(kernel, fields, math.prod(form.dims) * blocks)]


def quantized_fields(a: Tensor, b: Tensor, y: Tensor) -> dict[str, Field]:
    """The zero points of a quantized product, and the factor of its sums."""
    factor = matrix_multiplier(a, b, y)
    shift = int(factor.shift[0])
    multiplier, left, right = int(factor.multiplier[0]), max(shift, 0), max(-shift, 0)
    if a.dtype is DType.I16:
        short, shifts = short_factor(factor)
        multiplier, left, right = int(short[0]), 0, int(shifts[0])
    return {
        "a_zero": zero_point_of(a),
        "b_zero": zero_point_of(b),
        "y_zero": zero_point_of(y),
        "multiplier": multiplier,
        "left": left,
        "right": right,
    }
