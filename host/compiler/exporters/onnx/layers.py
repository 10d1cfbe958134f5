"""ONNX export of convolutions, matrix products and pools."""

from __future__ import annotations

from typing import Any

from edgekit.host.compiler.exporters.onnx.sink import TO_IMAGE, OnnxExportCall, writes
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Padding
from edgekit.host.compiler.ir.windows import image_size

_DEPTH_FIRST = (3, 0, 1, 2)  # weight order of depthwise and transposed convolutions

Convolution = ops.Conv2D | ops.DepthwiseConv2D | ops.TransposeConv2D


@writes(ops.Conv2D)
def conv_2d(call: OnnxExportCall, op: ops.Conv2D) -> None:
    _emit_convolution(call, "Conv", op, TO_IMAGE, dilations=op.dilation, group=1)


@writes(ops.DepthwiseConv2D)
def depthwise_conv_2d(call: OnnxExportCall, op: ops.DepthwiseConv2D) -> None:
    groups = call.operand(0).shape[3]
    _emit_convolution(call, "Conv", op, _DEPTH_FIRST, dilations=op.dilation, group=groups)


@writes(ops.TransposeConv2D)
def transpose_conv(call: OnnxExportCall, op: ops.TransposeConv2D) -> None:
    """The stride leaves the output size ambiguous; `output_padding` resolves it."""
    x, w, pad = call.operand(0), call.operand(1), op.padding
    cut = (pad.top + pad.bottom, pad.left + pad.right)
    rest = [
        size - ((n - 1) * s + k - c)
        for size, n, s, k, c in zip(
            op.out_size, image_size(x.shape), op.stride, image_size(w.shape), cut, strict=True
        )
    ]
    _emit_convolution(call, "ConvTranspose", op, _DEPTH_FIRST, output_padding=rest)


def _emit_convolution(
    call: OnnxExportCall, kind: str, op: Convolution, order: tuple[int, ...], **attributes: Any
) -> None:
    _need_plain(call, op)
    x, w = call.operand(0), call.operand(1)
    ins = [call.sink.get(x, True), call.weights(w, order), *_bias_inputs(call)]
    attributes |= {"strides": op.stride, "pads": pads(op.padding)}
    attributes["kernel_shape"] = image_size(w.shape)
    y = call.activated(call.step(kind, ins, **attributes), op.activation)
    call.sink.put(call.out, y, True)


@writes(ops.FullyConnected)
def fully_connected(call: OnnxExportCall, op: ops.FullyConnected) -> None:
    """Gemm on 2-D rows; MatMul and Add if the leading axes are kept."""
    _need_plain(call, op)
    x, w, sink = call.operand(0), call.operand(1), call.sink
    rows, bias = sink.get(x), _bias_inputs(call)
    if op.keep_dims and len(x.shape) != 2:
        y = call.step("MatMul", [rows, call.weights(w, (1, 0))])
        y = call.step("Add", [y, *bias]) if bias else y
    else:
        if len(x.shape) != 2:
            rows = call.step("Reshape", [rows, call.integers((-1, w.shape[1]))])
        y = call.step("Gemm", [rows, call.weights(w, (0, 1)), *bias], transB=1)
    sink.put(call.out, call.activated(y, op.activation))


@writes(ops.MatMul)
def matmul(call: OnnxExportCall, op: ops.MatMul) -> None:
    call.sink.put(call.out, call.step("MatMul", call.inputs(False)))


@writes(ops.MaxPool2D)
def max_pool(call: OnnxExportCall, op: ops.MaxPool2D) -> None:
    """Without an activation, quantized values are compared directly."""
    stored = op.activation is Activation.NONE
    _emit_pool(call, "MaxPool", op, not stored)


@writes(ops.AveragePool2D)
def average_pool(call: OnnxExportCall, op: ops.AveragePool2D) -> None:
    _emit_pool(call, "AveragePool", op, True, count_include_pad=0)


def _emit_pool(
    call: OnnxExportCall,
    kind: str,
    op: ops.MaxPool2D | ops.AveragePool2D,
    real: bool,
    **attributes: Any,
) -> None:
    x = call.sink.get(call.operand(0), True, real)
    attributes |= {"kernel_shape": op.window, "strides": op.stride, "pads": pads(op.padding)}
    y = call.activated(call.step(kind, [x], **attributes), op.activation)
    call.sink.put(call.out, y, True, real)


def pads(padding: Padding) -> tuple[int, ...]:
    return padding.top, padding.left, padding.bottom, padding.right


def _bias_inputs(call: OnnxExportCall) -> list[str]:
    ins = call.operands
    bias = ins[2] if len(ins) > 2 else None
    return [] if bias is None else [call.bias(call.operand(0), call.operand(1), bias)]


def _need_plain(call: OnnxExportCall, op: ops.Weighted) -> None:
    """Refuses layers that compiler passes have fused."""
    if op.epilogue is not None or len(call.operands) > 3:
        raise call.refuse(
            "a layer with at most an activation",
            "one with a fused operator",
            "write the graph from before the fusion passes",
        )
