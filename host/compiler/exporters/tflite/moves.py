"""TensorFlow Lite export of operators that move data."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.exporters.tflite.sink import TfliteExportCall, writes
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.quantization import scale_of, zero_point_of
from edgekit.host.compiler.ir.types import Array, DType, Shape, Tensor

_PADDED_AXES = 5  # LiteRT's maximum


@writes(ops.Reshape)
def reshape(call: TfliteExportCall, op: ops.Reshape) -> None:
    call.emit("RESHAPE", [call.operand(0), call.integers(op.shape)], call.out, "ReshapeOptions")


@writes(ops.BitCast)
def bit_cast(call: TfliteExportCall, op: ops.BitCast) -> None:
    call.emit("BITCAST", [call.operand(0)], call.out, "BitcastOptions")


@writes(ops.Transpose)
def transpose(call: TfliteExportCall, op: ops.Transpose) -> None:
    x, version = call.operand(0), 1 + call.out.is_quantized
    order = call.integers(op.permutation)
    call.emit("TRANSPOSE", [x, order], call.out, "TransposeOptions", version)


@writes(ops.Pad)
def pad(call: TfliteExportCall, op: ops.Pad) -> None:
    """If there are more axes than LiteRT can pad, adjacent unpadded axes are merged."""
    x, out, rows = call.operand(0), call.out, np.array([op.before, op.after]).T.reshape(-1, 2)
    sizes, merged = list(x.shape), len(x.shape) > _PADDED_AXES
    if merged:
        sizes, rows = _merge_unpadded_axes(x.shape, rows)
        if len(sizes) > _PADDED_AXES:
            expected = f"at most {_PADDED_AXES} axes to pad"
            raise call.refuse(expected, str(len(sizes)), "write an .onnx file")
        flat = call.like(x, tuple(sizes))
        call.emit("RESHAPE", [x, call.integers(flat.shape)], flat, "ReshapeOptions")
        x = flat
    made = call.like(out, tuple(int(n) for n in rows.sum(axis=1) + sizes)) if merged else out
    call.emit("PAD", [x, call.integers(rows)], made, "PadOptions", 1 + out.is_quantized)
    if merged:
        call.emit("RESHAPE", [made, call.integers(out.shape)], out, "ReshapeOptions")


def _merge_unpadded_axes(shape: Shape, rows: Array) -> tuple[list[int], Array]:
    """Sizes and paddings of the axes, with adjacent unpadded axes merged."""
    sizes, borders = list[int](), list[Array]()
    for size, border in zip(shape, rows, strict=True):
        if borders and not border.any() and not borders[-1].any():
            sizes[-1] *= size
        else:
            sizes.append(size)
            borders.append(border)
    return sizes, np.array(borders)


@writes(ops.Concat)
def concatenation(call: TfliteExportCall, op: ops.Concat) -> None:
    """Rescales operands to one scale first: LiteRT's operator rescales only u8."""
    ins, out = call.operands, call.out
    if out.is_quantized and out.dtype is not DType.U8:
        ins = [x and _rescale_to_output(call, x, out) for x in ins]
    version = 1 + out.is_quantized
    call.emit(
        "CONCATENATION", ins, out, "ConcatenationOptions", version,
        Axis=op.axis, FusedActivationFunction=0,
    )  # fmt: skip


def _rescale_to_output(call: TfliteExportCall, x: Tensor, out: Tensor) -> Tensor:
    if (scale_of(x), zero_point_of(x)) == (scale_of(out), zero_point_of(out)):
        return x
    made = call.like(x, quant=out.quant)
    if x.data is None:
        call.emit("QUANTIZE", [x], made, "QuantizeOptions", 2)
        return made
    (data,) = ops.Quantize(x.dtype).reference([x.data], [x], [made])
    return call.constant(data, x.dtype, out.quant)


