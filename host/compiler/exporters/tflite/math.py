"""TensorFlow Lite export of element-wise operators, reductions and type conversions."""

from __future__ import annotations

import math

import numpy as np
import tflite

from edgekit.host.compiler.exporters.tflite.file import TYPES
from edgekit.host.compiler.exporters.tflite.sink import (
    CLAMPS,
    Row,
    TfliteExportCall,
    floats_only,
    writes,
)
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, DType, Operator, Tensor

_QUANTIZED_AT_ONCE = ("HARD_SWISH", "PRELU")  # quantized since their first version


def by_name(call: TfliteExportCall, op: Operator) -> None:
    """The TensorFlow Lite operator of the same meaning, without attributes."""
    table = "".join(word.capitalize() for word in op.tflite.split("_")) + "Options"
    _emit_versioned(call, op.tflite, table if hasattr(tflite, table) else "")


def _emit_versioned(call: TfliteExportCall, code: str, options: str) -> None:
    """These operators support quantized types since version 2."""
    version = 2 if call.operand(0).is_quantized and code not in _QUANTIZED_AT_ONCE else 1
    call.emit(code, call.operands, call.out, options, version)


@writes(ops.Maximum, ops.Minimum)
def extreme(call: TfliteExportCall, op: ops.Maximum | ops.Minimum) -> None:
    _emit_versioned(call, op.kind.upper(), "MaximumMinimumOptions")


@writes(ops.Atan2)
def atan2(call: TfliteExportCall, op: ops.Atan2) -> None:
    """LiteRT requires operands of the result's shape."""
    ins, shape = [], call.out.shape
    for x in (call.operand(0), call.operand(1)):
        whole = x if x.shape == shape else call.like(x, shape=shape)
        if whole is not x:
            made = [x, call.integers(shape)]
            call.emit("BROADCAST_TO", made, whole, "BroadcastToOptions", 2)
        ins.append(whole)
    call.emit(op.tflite, ins, call.out)


@writes(ops.UnitLength)
def unit_length(call: TfliteExportCall, op: ops.UnitLength) -> None:
    _emit_versioned(call, "L2_NORMALIZATION", "L2NormOptions")


def activated(code: str, options: str) -> Row:
    """An element-wise operator with the node's activation, if any."""

    def write(call: TfliteExportCall, op: Operator) -> None:
        activation = getattr(op, "activation", Activation.NONE)
        call.activated(code, call.operands, activation, options, 1 + call.operand(0).is_quantized)

    return write


writes(ops.Add)(activated("ADD", "AddOptions"))
writes(ops.Mul)(activated("MUL", "MulOptions"))
writes(ops.Sub)(activated("SUB", "SubOptions"))


@writes(ops.Div)
@floats_only
def divide(call: TfliteExportCall, op: ops.Div) -> None:
    if call.operand(0).dtype is DType.I64:
        raise call.refuse("integers of 32 bits to divide", "s64", "write an .onnx file")
    activated("DIV", "DivOptions")(call, op)


@writes(ops.Clamp)
def clamp(call: TfliteExportCall, op: ops.Clamp) -> None:
    x = call.operand(0)
    if op.activation is Activation.NONE:
        call.emit("RESHAPE", [x, call.integers(x.shape)], call.out, "ReshapeOptions")
    else:
        call.emit(CLAMPS[op.activation], [x], call.out, version=1 + x.is_quantized)


@writes(ops.Clip)
@floats_only
def clip(call: TfliteExportCall, op: ops.Clip) -> None:
    x, out = call.operand(0), call.out
    known = {a.bounds: a for a in CLAMPS}
    if x.dtype is DType.F32 and (op.low, op.high) in known:
        call.emit(CLAMPS[known[op.low, op.high]], [x], out)
        return
    steps = [("MAXIMUM", op.low)] if op.low != -math.inf else []
    steps += [("MINIMUM", op.high)] if op.high != math.inf else []
    if not steps:
        call.emit("RESHAPE", [x, call.integers(x.shape)], out, "ReshapeOptions")
    for i, (code, bound) in enumerate(steps):
        made = out if i == len(steps) - 1 else call.like(out)
        limit = call.constant(np.array(bound), x.dtype)
        call.emit(code, [x, limit], made, "MaximumMinimumOptions")
        x = made


@writes(ops.Elu)
def elu(call: TfliteExportCall, op: ops.Elu) -> None:
    if op == ops.Elu():
        call.emit("ELU", [call.operand(0)], call.out)
    else:
        _scaled_elu(call, op)


