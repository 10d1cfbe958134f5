"""One row per TensorFlow Lite operator: how its options and inputs become an `Operator`."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass

from edgekit.host.graph import ops
from edgekit.host.graph.types import Activation, DType, Operator, Padding, ShapeError
from edgekit.host.graph.windows import Pair, span
from edgekit.host.importers.tflite_call import Call

_CUSTOM_SAME, _CUSTOM_VALID = 1, 2
_TRANSPOSE_BIAS = "CUSTOM:Convolution2DTransposeBias"


@dataclass(frozen=True)
class Row:
    """`inputs`: which of the file's inputs the node reads (None: all, in order); the others
    are axes and sizes that `build` reads. `options`: the schema's type of the options."""

    build: Callable[[Call], Operator]
    inputs: tuple[int, ...] | None = None
    options: str = "NONE"


def _image(call: Call, index: int) -> Pair:
    shape = call.tensor(index, "image").shape
    if len(shape) != 4:
        raise ShapeError(f"expected an image of rank 4, found shape {list(shape)}")
    return shape[1], shape[2]


def _window(call: Call) -> Pair:
    shape = call.tensor(1, "weights").shape
    if len(shape) != 4:
        raise ShapeError(f"expected weights of rank 4, found shape {list(shape)}")
    return shape[1], shape[2]


def _conv_2d(call: Call) -> Operator:
    stride, dilation = call.stride(), call.dilation()
    padding = call.padding(_image(call, 0), span(_window(call), dilation), stride)
    return ops.Conv2D(stride, dilation, padding, call.activation())


def _depthwise_conv_2d(call: Call) -> Operator:
    stride, dilation = call.stride(), call.dilation()
    padding = call.padding(_image(call, 0), span(_window(call), dilation), stride)
    channels = call.tensor(0, "image").shape[3]
    # The option of the same name is redundant, and wrong in some files: TFLite ignores it.
    multiplier = call.tensor(1, "weights").shape[3] // max(channels, 1)
    return ops.DepthwiseConv2D(stride, dilation, padding, multiplier, call.activation())


def _transpose_conv(call: Call) -> Operator:
    size = call.integers(0, "output shape")
    if len(size) != 4:
        raise ShapeError(f"expected an output shape of 4 dimensions, found {list(size)}")
    stride = call.stride()
    padding = call.padding((size[1], size[2]), _window(call), stride)
    return ops.TransposeConv2D(stride, padding, (size[1], size[2]), call.activation())


