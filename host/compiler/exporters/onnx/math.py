"""ONNX export of element-wise operators, reductions and type conversions."""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.exporters.onnx.sink import TO_IMAGE, OnnxExportCall, Row, writes
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, DType, Operator


def by_name(call: OnnxExportCall, op: Operator) -> None:
    """The ONNX operator of the same meaning; the op's parameters become attributes."""
    image = call.image
    is_function = isinstance(op, ops.Function)
    known = {name: float(value) for name, value in vars(op).items()} if is_function else {}
    made = call.step(op.onnx, call.inputs(image), **known)
    activation = getattr(op, "activation", Activation.NONE)
    call.sink.put(call.out, call.activated(made, activation), image)


def composed(*kinds: str) -> Row:
    """A chain of ONNX operators; all but the first take one operand."""

    def write(call: OnnxExportCall, op: Operator) -> None:
        image = call.image
        (y, *others) = call.inputs(image)
        for i, kind in enumerate(kinds):
            y = call.step(kind, [y, *others] if i == 0 else [y])
        call.sink.put(call.out, y, image)

    return write


writes(ops.Rsqrt)(composed("Sqrt", "Reciprocal"))


@writes(ops.Clamp)
def clamp(call: OnnxExportCall, op: ops.Clamp) -> None:
    image = call.image
    x = call.inputs(image)[0]
    call.sink.put(call.out, call.activated(x, op.activation), image)


@writes(ops.Clip)
def clip(call: OnnxExportCall, op: ops.Clip) -> None:
    image, x = call.image, call.operand(0)
    low = "" if op.low == -math.inf else call.number(op.low, x)
    high = "" if op.high == math.inf else call.number(op.high, x)
    call.sink.put(call.out, call.step("Clip", [*call.inputs(image), low, high]), image)


@writes(ops.Elu)
def elu(call: OnnxExportCall, op: ops.Elu) -> None:
    image = call.image
    y = call.step("Elu", call.inputs(image), alpha=float(op.alpha))
    if op.scale != 1.0:
        y = call.step("Mul", [y, call.number(op.scale, call.operand(0))])
    call.sink.put(call.out, y, image)


@writes(ops.Gelu)
def gelu(call: OnnxExportCall, op: ops.Gelu) -> None:
    """x / 2 · (1 + erf(x / √2))"""
    x, image = call.operand(0), call.image
    (source,) = call.inputs(image)
    inner = call.step("Erf", [call.step("Mul", [source, call.number(math.sqrt(0.5), x)])])
    _emit_gelu_gate(call, source, inner, image)


@writes(ops.GeluTanh)
def gelu_tanh(call: OnnxExportCall, op: ops.GeluTanh) -> None:
    """x / 2 · (1 + tanh(√(2 / π) · x · (1 + 0.044715 x²)))"""
    x, image = call.operand(0), call.image
    (source,) = call.inputs(image)
    square = call.step("Mul", [source, source])
    rise = call.step("Mul", [square, call.number(0.044715, x)])
    line = call.step("Mul", [source, call.number(math.sqrt(2 / math.pi), x)])
    inner = call.step("Mul", [line, call.step("Add", [rise, call.number(1.0, x)])])
    _emit_gelu_gate(call, source, call.step("Tanh", [inner]), image)


def _emit_gelu_gate(call: OnnxExportCall, source: str, inner: str, image: bool) -> None:
    x = call.operand(0)
    gate = call.step("Add", [inner, call.number(1.0, x)])
    half = call.step("Mul", [source, call.number(0.5, x)])
    call.sink.put(call.out, call.step("Mul", [half, gate]), image)


@writes(ops.Silu)
def silu(call: OnnxExportCall, op: ops.Silu) -> None:
    image = call.image
    (source,) = call.inputs(image)
    inner = source
    if op.alpha != 1.0:
        inner = call.step("Mul", [source, call.number(op.alpha, call.operand(0))])
    call.sink.put(call.out, call.step("Mul", [source, call.step("Sigmoid", [inner])]), image)


@writes(ops.SquaredDifference)
def squared_difference(call: OnnxExportCall, op: ops.SquaredDifference) -> None:
    image = call.image
    difference = call.step("Sub", call.inputs(image))
    call.sink.put(call.out, call.step("Mul", [difference, difference]), image)


@writes(ops.Modulo)
def modulo(call: OnnxExportCall, op: ops.Modulo) -> None:
    """ONNX Mod on floats only has the truncated remainder, so the floored one is composed."""
    image = call.image
    a, b = call.inputs(image)
    if not call.operand(0).dtype.is_float or op.truncated:
        y = call.step("Mod", [a, b], fmod=int(op.truncated))
    else:
        whole = call.step("Floor", [call.step("Div", [a, b])])
        y = call.step("Sub", [a, call.step("Mul", [whole, b])])
    call.sink.put(call.out, y, image)


@writes(ops.FloorDiv)
def floor_div(call: OnnxExportCall, op: ops.FloorDiv) -> None:
    x = call.operand(0)
    if not x.dtype.is_float:
        raise call.refuse("operands of f32", x.dtype.value, "convert them to f32")
    composed("Div", "Floor")(call, op)