@floats_only
def _scaled_elu(call: TfliteExportCall, op: ops.Elu) -> None:
    x, chain = call.operand(0), _Chain(call)
    below = chain.step("ELU", "", chain.step("MINIMUM", "MaximumMinimumOptions", x, 0.0))
    above = chain.step("RELU", "", x)
    above = chain.step("MUL", "MulOptions", above, op.scale)
    below = chain.step("MUL", "MulOptions", below, op.scale * op.alpha)
    call.emit("ADD", [above, below], call.out, "AddOptions")


@writes(ops.LeakyRelu)
def leaky_relu(call: TfliteExportCall, op: ops.LeakyRelu) -> None:
    x = call.operand(0)
    call.emit("LEAKY_RELU", [x], call.out, "LeakyReluOptions", 1 + x.is_quantized, Alpha=op.alpha)


def gelu(approximate: bool) -> Row:
    def write(call: TfliteExportCall, op: Operator) -> None:
        x, version = call.operand(0), 1 + call.operand(0).is_quantized
        call.emit("GELU", [x], call.out, "GeluOptions", version, Approximate=approximate)

    return write


writes(ops.Gelu)(gelu(False))
writes(ops.GeluTanh)(gelu(True))


@writes(ops.Silu)
@floats_only
def silu(call: TfliteExportCall, op: ops.Silu) -> None:
    x, chain = call.operand(0), _Chain(call)
    inner = x if op.alpha == 1.0 else chain.step("MUL", "MulOptions", x, op.alpha)
    call.emit("MUL", [x, chain.step("LOGISTIC", "", inner)], call.out, "MulOptions")


@writes(ops.Softplus)
@floats_only
def softplus(call: TfliteExportCall, op: ops.Softplus) -> None:
    """log(1 + eˣ) as max(x, 0) + log(1 + e^-|x|), which does not overflow."""
    x, chain = call.operand(0), _Chain(call)
    less = chain.step("NEG", "NegOptions", chain.step("ABS", "AbsOptions", x))
    power = chain.step("EXP", "ExpOptions", less)
    rest = chain.step("LOG", "", chain.step("ADD", "AddOptions", power, 1.0))
    call.emit("ADD", [chain.step("RELU", "", x), rest], call.out, "AddOptions")


@writes(ops.HardSigmoid)
@floats_only
def hard_sigmoid(call: TfliteExportCall, op: ops.HardSigmoid) -> None:
    chain = _Chain(call)
    line = chain.step("MUL", "MulOptions", call.operand(0), op.alpha)
    line = chain.step("ADD", "AddOptions", line, op.beta)
    call.emit("RELU_0_TO_1", [line], call.out)


@writes(ops.Reciprocal)
@floats_only
def reciprocal(call: TfliteExportCall, op: ops.Reciprocal) -> None:
    one = call.constant(np.array(1.0), call.operand(0).dtype)
    call.emit("DIV", [one, call.operand(0)], call.out, "DivOptions")


@writes(ops.Modulo)
def modulo(call: TfliteExportCall, op: ops.Modulo) -> None:
    if op.truncated:
        raise call.refuse(
            "a remainder with the sign of the divisor",
            "one with the sign of the dividend",
            "keep the model in its format",
        )
    call.emit("FLOOR_MOD", call.operands, call.out, "FloorModOptions")


@writes(ops.LayerNorm)
def layer_norm(call: TfliteExportCall, op: ops.LayerNorm) -> None:
    x, factor, shift = (*call.operands, None, None)[:3]
    assert x is not None
    rank, chain = len(x.shape), _Chain(call)
    axes, row = call.integers(range(rank - op.axes, rank)), x.shape[rank - op.axes :]
    kept = x.shape[: rank - op.axes] + (1,) * op.axes
    mean, variance = call.like(x, kept), call.like(x, kept)
    call.emit("MEAN", [x, axes], mean, "ReducerOptions", KeepDims=True)
    centered = chain.step("SUB", "SubOptions", x, mean)
    call.emit("MEAN", [chain.step("MUL", "MulOptions", centered, centered), axes], variance,
              "ReducerOptions", KeepDims=True)  # fmt: skip
    root = chain.step("RSQRT", "", chain.step("ADD", "AddOptions", variance, op.epsilon))
    y = chain.step("MUL", "MulOptions", centered, root)
    for code, options, term in (("MUL", "MulOptions", factor), ("ADD", "AddOptions", shift)):
        if term is not None:
            shaped = call.like(term, row)
            call.emit("RESHAPE", [term, call.integers(row)], shaped, "ReshapeOptions")
            y = chain.step(code, options, y, shaped)
    call.emit("RESHAPE", [y, call.integers(x.shape)], call.out, "ReshapeOptions")


