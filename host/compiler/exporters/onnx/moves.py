"""ONNX export of operators that move data; quantized values are moved unchanged."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.exporters.onnx.sink import (
    FROM_IMAGE,
    TO_IMAGE,
    OnnxExportCall,
    writes,
)
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.quantization import same_quantization, zero_point_of
from edgekit.host.compiler.ir.types import DType


@writes(ops.Reshape)
def reshape(call: OnnxExportCall, op: ops.Reshape) -> None:
    x = call.sink.get(call.operand(0), real=False)
    call.sink.put(call.out, call.step("Reshape", [x, call.integers(op.shape)]), real=False)


@writes(ops.Transpose)
def transpose(call: OnnxExportCall, op: ops.Transpose) -> None:
    """NHWC↔NCHW transposes select the tensor's other layout, which may already exist."""
    x, sink = call.operand(0), call.sink
    if op.permutation == TO_IMAGE:
        sink.put(call.out, sink.get(x, True, False), real=False)
    elif op.permutation == FROM_IMAGE:
        sink.put(call.out, sink.get(x, False, False), True, False)
    else:
        made = call.step("Transpose", [sink.get(x, real=False)], perm=op.permutation)
        sink.put(call.out, made, real=False)


@writes(ops.Pad)
def pad(call: OnnxExportCall, op: ops.Pad) -> None:
    x, image = call.operand(0), call.image
    order = TO_IMAGE if image else range(len(x.shape))
    rows = [op.before[i] for i in order] + [op.after[i] for i in order]
    value = zero_point_of(call.out) if call.out.quant is not None else 0
    ins = [call.sink.get(x, image, False), call.integers(rows)]
    ins.append(call.sink.constant(np.array(value, x.dtype.numpy)))
    call.sink.put(call.out, call.step("Pad", ins), image, False)


@writes(ops.Concat)
def concatenation(call: OnnxExportCall, op: ops.Concat) -> None:
    """Operands quantized with different scales are concatenated as real values."""
    image = call.image
    real = not all(t is not None and same_quantization(t, call.out) for t in call.operands)
    axis = TO_IMAGE.index(op.axis) if image else op.axis
    call.sink.put(call.out, call.step("Concat", call.inputs(image, real), axis=axis), image, real)


@writes(ops.Split)
def split(call: OnnxExportCall, op: ops.Split) -> None:
    image, outs = call.image and all(len(t.shape) == 4 for t in call.outs), call.outs
    axis = TO_IMAGE.index(op.axis) if image else op.axis
    ins = [call.sink.get(call.operand(0), image, False), call.integers(op.sizes)]
    made = call.sink.steps("Split", ins, len(outs), axis=axis)
    for t, name in zip(outs, made, strict=True):
        call.sink.put(t, name, image, False)


@writes(ops.StridedSlice)
def strided_slice(call: OnnxExportCall, op: ops.StridedSlice) -> None:
    """A Reshape removes the axes that the graph drops. With a negative stride, an end before
    element 0 is written as -size - 1, below the lowest valid negative index."""
    x, image = call.operand(0), call.image and call.out.shape == op.extent
    order = TO_IMAGE if image else tuple(range(len(x.shape)))
    begin, steps = ([values[i] for i in order] for values in (op.begin, op.stride))
    ends = [op.begin[i] + op.extent[i] * op.stride[i] for i in order]
    ends = [e if e >= 0 else -x.shape[i] - 1 for i, e in zip(order, ends, strict=True)]
    bounds = [begin, ends, range(len(order)), steps]
    y = call.sink.get(x, image, False)
    y = call.step("Slice", [y, *(call.integers(values) for values in bounds)])
    if call.out.shape != op.extent:
        y = call.step("Reshape", [y, call.integers(call.out.shape)])
    call.sink.put(call.out, y, image, False)