@writes(ops.Convert)
def convert(call: OnnxExportCall, op: ops.Convert) -> None:
    """If the op saturates, floats are first clamped to the integer range; the upper bound is the
    largest f32 inside it."""
    x, image = call.operand(0), call.image
    name = call.inputs(image, real=False)[0]
    if op.saturate:
        ends = np.iinfo(op.to.numpy)
        high = np.nextafter(np.float32(float(ends.max) + 1), np.float32(0))
        bounds = [call.number(float(ends.min), x), call.number(float(high), x)]
        name = call.step("Clip", [name, *bounds])
    call.sink.put(call.out, call.step("Cast", [name], to=op.to), image)


@writes(ops.Quantize)
def quantize(call: OnnxExportCall, op: ops.Quantize) -> None:
    """QuantizeLinear rounds half to even, even if the graph specifies half away from zero."""
    image = call.image
    call.sink.put(call.out, call.inputs(image)[0], image)


@writes(ops.Softmax)
def softmax(call: OnnxExportCall, op: ops.Softmax) -> None:
    x = call.operand(0)
    name = call.sink.get(x)
    if op.beta != 1.0:
        name = call.step("Mul", [name, call.number(op.beta, x)])
    call.sink.put(call.out, call.step("Softmax", [name], axis=-1))


@writes(ops.SoftmaxMean)
def softmax_mean(call: OnnxExportCall, op: ops.SoftmaxMean) -> None:
    x, sink = call.operand(0), call.sink
    name = sink.get(x)
    if op.beta != 1.0:
        name = call.step("Mul", [name, call.number(op.beta, x)])
    values = sink.constant(np.array(op.values, x.dtype.numpy))
    weighted = call.step("Mul", [call.step("Softmax", [name], axis=-1), values])
    axis = call.integers([len(x.shape) - 1])
    sink.put(call.out, call.step("ReduceSum", [weighted, axis], keepdims=int(op.keep_dims)))


@writes(ops.UnitLength)
def unit_length(call: OnnxExportCall, op: ops.UnitLength) -> None:
    name = call.sink.get(call.operand(0))
    call.sink.put(call.out, call.step("LpNormalization", [name], axis=-1, p=2))


@writes(ops.LayerNorm)
def layer_norm(call: OnnxExportCall, op: ops.LayerNorm) -> None:
    """ONNX requires scale and bias in the shape of the normalized axes."""
    x, sink = call.operand(0), call.sink
    row = x.shape[len(x.shape) - op.axes :]
    terms = [*call.operands[1:3], None, None][:2]
    ins = [sink.get(x), sink.constant(np.ones(row, x.dtype.numpy))]
    for i, term in enumerate(terms):
        if term is not None:
            name = call.step("Reshape", [sink.get(term), call.integers(row)])
            ins = [ins[0], name] if i == 0 else [*ins, name]
    y = call.step("LayerNormalization", ins, axis=-op.axes, epsilon=float(op.epsilon))
    sink.put(call.out, y)


def reduction(kind: str) -> Row:
    """Axes are an attribute except for ReduceSum (an input); bool is reduced as s32."""

    def write(call: OnnxExportCall, op: ops.Total | ops.Mean) -> None:
        x, sink = call.operand(0), call.sink
        inside = (1, 2)
        image = call.image if op.keep_dims else not sink.has_own(x) and op.axes == inside
        axes = [TO_IMAGE.index(a) for a in op.axes] if image else op.axes
        name, flag = sink.get(x, image), x.dtype is DType.BOOL
        name = call.step("Cast", [name], to=DType.I32) if flag else name
        if not op.axes:
            y = call.step("Identity", [name])
        elif kind == "ReduceSum":
            y = call.step(kind, [name, call.integers(axes)], keepdims=int(op.keep_dims))
        else:
            y = call.step(kind, [name], axes=axes, keepdims=int(op.keep_dims))
        y = call.step("Cast", [y], to=DType.BOOL) if flag else y
        sink.put(call.out, y, image and op.keep_dims)

    return write


writes(ops.Mean)(reduction("ReduceMean"))
writes(ops.ReduceMax)(reduction("ReduceMax"))
writes(ops.ReduceMin)(reduction("ReduceMin"))
writes(ops.ReduceProduct)(reduction("ReduceProd"))
writes(ops.ReduceSum)(reduction("ReduceSum"))


@writes(ops.ArgExtreme)
def arg_extreme(call: OnnxExportCall, op: ops.ArgExtreme) -> None:
    kind = "ArgMin" if op.smallest else "ArgMax"
    name = call.sink.get(call.operand(0), real=False)
    known = {"axis": op.axis, "keepdims": 1, "select_last_index": int(op.last)}
    call.sink.put(call.out, call.step(kind, [name], **known))


@writes(ops.TopK)
def top_k(call: OnnxExportCall, op: ops.TopK) -> None:
    x, (values, places) = call.operand(0), call.outs
    ins = [call.sink.get(x), call.integers((op.k,))]
    made = call.sink.steps("TopK", ins, 2, axis=-1, largest=int(not op.smallest))
    call.sink.put(values, made[0])
    found = made[1] if op.index is DType.I64 else call.step("Cast", [made[1]], to=op.index)
    call.sink.put(places, found)