@writes(ops.Convert)
def convert(call: TfliteExportCall, op: ops.Convert) -> None:
    x = call.operand(0)
    kinds = {"InDataType": TYPES[x.dtype], "OutDataType": TYPES[op.to]}
    call.emit("CAST", [x], call.out, "CastOptions", **kinds)


@writes(ops.Quantize)
def quantize(call: TfliteExportCall, op: ops.Quantize) -> None:
    """QUANTIZE rounds half away from zero, even if the graph specifies half to even."""
    version = 1 + call.operand(0).is_quantized
    call.emit("QUANTIZE", [call.operand(0)], call.out, "QuantizeOptions", version)


@writes(ops.Cast)
def dequantize(call: TfliteExportCall, op: ops.Cast) -> None:
    x = call.operand(0)
    version = 3 if x.dtype is DType.F16 else 2
    call.emit("DEQUANTIZE", [x], call.out, "DequantizeOptions", version)


def reduction(code: str, of_bool: str = "") -> Row:
    def write(call: TfliteExportCall, op: ops.Total | ops.Mean) -> None:
        x = call.operand(0)
        name = of_bool if of_bool and x.dtype is DType.BOOL else code
        call.emit(name, [x, call.integers(op.axes)], call.out, "ReducerOptions",
                  1 + x.is_quantized, KeepDims=op.keep_dims)  # fmt: skip

    return write


writes(ops.Mean)(reduction("MEAN"))
writes(ops.ReduceMax)(reduction("REDUCE_MAX", "REDUCE_ANY"))
writes(ops.ReduceMin)(reduction("REDUCE_MIN", "REDUCE_ALL"))
writes(ops.ReduceProduct)(reduction("REDUCE_PROD"))
writes(ops.ReduceSum)(reduction("SUM"))


@writes(ops.Softmax)
def softmax(call: TfliteExportCall, op: ops.Softmax) -> None:
    x = call.operand(0)
    call.emit("SOFTMAX", [x], call.out, "SoftmaxOptions", 1 + x.is_quantized, Beta=op.beta)


@writes(ops.SoftmaxMean)
def softmax_mean(call: TfliteExportCall, op: ops.SoftmaxMean) -> None:
    x = call.operand(0)
    shares, weighted = call.like(x), call.like(x)
    call.emit("SOFTMAX", [x], shares, "SoftmaxOptions", Beta=op.beta)
    values = call.constant(np.array(op.values), x.dtype)
    call.emit("MUL", [shares, values], weighted, "MulOptions")
    axis = call.integers([len(x.shape) - 1])
    call.emit("SUM", [weighted, axis], call.out, "ReducerOptions", KeepDims=op.keep_dims)


@writes(ops.ArgExtreme)
def arg_extreme(call: TfliteExportCall, op: ops.ArgExtreme) -> None:
    """The format removes the axis; a reshape restores it."""
    x, out = call.operand(0), call.out
    if op.last:
        raise call.refuse(
            "the first of equal values", "the last one", "keep the model in its format"
        )
    code, options = ("ARG_MIN", "ArgMinOptions") if op.smallest else ("ARG_MAX", "ArgMaxOptions")
    dropped = call.like(out, tuple(d for i, d in enumerate(x.shape) if i != op.axis))
    axis = call.constant(np.array(op.axis), DType.I32)
    kind = tflite.TensorType.INT64
    call.emit(code, [x, axis], dropped, options, 1 + x.is_quantized, OutputType=kind)
    call.emit("RESHAPE", [dropped, call.integers(out.shape)], out, "ReshapeOptions")


@writes(ops.TopK)
def top_k(call: TfliteExportCall, op: ops.TopK) -> None:
    values, places = call.outs
    if op.smallest:
        raise call.refuse("the largest values", "the smallest", "keep the model in its format")
    found = places if op.index is DType.I32 else call.like(places, dtype=DType.I32)
    k = call.constant(np.array(op.k), DType.I32)
    call.emit("TOPK_V2", [call.operand(0), k], [values, found], "TopKV2Options")
    if found is not places:
        kinds = {"InDataType": TYPES[DType.I32], "OutDataType": TYPES[places.dtype]}
        call.emit("CAST", [found], places, "CastOptions", **kinds)


class _Chain:
    """Emits a chain of operators with temporary tensors in between."""

    def __init__(self, call: TfliteExportCall) -> None:
        self._call = call

    def step(
        self, code: str, options: str, x: Tensor, other: Tensor | float | None = None
    ) -> Tensor:
        """Emits `code` on `x` and a tensor or number, if given; the shape is that of `x`."""
        ins = [x]
        if isinstance(other, Tensor):
            ins.append(other)
        elif other is not None:
            ins.append(self._call.constant(np.array(other), x.dtype))
        made = self._call.like(x)
        self._call.emit(code, ins, made, options)
        return made
