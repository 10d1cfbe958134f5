"""Recognizes dynamic quantization as written by ONNX Runtime's tools and fuses it.

    x ─ DynamicQuantizeLinear ─ MatMulInteger ─ Cast ─ Mul ─ [Add]     Mul(scale of x, of weights)

becomes DynamicQuantizeMatMul, which ONNX Runtime fuses as well, and that becomes an 8-bit fully
connected layer if the weights are a constant 8-bit matrix. ConvInteger with one group instead of
MatMulInteger becomes an 8-bit convolution; ONNX Runtime has no such operator. If several products
read the same quantized x, ONNX Runtime's optimizer writes MatMulIntegerToFloat for everything after
DynamicQuantizeLinear.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.conv import as_image, padding_of, pair, sliding
from edgekit.host.compiler.frontends.onnx.file import FileGraph, FileNode, OnnxFile
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Quant, ShapeError, Tensor

FUSED = "com.microsoft:DynamicQuantizeMatMul"
FUSED_CONV = "edgekit:DynamicConv"  # internal: (x, weights, scale, zero points, bias)
_PRODUCTS = ("MatMulInteger", "ConvInteger")
_WITH_SCALES = "com.microsoft:MatMulIntegerToFloat"
_FLOAT = 1  # ONNX's number for f32
_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))


def fuse_dynamic(model: OnnxFile) -> OnnxFile:
    """The model with each dynamically quantized product fused into one operator."""
    if FUSED in model.functions or not any(n.op in (*_PRODUCTS, _WITH_SCALES) for n in model.nodes):
        return model
    finder = _Finder(model)
    fused: dict[int, FileNode | None] = {}
    for node in model.nodes:
        if node.op in _PRODUCTS:
            fused |= finder.fused(node)
        elif node.op == _WITH_SCALES and (made := finder.with_scales(node)) is not None:
            fused[node.index] = made
    nodes = [fused.get(n.index, n) for n in model.nodes]
    return replace(model, nodes=tuple(n for n in nodes if n is not None))


class _Finder:
    """Producers and consumers of tensors, except inside subgraphs."""

    def __init__(self, model: OnnxFile) -> None:
        self._constants = model.constants
        self._maker = {name: n for n in model.nodes for name in n.outputs if name}
        self._users: dict[str, list[FileNode]] = {}
        for node in model.nodes:
            for name in node.inputs:
                self._users.setdefault(name, []).append(node)
        self._kept = {*model.outputs, *_names_inside(model.nodes)}

    def fused(self, product: FileNode) -> dict[int, FileNode | None]:
        """Replacements of nodes by index, None for removed nodes; empty if nothing matches."""
        x = self._find_quantizer(product)
        cast = self._only_user(product, "Cast")
        if x is None or cast is None or cast.attributes.get("to") != _FLOAT:
            return {}
        last = self._only_user(cast, "Mul")
        scale = (
            None
            if last is None
            else self._weight_scale_name(x, _other_operand(last, cast.outputs[0]))
        )
        layout = _weight_layout(product, self._constants[product.inputs[1]])
        if last is None or scale is None or not layout.takes(self._constants[scale]):
            return {}
        gone: dict[int, FileNode | None] = {n.index: None for n in (product, cast, last)}
        bias = ""
        add = self._only_user(last, "Add")
        if add is not None:
            other = self._of_channels(_other_operand(add, last.outputs[0]), layout)
            if other:
                bias, last = other, add
        zero = product.inputs[3] if len(product.inputs) > 3 else ""
        inputs = (x.inputs[0], product.inputs[1], scale, zero, bias)
        # Messages refer to the product.
        made = replace(product, op=layout.op, inputs=inputs, outputs=last.outputs)
        return {**gone, last.index: made}

    def with_scales(self, product: FileNode) -> FileNode | None:
        """The replacement of MatMulIntegerToFloat, or None."""
        a, b, a_scale, scale, a_zero, zero, bias = (*product.inputs, *[""] * 7)[:7]
        x, weights = self._maker.get(a), self._constants.get(b)
        if x is None or not _is_dynamic_quantize(x) or x.outputs != (a, a_scale, a_zero):
            return None
        if weights is None or weights.ndim != 2 or scale not in self._constants:
            return None
        return replace(product, op=FUSED, inputs=(x.inputs[0], b, scale, zero, bias))

    def _of_channels(self, name: str, layout: _Layout) -> str:
        """The per-channel constant that `name` is, directly or reshaped; "" if none."""
        value = self._constants.get(name)
        if value is not None:
            return name if value.shape in layout.shapes else ""
        made = self._maker.get(name)
        if made is None or made.op != "Reshape" or len(made.inputs) < 2 or layout.op == FUSED:
            return ""
        source, shape = (self._constants.get(each) for each in made.inputs[:2])
        fits = source is not None and source.shape == (layout.channels,) and shape is not None
        # ORT's tools write [1, -1, 1, 1].
        wanted = {tuple(-1 if s == layout.channels else s for s in each) for each in layout.shapes}
        given = () if shape is None else tuple(int(s) for s in shape.reshape(-1))
        return made.inputs[0] if fits and given in {*wanted, *layout.shapes} else ""

    def _find_quantizer(self, product: FileNode) -> FileNode | None:
        """The node that quantizes the first operand, if the second operand is supported."""
        made = self._maker.get(product.inputs[0]) if len(product.inputs) > 2 else None
        if made is None or not _is_dynamic_quantize(made):
            return None
        if (product.inputs[0], product.inputs[2:3]) != (made.outputs[0], made.outputs[2:]):
            return None
        return made if self._has_supported_weights(product) else None

    def _has_supported_weights(self, product: FileNode) -> bool:
        """Whether the second operand is a constant 8-bit tensor that the operator supports."""
        weights = self._constants.get(product.inputs[1])
        if weights is None or weights.dtype not in _BYTES or not weights.size:
            return False
        ranks = (2,) if product.op == "MatMulInteger" else (3, 4)
        if weights.ndim not in ranks or product.attributes.get("group", 1) != 1:
            return False
        if product.op == "ConvInteger" and _may_skip_pixels(product, weights):
            return False
        zero = product.inputs[3] if len(product.inputs) > 3 else ""
        points = self._constants.get(zero) if zero else np.zeros(1, np.int64)
        channels = _weight_layout(product, weights).channels
        return points is not None and points.ndim < 2 and points.size in (1, channels)

    def _weight_scale_name(self, x: FileNode, factor: str) -> str | None:
        """The name of the constant weight scale in the scale of a product."""
        made = self._maker.get(factor)
        if made is None or made.op != "Mul" or x.outputs[1] not in made.inputs:
            return None
        scale = _other_operand(made, x.outputs[1])
        found = self._constants.get(scale)
        if found is None or found.dtype != np.float32 or not np.isfinite(found).all():
            return None
        return scale if (found > 0).all() else None

    def _only_user(self, node: FileNode, op: str) -> FileNode | None:
        users = self._users.get(node.outputs[0], []) if node.outputs else []
        if len(users) != 1 or users[0].op != op or node.outputs[0] in self._kept:
            return None
        return users[0]


@dataclass(frozen=True)
class _Layout:
    """The channels of a product's output. `shapes`: allowed shapes of a per-channel constant; `op`:
    the operator the product becomes."""

    op: str
    channels: int
    shapes: tuple[tuple[int, ...], ...]

    def takes(self, scale: Array) -> bool:
        """Whether `scale` is per tensor or per channel."""
        return scale.size == 1 or scale.shape in self.shapes


def _weight_layout(product: FileNode, weights: Array) -> _Layout:
    if product.op == "MatMulInteger":
        return _Layout(FUSED, weights.shape[1], ((weights.shape[1],),))
    channels, ones = weights.shape[0], (1,) * (weights.ndim - 2)
    return _Layout(FUSED_CONV, channels, ((channels, *ones), (1, channels, *ones)))


def _may_skip_pixels(product: FileNode, weights: Array) -> bool:
    """Whether automatic padding may move the windows into the image: DynamicConv2D would take the
    range from the pixels that are left."""
    if product.attributes.get("auto_pad") not in ("SAME_UPPER", "SAME_LOWER"):
        return False
    strides = product.attributes.get("strides")
    return isinstance(strides, tuple) and any(
        isinstance(stride, int) and stride > size
        for stride, size in zip(strides, weights.shape[2:], strict=False)
    )


def _is_dynamic_quantize(node: FileNode) -> bool:
    return node.op == "DynamicQuantizeLinear" and (len(node.inputs), len(node.outputs)) == (1, 3)


def _other_operand(node: FileNode, name: str) -> str:
    """The other operand of two; "" if there are not two."""
    if len(node.inputs) != 2:
        return ""
    return node.inputs[1] if node.inputs[0] == name else node.inputs[0]


def _names_inside(nodes: Sequence[FileNode]) -> Iterator[str]:
    """All names that subgraphs read."""
    for node in nodes:
        for value in node.attributes.values():
            if isinstance(value, FileGraph):
                yield from itertools.chain(
                    value.outputs, *(n.inputs for n in value.nodes), _names_inside(value.nodes)
                )


def dynamic_layer(
    call: OnnxCall, x: Tensor, w: Tensor, scale: Tensor, zero: Tensor | None, bias: Tensor | None
) -> Tensor | None:
    """x (f32) times w [k, n] as an 8-bit layer; None if the operator does not apply."""
    weights = _quantized_matrix(call, w, scale, zero)
    if weights is None or x.dtype is not DType.F32 or not x.shape or x.elements == 0:
        return None
    fits = bias is not None and bias.data is not None and bias.shape == (w.shape[1],)
    rows = call.reshape(x, (1, *x.shape)) if len(x.shape) == 1 else x
    y = call.emit(ops.DynamicFullyConnected(), rows, weights, bias if fits else None)
    y = call.reshape(y, (*x.shape[:-1], w.shape[1]))
    return y if bias is None or fits else call.emit(ops.Add(), y, bias)


def _quantized_matrix(
    call: OnnxCall, w: Tensor, scale: Tensor, zero: Tensor | None
) -> Tensor | None:
    """w as an 8-bit matrix [n, k] with its quantization."""
    if w.data is None or len(w.shape) != 2 or w.dtype not in (DType.I8, DType.U8) or not w.elements:
        return None
    n, factors = w.shape[1], scale.data
    if factors is None or factors.size not in (1, n) or not np.isfinite(factors).all():
        return None
    points = np.zeros(1, np.int64)
    if zero is not None:
        if zero.data is None or zero.data.size not in (1, n):
            return None
        points = zero.data.reshape(-1).astype(np.int64)
    if (factors <= 0).any():
        return None
    quantized, points = _in_bytes(w.data.T, points)
    count = max(factors.size, points.size)
    scales = np.broadcast_to(factors.reshape(-1).astype(np.float32), (count,))
    quant = Quant(scales, np.broadcast_to(points, (count,)))
    names = ("dynamic", w.name, scale.name, None if zero is None else zero.name)
    return call.builder.once(
        names, lambda: [call.builder.with_quant(call.constant(quantized), quant)]
    )[0]


def dynamic_conv(call: OnnxCall) -> Tensor:
    """f32 x [n, c, h, w] or [n, c, w] with 8-bit weights, as matched by `fuse_dynamic`."""
    x, w, zero, bias = call.x(0), call.value(1, "weights"), call.maybe(3), call.maybe(4)
    need_rank(x, w.ndim)
    window = call.list("kernel_shape", w.shape[2:])
    if x.dtype is not DType.F32 or window != w.shape[2:]:
        raise ShapeError(
            f"expected f32 and a window of {list(w.shape[2:])}, found {x.dtype.value} and "
            f"{list(window)}"
        )
    s = sliding(call, x.shape[2:], window, False)
    points = np.zeros(1, np.int64) if zero is None else call.value(3, "zero point").reshape(-1)
    kernel = w if w.ndim == 4 else w[:, :, None, :]
    quantized, points = _in_bytes(kernel.reshape(len(w), -1), points.astype(np.int64))
    quantized = quantized.reshape(kernel.shape).transpose(0, 2, 3, 1)
    scale = call.value(2, "scale").reshape(-1).astype(np.float32)
    if {scale.size, points.size} - {1, len(w)} or not (scale > 0).all():
        raise ShapeError(
            f"expected one positive scale and zero point, or {len(w)}, found {scale.size} and "
            f"{points.size}"
        )
    count = max(scale.size, points.size)
    quant = Quant(np.broadcast_to(scale, (count,)), np.broadcast_to(points, (count,)))
    weights = call.builder.with_quant(call.constant(np.ascontiguousarray(quantized)), quant)
    terms = None if bias is None else call.constant(call.value(4, "bias").reshape(-1))
    op = ops.DynamicConv2D(pair(s.stride, 1), pair(s.dilation, 1), padding_of(s))
    y = call.nchw(call.emit(op, call.nhwc(as_image(call, x)), weights, terms))
    return y if w.ndim == 4 else call.reshape(y, (*y.shape[:2], y.shape[3]))


def _in_bytes(quantized: Array, points: Array) -> tuple[Array, Array]:
    """Quantized values [n, k] with zero point 0 in s8 if all of them fit, else unchanged."""
    real = quantized.astype(np.int64) - points[:, None]
    if real.min() >= -128 and real.max() <= 127:
        return real.astype(np.int8), np.zeros(1, np.int64)
    return quantized, points