@writes(ops.Gather)
def gather(call: OnnxExportCall, op: ops.Gather) -> None:
    """Constant indices are wrapped and clamped into the axis."""
    x, indices = call.operand(0), call.operand(1)
    size, sink = x.shape[op.axis], call.sink
    if indices.data is None:
        picks = sink.get(indices)
    else:
        wide = indices.data.astype(np.int64)
        picks = sink.constant(np.clip(np.where(wide < 0, wide + size, wide), 0, size - 1))
    image = not sink.has_own(x) and len(indices.shape) == 1
    axis = TO_IMAGE.index(op.axis) if image else op.axis
    made = call.step("Gather", [sink.get(x, image, False), picks], axis=axis)
    sink.put(call.out, made, image, False)


@writes(ops.BroadcastTo)
def broadcast_to(call: OnnxExportCall, op: ops.BroadcastTo) -> None:
    ins = [call.sink.get(call.operand(0), real=False), call.integers(op.shape)]
    call.sink.put(call.out, call.step("Expand", ins), real=False)


@writes(ops.DepthToSpace)
def depth_to_space(call: OnnxExportCall, op: ops.DepthToSpace) -> None:
    x = call.sink.get(call.operand(0), True)
    call.sink.put(call.out, call.step("DepthToSpace", [x], blocksize=op.block, mode="DCR"), True)


@writes(ops.ResizeBilinear)
def resize_bilinear(call: OnnxExportCall, op: ops.ResizeBilinear) -> None:
    mode = "align_corners" if op.align_corners else "asymmetric"
    mode = "half_pixel" if op.half_pixel_centers else mode
    n, h, w, c = call.out.shape
    ins = [call.sink.get(call.operand(0), True), "", "", call.integers((n, c, h, w))]
    y = call.step("Resize", ins, mode="linear", coordinate_transformation_mode=mode)
    call.sink.put(call.out, y, True)


@writes(ops.SpaceToBatch)
def space_to_batch(call: OnnxExportCall, op: ops.SpaceToBatch) -> None:
    x, (rows, columns), out = call.operand(0), op.block, call.out
    top, bottom, left, right = op.padding
    value = zero_point_of(out) if out.is_quantized else 0
    ins = [call.sink.get(x, real=False), call.integers((0, top, left, 0, 0, bottom, right, 0))]
    y = call.step("Pad", [*ins, call.sink.constant(np.array(value, x.dtype.numpy))])
    _, h, w, c = out.shape
    y = call.step("Reshape", [y, call.integers((x.shape[0], h, rows, w, columns, c))])
    y = call.step("Transpose", [y], perm=(2, 4, 0, 1, 3, 5))
    call.sink.put(out, call.step("Reshape", [y, call.integers(out.shape)]), real=False)


@writes(ops.BatchToSpace)
def batch_to_space(call: OnnxExportCall, op: ops.BatchToSpace) -> None:
    x, (rows, columns), out = call.operand(0), op.block, call.out
    _, h, w, c = x.shape
    n, top, left = out.shape[0], op.crop[0], op.crop[2]
    y = call.sink.get(x, real=False)
    y = call.step("Reshape", [y, call.integers((rows, columns, n, h, w, c))])
    y = call.step("Transpose", [y], perm=(2, 3, 0, 4, 1, 5))
    y = call.step("Reshape", [y, call.integers((n, h * rows, w * columns, c))])
    ends = (top + out.shape[1], left + out.shape[2])
    bounds = [call.integers(v) for v in ((top, left), ends, (1, 2))]
    call.sink.put(out, call.step("Slice", [y, *bounds]), real=False)


@writes(ops.Cast)
def cast(call: OnnxExportCall, op: ops.Cast) -> None:
    """Dequantizes quantized values; converts plain numbers to f32."""
    x, image = call.operand(0), call.image
    name = call.sink.get(x, image)
    if not x.is_quantized:
        name = call.step("Cast", [name], to=DType.F32)
    call.sink.put(call.out, name, image)