@writes(ops.Split)
def split(call: TfliteExportCall, op: ops.Split) -> None:
    x, outs = call.operand(0), call.outs
    axis = call.constant(np.array(op.axis), DType.I32)
    if len(set(op.sizes)) == 1:
        version = 1 + x.is_quantized
        call.emit("SPLIT", [axis, x], outs, "SplitOptions", version, NumSplits=len(outs))
        return
    sizes = call.integers(op.sizes)
    version = 1 + x.is_quantized
    call.emit("SPLIT_V", [x, sizes, axis], outs, "SplitVOptions", version, NumSplits=len(outs))


@writes(ops.StridedSlice)
def strided_slice(call: TfliteExportCall, op: ops.StridedSlice) -> None:
    """A reshape removes the axes that the graph drops."""
    x, out = call.operand(0), call.out
    made = out if op.shape == op.extent else call.like(out, op.extent)
    begin, version = call.integers(op.begin), 1 + x.is_quantized
    if all(s == 1 for s in op.stride):
        call.emit("SLICE", [x, begin, call.integers(op.extent)], made, "SliceOptions", version)
    else:
        ends = [b + n * s for b, n, s in zip(op.begin, op.extent, op.stride, strict=True)]
        # An end before element 0 has no index, as negative ends count from the back: mask it.
        mask = sum(1 << i for i, end in enumerate(ends) if end < 0)
        bounds = [begin, call.integers(np.maximum(ends, 0)), call.integers(op.stride)]
        call.emit(
            "STRIDED_SLICE", [x, *bounds], made, "StridedSliceOptions", version, EndMask=mask
        )  # fmt: skip
    if made is not out:
        call.emit("RESHAPE", [made, call.integers(out.shape)], out, "ReshapeOptions")


@writes(ops.DepthToSpace)
def depth_to_space(call: TfliteExportCall, op: ops.DepthToSpace) -> None:
    call.emit(
        "DEPTH_TO_SPACE", [call.operand(0)], call.out, "DepthToSpaceOptions", BlockSize=op.block
    )  # fmt: skip


@writes(ops.SpaceToBatch)
def space_to_batch(call: TfliteExportCall, op: ops.SpaceToBatch) -> None:
    block, borders = call.integers(op.block), np.array(op.padding).reshape(2, 2)
    ins = [call.operand(0), block, call.integers(borders)]
    call.emit(
        "SPACE_TO_BATCH_ND", ins, call.out, "SpaceToBatchNDOptions", 1 + call.out.is_quantized
    )


@writes(ops.BatchToSpace)
def batch_to_space(call: TfliteExportCall, op: ops.BatchToSpace) -> None:
    block, borders = call.integers(op.block), np.array(op.crop).reshape(2, 2)
    ins = [call.operand(0), block, call.integers(borders)]
    call.emit(
        "BATCH_TO_SPACE_ND", ins, call.out, "BatchToSpaceNDOptions", 1 + call.out.is_quantized
    )


@writes(ops.ResizeBilinear)
def resize_bilinear(call: TfliteExportCall, op: ops.ResizeBilinear) -> None:
    fields = {"AlignCorners": op.align_corners, "HalfPixelCenters": op.half_pixel_centers}
    version = 2 if call.out.is_quantized else 1 + 2 * op.half_pixel_centers
    ins = [call.operand(0), call.integers(op.size)]
    call.emit("RESIZE_BILINEAR", ins, call.out, "ResizeBilinearOptions", version, **fields)


@writes(ops.Gather)
def gather(call: TfliteExportCall, op: ops.Gather) -> None:
    """LiteRT requires indices from 0 to size - 1, so constant ones are wrapped and clamped."""
    x, indices = call.operand(0), call.operand(1)
    if indices.data is not None:
        size = x.shape[op.axis]
        wide = indices.data.astype(np.int64)
        picks = np.clip(np.where(wide < 0, wide + size, wide), 0, size - 1)
        indices = call.constant(picks, indices.dtype)
    version = 1 + x.is_quantized
    call.emit("GATHER", [x, indices], call.out, "GatherOptions", version, Axis=op.axis, BatchDims=0)


@writes(ops.BroadcastTo)
def broadcast_to(call: TfliteExportCall, op: ops.BroadcastTo) -> None:
    ins = [call.operand(0), call.integers(op.shape)]
    call.emit("BROADCAST_TO", ins, call.out, "BroadcastToOptions", 2)