def _transpose_conv_bias(call: Call) -> Operator:
    """MediaPipe's operator; its options are three s32: padding (1 SAME, 2 VALID) and strides."""
    if len(call.operator.custom_options) != 12:
        raise ShapeError(f"expected 12 bytes of options, found {len(call.operator.custom_options)}")
    kind, height, width = struct.unpack("<3i", call.operator.custom_options)
    if height < 1 or width < 1:
        raise ShapeError(f"expected a stride of at least 1, found {height}x{width}")
    if kind not in (_CUSTOM_SAME, _CUSTOM_VALID):
        raise ShapeError(f"expected padding SAME or VALID, found number {kind}")
    stride, size, window = (height, width), _image(call, 0), _window(call)
    borders: list[int] = []
    out: list[int] = []
    for pixels, taps, step in zip(size, window, stride, strict=True):
        # MediaPipe's own rule for SAME: not the one of TRANSPOSE_CONV for odd images.
        cut = max(taps - (pixels - 1) % step - 1, 0) if kind == _CUSTOM_SAME else 0
        borders += [cut // 2, cut - cut // 2]
        out.append((pixels - 1) * step + taps - cut)
    return ops.TransposeConv2D(stride, Padding(*borders), (out[0], out[1]))


def _fully_connected(call: Call) -> Operator:
    if call.option("WeightsFormat") != 0:
        raise ShapeError("expected weights in the default format, found shuffled ones")
    if (
        call.option("AsymmetricQuantizeInputs")
        and call.tensor(1, "weights").dtype is DType.I8
        and (call.tensor(0, "input").dtype is DType.F32)
    ):
        raise ShapeError("expected symmetric dynamic-range quantization, found asymmetric")
    return ops.FullyConnected(bool(call.option("KeepNumDims")), call.activation())


def _average_pool(call: Call) -> Operator:
    window, stride = _pool_window(call), call.stride()
    padding = call.padding(_image(call, 0), window, stride)
    return ops.AveragePool2D(window, stride, padding, call.activation())


def _max_pool(call: Call) -> Operator:
    window, stride = _pool_window(call), call.stride()
    padding = call.padding(_image(call, 0), window, stride)
    return ops.MaxPool2D(window, stride, padding, call.activation())


def _pool_window(call: Call) -> Pair:
    height, width = call.option("FilterHeight"), call.option("FilterWidth")
    if height < 1 or width < 1:
        raise ShapeError(f"expected a window of at least 1, found {height}x{width}")
    return height, width


def _add(call: Call) -> Operator:
    return ops.Add(call.activation())


def _mul(call: Call) -> Operator:
    return ops.Mul(call.activation())


def _concatenation(call: Call) -> Operator:
    if call.activation() is not Activation.NONE:
        raise ShapeError("expected no fused activation, found one")
    rank = len(call.tensor(0, "operand").shape)
    return ops.Concat(call.axis(call.option("Axis"), rank))


def _pack(call: Call) -> Operator:
    rank = len(call.tensor(0, "operand").shape)
    return ops.Pack(call.axis(call.option("Axis"), rank + 1))


def _split(call: Call) -> Operator:
    shape = call.tensor(1, "input").shape
    axis = call.axis(call.integer(0, "axis"), len(shape))
    parts = len(call.operator.outputs)
    if parts == 0 or shape[axis] % parts:
        raise ShapeError(f"expected {shape[axis]} to split into {parts} equal parts")
    return ops.Split(axis, (shape[axis] // parts,) * parts)


def _split_v(call: Call) -> Operator:
    shape = call.tensor(0, "input").shape
    axis = call.axis(call.integer(2, "axis"), len(shape))
    sizes = list(call.integers(1, "part sizes"))
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = shape[axis] - sum(sizes) - 1
    return ops.Split(axis, tuple(sizes))


def _reshape(call: Call) -> Operator:
    wanted = call.operator.option_vector("NewShape")
    if len(call.tensors) > 1 and call.tensors[1] is not None:
        wanted = call.integers(1, "new shape")
    if wanted is None:
        raise ShapeError("expected a new shape, found none")
    shape = list(wanted)
    if shape.count(-1) == 1:
        rest = -math.prod(shape)
        total = math.prod(call.tensor(0, "input").shape)
        shape[shape.index(-1)] = total // rest if rest > 0 else -1
    return ops.Reshape(tuple(shape))


def _squeeze(call: Call) -> Operator:
    shape = call.tensor(0, "input").shape
    axes = [call.axis(a, len(shape)) for a in call.operator.option_vector("SqueezeDims") or ()]
    axes = axes or [i for i, d in enumerate(shape) if d == 1]
    if any(shape[a] != 1 for a in axes):
        raise ShapeError(f"expected axes {axes} of size 1, found {list(shape)}")
    return ops.Reshape(tuple(d for i, d in enumerate(shape) if i not in axes))


def _expand_dims(call: Call) -> Operator:
    shape = call.tensor(0, "input").shape
    axis = call.axis(call.integer(1, "axis"), len(shape) + 1)
    return ops.Reshape((*shape[:axis], 1, *shape[axis:]))


def _transpose(call: Call) -> Operator:
    rank = len(call.tensor(0, "input").shape)
    return ops.Transpose(tuple(call.axis(p, rank) for p in call.integers(1, "permutation")))


def _pad(call: Call) -> Operator:
    rows = call.rows(1, "paddings", len(call.tensor(0, "input").shape))
    return ops.Pad(tuple(rows[:, 0].tolist()), tuple(rows[:, 1].tolist()))


def _strided_slice(call: Call) -> Operator:
    for name in ("EllipsisMask", "NewAxisMask"):
        if call.option(name):
            raise ShapeError(f"expected no {name}, found {call.option(name)}")
    shape = call.tensor(0, "input").shape
    begins, ends = call.integers(1, "begin"), call.integers(2, "end")
    strides = call.integers(3, "strides")
    if not len(begins) == len(ends) == len(strides) == len(shape):
        raise ShapeError(f"expected begin, end and strides for {len(shape)} dimensions")
    begin_mask, end_mask = call.option("BeginMask"), call.option("EndMask")
    shrink = call.option("ShrinkAxisMask")
    begin, extent, out, steps = [], [], [], []
    for i, size in enumerate(shape):
        step = strides[i]
        if step == 0:
            raise ShapeError("expected strides other than 0, found 0")
        first = None if begin_mask >> i & 1 else begins[i]
        last = None if end_mask >> i & 1 else ends[i]
        if shrink >> i & 1:
            first = begins[i] + size if begins[i] < 0 else begins[i]
            last, step = first + 1, 1
        elif call.option("Offset") and first is not None and last is not None:
            last += first
        picked = range(size)[slice(first, last, step)]
        begin.append(picked.start)
        steps.append(step)
        extent.append(len(picked))
        if not shrink >> i & 1:
            out.append(len(picked))
    return ops.StridedSlice(tuple(begin), tuple(steps), tuple(extent), tuple(out))


def _slice(call: Call) -> Operator:
    shape = call.tensor(0, "input").shape
    begin, sizes = call.integers(1, "begin"), call.integers(2, "size")
    if not len(begin) == len(sizes) == len(shape):
        raise ShapeError(f"expected begin and size for {len(shape)} dimensions")
    extent = tuple(d - b if s == -1 else s for d, b, s in zip(shape, begin, sizes, strict=True))
    return ops.StridedSlice(begin, (1,) * len(shape), extent, extent)


def _depth_to_space(call: Call) -> Operator:
    return ops.DepthToSpace(call.option("BlockSize"))


def _blocks(call: Call) -> tuple[Pair, tuple[int, ...]]:
    block = call.integers(1, "block")
    if len(block) != 2:
        raise ShapeError(f"expected a block of two dimensions, found {list(block)}")
    return (block[0], block[1]), tuple(call.rows(2, "borders", 2).reshape(-1).tolist())


def _space_to_batch(call: Call) -> Operator:
    return ops.SpaceToBatch(*_blocks(call))


def _batch_to_space(call: Call) -> Operator:
    return ops.BatchToSpace(*_blocks(call))


def _mean(call: Call) -> Operator:
    rank = len(call.tensor(0, "input").shape)
    axes = {call.axis(a, rank) for a in call.integers(1, "axes")}
    return ops.Mean(tuple(sorted(axes)), bool(call.option("KeepDims")))


def _softmax(call: Call) -> Operator:
    return ops.Softmax(float(call.option("Beta")))


def _resize_bilinear(call: Call) -> Operator:
    size = call.integers(1, "size")
    if len(size) != 2:
        raise ShapeError(f"expected a size of height and width, found {list(size)}")
    align, half = bool(call.option("AlignCorners")), bool(call.option("HalfPixelCenters"))
    return ops.ResizeBilinear((size[0], size[1]), align, half)


def _clamp(activation: Activation) -> Callable[[Call], Operator]:
    return lambda _: ops.Clamp(activation)


def _dequantize(call: Call) -> Operator:
    source = call.tensor(0, "input")
    if source.dtype is not DType.F16 and source.quant is None:
        raise ShapeError(f"expected f16 or a quantized input, found {source.dtype.value}")
    return ops.Cast(call.out_dtype)


ROWS: dict[str, Row] = {
    "ADD": Row(_add, None, "AddOptions"),
    "AVERAGE_POOL_2D": Row(_average_pool, None, "Pool2DOptions"),
    "BATCH_TO_SPACE_ND": Row(_batch_to_space, (0,), "BatchToSpaceNDOptions"),
    "CONCATENATION": Row(_concatenation, None, "ConcatenationOptions"),
    "CONV_2D": Row(_conv_2d, None, "Conv2DOptions"),
    _TRANSPOSE_BIAS: Row(_transpose_conv_bias),
    "DEPTHWISE_CONV_2D": Row(_depthwise_conv_2d, None, "DepthwiseConv2DOptions"),
    "DEPTH_TO_SPACE": Row(_depth_to_space, None, "DepthToSpaceOptions"),
    "DEQUANTIZE": Row(_dequantize, None, "DequantizeOptions"),
    "EXPAND_DIMS": Row(_expand_dims, (0,), "ExpandDimsOptions"),
    "FULLY_CONNECTED": Row(_fully_connected, None, "FullyConnectedOptions"),
    "HARD_SWISH": Row(lambda _: ops.HardSwish(), None, "HardSwishOptions"),
    "LOGISTIC": Row(lambda _: ops.Logistic()),
    "MAX_POOL_2D": Row(_max_pool, None, "Pool2DOptions"),
    "MEAN": Row(_mean, (0,), "ReducerOptions"),
    "MUL": Row(_mul, None, "MulOptions"),
    "PACK": Row(_pack, None, "PackOptions"),
    "PAD": Row(_pad, (0,), "PadOptions"),
    "QUANTIZE": Row(lambda call: ops.Quantize(call.out_dtype), None, "QuantizeOptions"),
    "RELU": Row(_clamp(Activation.RELU)),
    "RELU6": Row(_clamp(Activation.RELU6)),
    "RELU_N1_TO_1": Row(_clamp(Activation.RELU_N1_TO_1)),
    "RESHAPE": Row(_reshape, (0,), "ReshapeOptions"),
    "RESIZE_BILINEAR": Row(_resize_bilinear, (0,), "ResizeBilinearOptions"),
    "SHAPE": Row(lambda _: ops.ShapeOf(), None, "ShapeOptions"),
    "SLICE": Row(_slice, (0,), "SliceOptions"),
    "SOFTMAX": Row(_softmax, None, "SoftmaxOptions"),
    "SPACE_TO_BATCH_ND": Row(_space_to_batch, (0,), "SpaceToBatchNDOptions"),
    "SPLIT": Row(_split, (1,), "SplitOptions"),
    "SPLIT_V": Row(_split_v, (0,), "SplitVOptions"),
    "SQUEEZE": Row(_squeeze, None, "SqueezeOptions"),
    "STRIDED_SLICE": Row(_strided_slice, (0,), "StridedSliceOptions"),
    "TRANSPOSE": Row(_transpose, (0,), "TransposeOptions"),
    "TRANSPOSE_CONV": Row(_transpose_conv, (2, 1, 3), "TransposeConvOptions"),
}

# Operators without a node: constants, variables and their first values.
VAR_HANDLE, READ, ASSIGN, ONCE, DENSIFY = (
    "VAR_HANDLE",
    "READ_VARIABLE",
    "ASSIGN_VARIABLE",
    "CALL_ONCE",
    "DENSIFY",
)
STRUCTURAL = (VAR_HANDLE, READ, ASSIGN, ONCE, DENSIFY)


def supported_operators() -> list[str]:
    """Names as in the TensorFlow Lite schema (custom ones as CUSTOM:name), sorted."""
    return sorted((*ROWS, *STRUCTURAL))
