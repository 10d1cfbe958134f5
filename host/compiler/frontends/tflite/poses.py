"""Import of Coral's custom pose detection operator."""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor

_MOST = 1 << 10  # poses, and pixels per cell
_ROUNDING = 1e-6  # keeps the log odds of 0 finite


def poses(call: TfliteCall) -> list[Tensor]:
    """Heatmaps, short and mid offsets → keypoints, keypoint scores, pose scores, pose count; all
    f32. Quantized inputs are dequantized."""
    if len(call.tensors) != 3:
        raise ShapeError(
            f"expected heatmaps, short and mid offsets, found {len(call.tensors)} inputs; "
            "masks from long offsets are not supported"
        )
    maps = [call.tensor(i, name) for i, name in enumerate(("heatmaps", "short", "mid offsets"))]
    maps = [x if x.dtype is DType.F32 else call.emit(ops.Cast(), x) for x in maps]
    stride, least = call.custom_whole("stride", 1, _MOST), call.custom_number("score_threshold")
    radius = call.custom_number("nms_radius")
    if not (least >= 0 and least + _ROUNDING < 1 and 0 <= radius <= 1e6):
        raise ShapeError(
            "expected a score_threshold from 0 to below 1 and a nms_radius from 0, "
            f"found {least} and {radius}"
        )
    odds = -math.log(1 / (float(np.float32(least)) + _ROUNDING) - 1)
    cells = float(np.float32(radius) / np.float32(stride))
    keep = call.custom_whole("max_detections", 1, _MOST)
    op = ops.DecodePoses(keep, float(np.float32(least)), float(np.float32(odds)), cells, stride)
    return call.builder.emit_all(op, maps)
