"""Import of ONNX operators that pool regions of images."""

from __future__ import annotations

from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Operator, ShapeError, Tensor


def roi_align(call: OnnxCall) -> Tensor:
    """[regions, c, oh, ow]: mean or maximum of samples in each bin; regions may be computed."""
    usual = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    mode = call.text("mode", "avg")
    if mode not in ("avg", "max"):
        raise ShapeError(f"expected mode avg or max, found {mode}")
    op = ops.RoiAlign(
        (call.integer("output_height", 1), call.integer("output_width", 1)),
        call.integer("sampling_ratio", 0),
        call.number("spatial_scale", 1.0),
        call.text("coordinate_transformation_mode", usual) == "half_pixel",
        mode == "max",
    )
    return _pool(call, op, call.x(1), call.convert(call.x(2), DType.I32))


def max_roi_pool(call: OnnxCall) -> Tensor:
    """[regions, c, oh, ow]: the maximum of each bin."""
    size = call.list("pooled_shape")
    if len(size) != 2:
        raise ShapeError(f"expected a pooled_shape of two sizes, found {list(size)}")
    op = ops.MaxRoiPool((size[0], size[1]), call.number("spatial_scale", 1.0))
    return _pool(call, op, call.x(1))


def _pool(call: OnnxCall, op: Operator, *regions: Tensor) -> Tensor:
    x = call.x(0)
    need_rank(x, 4)
    y = call.emit(op, call.transpose(x, (0, 2, 3, 1)), *regions)
    return call.transpose(y, (0, 3, 1, 2))
