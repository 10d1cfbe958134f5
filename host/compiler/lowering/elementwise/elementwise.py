"""Element-wise operators, pools, reductions and resizing."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from edgekit.device.runtime.kernel_facts import BINARY_CHUNK, BINARY_DIMS, UNARY_CHUNK
from edgekit.host.compiler.ir import nearest, ops
from edgekit.host.compiler.ir.align import strides_of
from edgekit.host.compiler.ir.checks import FLOATS, INTEGERS
from edgekit.host.compiler.ir.fixed_point import (
    SOFTMAX_DIFF_BITS,
    SOFTMAX_SUM_BITS,
    exp_negative,
    softmax_multiplier,
)
from edgekit.host.compiler.ir.nearest import rounds_once
from edgekit.host.compiler.ir.ops import (
    Add,
    AveragePool2D,
    Cast,
    Clamp,
    MaxPool2D,
    Mul,
    PRelu,
    Quantize,
    Softmax,
    Sub,
)
from edgekit.host.compiler.ir.quantization import (
    Multiplier,
    activation_range,
    add_multipliers,
    add_shift,
    mul_multiplier,
    quantized_range,
    rounding_shift,
    scale_of,
    zero_point_of,
)
from edgekit.host.compiler.ir.quantized_elementwise import ratio32
from edgekit.host.compiler.ir.softmax_16bit import exponentials, reciprocals
from edgekit.host.compiler.ir.types import Activation, DType, Node, Tensor
from edgekit.host.compiler.lowering.broadcast import collapse
from edgekit.host.compiler.lowering.common.arguments import C_TYPES
from edgekit.host.compiler.lowering.common.copies import strided_copy
from edgekit.host.compiler.lowering.common.tables import lower_single, lower_table
from edgekit.host.compiler.lowering.common.window import Window
from edgekit.host.compiler.lowering.context import Context, UnsupportedFormError, lowers
from edgekit.host.compiler.lowering.elementwise import plain
from edgekit.host.compiler.lowering.gemm.linear_sum import lower_linear_sum
from edgekit.host.compiler.lowering.plan import Field, Kernel, KernelCall, Value

_MOST_NEAREST = 2.0**21  # of values that kernels round to even


def scalar_factor_fields(factor: Multiplier, name: str) -> dict[str, Field]:
    """A per-tensor factor as the fields `<name>_multiplier`, `<name>_left`, `<name>_right`."""
    shift = int(factor.shift[0])
    return {
        f"{name}_multiplier": int(factor.multiplier[0]),
        f"{name}_left": max(shift, 0),
        f"{name}_right": max(-shift, 0),
    }


@lowers(ops.Add, ops.Mul, ops.Sub, ops.PRelu)
def lower_binary(ctx: Context, node: Node) -> list[KernelCall]:
    """A kernel that cannot write rows at a pitch writes to scratch, which is then copied."""
    calls, y = _lower_contiguous(ctx, node), ctx.tensor(node.outputs[0])
    if y.name not in ctx.parts or "pitch" in calls[-1].fields:
        return calls
    own, made, size = Value(y.name), ctx.scratch(node, y.bytes), y.dtype.bytes
    calls = [
        replace(call, fields={k: made if v == own else v for k, v in call.fields.items()})
        for call in calls
    ]
    strides = strides_of(y.shape, size), ctx.strides(y.name)
    return [*calls, strided_copy(ctx, y.shape, *strides, size, made, own)]


def _lower_contiguous(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, Add | Mul | Sub | PRelu)
    a, b = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    y = ctx.tensor(node.outputs[0])
    types = {a.dtype, b.dtype, y.dtype}
    if isinstance(op, Sub | PRelu):
        in_f32 = isinstance(op, PRelu) or rounds_once(y)
        if not y.is_quantized or (in_f32 and y.dtype is not DType.I16):
            return plain.lower_binary(ctx, node)
        if calls := lower_single(ctx, node):
            return calls
    elif (
        op.activation is Activation.NONE
        and len(types) == 1
        and y.dtype in INTEGERS
        and not y.is_quantized
    ):
        return plain.lower_binary(ctx, node)
    if len(types) != 1 or y.dtype not in C_TYPES:
        raise ctx.unsupported(node, f"types {a.dtype.value} and {b.dtype.value}")
    if isinstance(op, Add) and y.dtype.is_quantized and (calls := lower_linear_sum(ctx, node)):
        return calls
    rounded = None
    if isinstance(op, Add | Mul) and rounds_once(y):
        rounded = _nearest_fields(a, b, y, op)
        if rounded is None:
            return plain.lower_pairs(ctx, node, op)
    kind = {Mul: "MUL", PRelu: "PRELU"}.get(type(op), "ADD")
    macros: dict[str, str | int] = {"TX": C_TYPES[y.dtype], f"OP_{kind}": 1}
    try:
        form = collapse([a.shape, b.shape], y.shape, BINARY_DIMS)
    except UnsupportedFormError:
        if isinstance(op, Sub | PRelu) or (y.dtype.is_float and op.activation is Activation.NONE):
            return plain.lower_binary(ctx, node)  # slower, but supports more dimensions
        raise
    dims, (a_strides, b_strides) = form.dims, form.strides
    chunks = math.ceil(dims[-1] / BINARY_CHUNK)
    fields: dict[str, Field] = {
        "dim": dims,
        "a_stride": a_strides,
        "b_stride": b_strides,
        "chunks": chunks,
        "a": _operand_field(ctx, a),
        "b": _operand_field(ctx, b),
        "y": Value(y.name),
    }
    ctx = ctx.of_floats(y.dtype)
    if y.dtype.is_float:
        assert isinstance(op, Add | Mul)
        macros["FLOAT_X"] = 1
        fields["low_f32"], fields["high_f32"] = op.activation.bounds
    else:
        if y.dtype is DType.I16:
            macros["WIDE"] = 1
        fields |= rounded or _quantized_binary(a, b, y, op)
    name = f"{y.dtype.value}_{kind.lower()}"
    if rounded:
        name, macros["OP_EVEN"] = f"{name}_even", 1
    elif kind == "ADD" and not y.dtype.is_float:
        name, rights = _right_shift_macros(name, fields)
        macros |= rights
    kernel = ctx.kernel(
        name, "elementwise/binary.c", "elementwise/binary.h", "ek_binary_args", **macros
    )
    return [
        KernelCall(kernel, fields, math.prod(dims[:-1]) * chunks, max(1, 4096 // max(dims[-1], 1)))
    ]


def _operand_field(ctx: Context, t: Tensor) -> Field:
    return Value(t.name) if t.data is None else ctx.weights.add(t.data)


def _quantized_binary(
    a: Tensor, b: Tensor, y: Tensor, op: Add | Mul | Sub | PRelu
) -> dict[str, Field]:
    low, high = quantized_range(y.dtype)
    if isinstance(op, Add | Mul):
        low, high = activation_range(op.activation, y)
    fields: dict[str, Field] = {
        "a_zero": zero_point_of(a),
        "b_zero": zero_point_of(b),
        "y_zero": zero_point_of(y),
        "low": low,
        "high": high,
    }
    if isinstance(op, Mul):
        return fields | scalar_factor_fields(mul_multiplier(a, b, y), "y")
    if isinstance(op, PRelu):
        return (
            fields
            | scalar_factor_fields(ratio32(a, y), "a")
            | scalar_factor_fields(ratio32(a, y, scale_of(b)), "y")
        )
    factors = add_multipliers(a, b, y)
    if isinstance(op, Sub):
        factors = replace(factors, b=factors.b.negative)
    fields["shift"] = add_shift(y)
    return (
        fields
        | scalar_factor_fields(factors.a, "a")
        | scalar_factor_fields(factors.b, "b")
        | scalar_factor_fields(factors.output, "y")
    )


def _nearest_fields(a: Tensor, b: Tensor, y: Tensor, op: Add | Mul) -> dict[str, Field] | None:
    """Arguments of the kernel that rounds as ONNX Runtime does; None if there is none."""
    low, high = quantized_range(y.dtype)
    fields: dict[str, Field] = {"low": low, "high": high}
    if isinstance(op, Mul):
        product = nearest.product_form(a, b, y, op.activation)
        if product is None or 2**16 * product.scale > _MOST_NEAREST:
            return None
        fields |= {"a_zero": zero_point_of(a), "b_zero": zero_point_of(b)}
        fields |= {"y_zero": -product.shift}
        return fields | {"a_scale": float(product.scale), "addend": float(product.addend)}
    total = nearest.sum_form(a, b, y, op.activation)
    if total is None or 2**8 * (total.a_scale + total.b_scale) + abs(total.addend) > _MOST_NEAREST:
        return None
    fields |= {"a_zero": -total.shift, "b_zero": -total.shift, "y_zero": -total.shift}
    scales = {"a_scale": float(total.a_scale), "b_scale": float(total.b_scale)}
    return fields | scales | {"addend": float(total.addend)}


def _right_shift_macros(name: str, fields: dict[str, Field]) -> tuple[str, dict[str, int]]:
    """The kernel name and the macros A_RIGHT and B_RIGHT of elementwise/binary.c.

    These apply only if no factor shifts left and the factor of the sum shifts right.
    """
    if any(fields[f"{side}_left"] for side in "aby") or not fields["y_right"]:
        return name, {}
    rights = {f"{side.upper()}_RIGHT": int(fields[f"{side}_right"] != 0) for side in "ab"}
    return f"{name}_{rights['A_RIGHT']}{rights['B_RIGHT']}", rights


def _call_unary(
    ctx: Context, node: Node, name: str, fields: dict[str, Field], **macros: str | int
) -> list[KernelCall]:
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    file = "quantize" if name.startswith("quantize") else "unary"
    kernel = ctx.kernel(
        name, f"elementwise/{file}.c", "elementwise/unary.h", "ek_unary_args", **macros
    )
    common: dict[str, Field] = {"n": x.elements, "x": Value(x.name), "y": Value(y.name)}
    return [KernelCall(kernel, common | fields, math.ceil(x.elements / UNARY_CHUNK))]


@lowers(ops.Clamp, ops.Logistic, ops.HardSwish)
def lower_unary(ctx: Context, node: Node) -> list[KernelCall]:
    """Clamp, logistic, hard-swish; quantized inputs are looked up in a table of results."""
    op = node.op
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    if x.is_quantized and y.is_quantized:
        return lower_table(ctx, node)
    if x.dtype is not y.dtype or x.dtype not in FLOATS:
        raise ctx.unsupported(node, f"types {x.dtype.value} and {y.dtype.value}")
    if isinstance(op, Clamp):
        low, high = op.activation.bounds
        fields: dict[str, Field] = {"low": low, "high": high}
        return _call_unary(
            ctx.of_floats(x.dtype), node, f"{x.dtype.value}_clamp", fields, OP_CLAMP=1
        )
    return plain.lower_plain(ctx, node)


@lowers(ops.Quantize, ops.Cast)
def lower_convert(ctx: Context, node: Node) -> list[KernelCall]:
    """Quantize, requantize (by table) and dequantize."""
    assert isinstance(node.op, Quantize | Cast)
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    if x.is_quantized and y.is_quantized:
        return lower_table(ctx, node)
    if x.dtype is DType.F32 and y.is_quantized:
        low, high = quantized_range(y.dtype)
        fields: dict[str, Field] = {
            "scale": scale_of(y),
            "zero": zero_point_of(y),
            "qlow": low,
            "qhigh": high,
        }
        name = f"quantize_{y.dtype.value}"
        macros: dict[str, str | int] = {}
        if isinstance(node.op, Quantize) and node.op.to_even:
            name, macros["OP_EVEN"] = f"{name}_even", 1
        if y.dtype is DType.I16:
            macros["WIDE"] = 1
        return _call_unary(ctx, node, name, fields, TQ=C_TYPES[y.dtype], **macros)
    if x.is_quantized:
        fields = {"scale": scale_of(x), "zero": zero_point_of(x)}
        name = f"dequantize_{x.dtype.value}"
        return _call_unary(ctx, node, name, fields, OP_DEQUANTIZE=1, TQ=C_TYPES[x.dtype])
    raise ctx.unsupported(node, f"conversion from {x.dtype.value} to {y.dtype.value}")


@lowers(ops.FakeQuantize)
def lower_fake_quantize(ctx: Context, node: Node) -> list[KernelCall]:
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    fields: dict[str, Field] = {"n": x.shape[1], "x": Value(x.name), "y": Value(y.name)}
    source = "elementwise/fake_quantize.c"
    kernel = ctx.kernel("f32_fake_quantize", source, None, "ek_fake_quantize_args")
    return [KernelCall(kernel, fields, x.shape[0])]


@lowers(ops.QuantizeRows)
def lower_quantize_rows(ctx: Context, node: Node) -> list[KernelCall]:
    x, (values, scales) = ctx.tensor(node.inputs[0]), node.outputs
    fields: dict[str, Field] = {"n": x.shape[1], "x": Value(x.name), "y": Value(values)}
    source = "elementwise/quantize_rows.c"
    kernel = ctx.kernel("f32_quantize_rows", source, None, "ek_quantize_rows_args")
    return [KernelCall(kernel, {**fields, "scale": Value(scales)}, x.shape[0])]


@lowers(ops.AveragePool2D, ops.MaxPool2D)
def lower_pool(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, AveragePool2D | MaxPool2D)
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    n, h, w, c = x.shape
    window = Window((n, h, w, c), (n, y.shape[1], y.shape[2], c), op.window, op.stride,
                    padding=op.padding)  # fmt: skip
    kind = "MAX" if isinstance(op, MaxPool2D) else "AVERAGE"
    macros: dict[str, str | int] = {"TX": C_TYPES[x.dtype], f"OP_{kind}": 1}
    fields: dict[str, Field] = {
        "win": window.fields,
        "pitch": ctx.pitch(y.name),
        "x": Value(x.name),
        "y": Value(y.name),
    }
    ctx = ctx.of_floats(x.dtype)
    if x.dtype.is_float:
        macros["FLOAT_X"] = 1
        fields["low_f32"], fields["high_f32"] = op.activation.bounds
    else:
        fields["low"], fields["high"] = activation_range(op.activation, y)
    name = f"{x.dtype.value}_{kind.lower()}_pool"
    if kind == "AVERAGE" and rounds_once(y):
        name, macros["OP_EVEN"], shift = f"{name}_even", 1, nearest.shift_of(y)
        fields |= {"x_zero": zero_point_of(x), "y_zero": zero_point_of(y) + shift, "shift": shift}
        fields |= {"x_scale": scale_of(x), "y_scale": scale_of(y)}
    kernel = ctx.kernel(name, "pool/pool.c", "pool/pool.h", "ek_pool2d_args", **macros)
    return [KernelCall(kernel, fields, n * y.shape[1])]


@lowers(ops.Softmax)
def lower_softmax(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, Softmax)
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    n = x.shape[-1]
    fields: dict[str, Field] = {"n": n, "x": Value(x.name), "y": Value(y.name)}
    if x.dtype in FLOATS:
        fields["beta"] = op.beta
        name = f"{x.dtype.value}_softmax"
        kernel = _softmax_kernel(ctx.of_floats(x.dtype), name, "reduce/f32_softmax.c")
        return [KernelCall(kernel, fields, x.elements // n)]
    if x.dtype is DType.I16:
        fields["power_q15"] = ctx.weights.add(exponentials(x, op.beta).astype(np.int16))
        fields["inverse"] = ctx.weights.add(reciprocals().astype(np.int16))
        kernel = _softmax_kernel(ctx, "s16_softmax", "reduce/i16_softmax.c")
        return [KernelCall(kernel, fields, x.elements // n)]
    factor = softmax_multiplier(x, op.beta)
    difference = -np.arange(256, dtype=np.int64)
    # e^x underflows below this difference, whose rescaled value would not fit Q5.
    largest = ((1 << SOFTMAX_DIFF_BITS) - 1) * 2.0 ** (31 - SOFTMAX_DIFF_BITS)
    smallest = -math.floor(largest / 2.0 ** int(factor.shift[0]))
    counts = difference >= smallest
    power = exp_negative(factor.apply(np.where(counts, difference, 0)), SOFTMAX_DIFF_BITS)
    power = np.where(counts, power, 0)
    fields["power"] = ctx.weights.add(power.astype(np.int32))
    fields["term"] = ctx.weights.add(rounding_shift(power, SOFTMAX_SUM_BITS).astype(np.int32))
    name = f"{x.dtype.value}_softmax"
    macros: dict[str, str | int] = {"TX": C_TYPES[x.dtype], "SUM_BITS": SOFTMAX_SUM_BITS}
    kernel = _softmax_kernel(ctx, name, "reduce/i8_softmax.c", **macros)
    return [KernelCall(kernel, fields, x.elements // n)]


def _softmax_kernel(ctx: Context, name: str, source: str, **macros: str | int) -> Kernel:
    return ctx.kernel(name, source, "reduce/softmax.h", "ek_softmax_args", **macros)
