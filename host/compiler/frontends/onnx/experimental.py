"""Import of ONNX's experimental operators before opset 10, which ONNX Runtime still runs.

Converters of Keras and Core ML models wrote them.
"""

from __future__ import annotations

from collections.abc import Callable

from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.conv import crop
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import ShapeError, Tensor


def _times(call: OnnxCall, x: Tensor, factor: float) -> Tensor:
    return call.emit(ops.Mul(), x, call.builder.floats(factor))


def _affine(call: OnnxCall) -> Tensor:
    y = _times(call, call.x(0), call.number("alpha", 1.0))
    return call.emit(ops.Add(), y, call.builder.floats(call.number("beta", 0.0)))


def _scaled_tanh(call: OnnxCall) -> Tensor:
    y = call.emit(ops.Tanh(), _times(call, call.x(0), call.number("beta")))
    return _times(call, y, call.number("alpha"))


def _parametric_softplus(call: OnnxCall) -> Tensor:
    y = call.emit(ops.Softplus(), _times(call, call.x(0), call.number("beta")))
    return _times(call, y, call.number("alpha"))


def _scale(call: OnnxCall) -> Tensor:
    return _times(call, call.x(0), call.number("scale", 1.0))


def _image_scaler(call: OnnxCall) -> Tensor:
    x, bias = call.x(0), call.floats("bias")
    need_rank(x, 4)
    if len(bias) != x.shape[1]:
        raise ShapeError(f"expected a bias for {x.shape[1]} channels, found {len(bias)}")
    y = _times(call, x, call.number("scale", 1.0))
    return call.emit(ops.Add(), y, call.reshape(call.builder.floats(*bias), (len(bias), 1, 1)))


def _crop(call: OnnxCall) -> Tensor:
    """An image without its border, or the part of size `scale` at the border's first corner."""
    x, border = call.x(0), call.list("border", ())
    need_rank(x, 4)
    if len(border) != 4 or min(border) < 0:
        raise ShapeError(f"expected a border of four sizes, found {list(border)}")
    left, top, right, bottom = border
    if call.has("scale"):
        height, width = (*call.list("scale"), 0, 0)[:2]
        bottom, right = x.shape[2] - top - height, x.shape[3] - left - width
    if min(right, bottom) < 0 or top + bottom >= x.shape[2] or left + right >= x.shape[3]:
        raise ShapeError(f"expected an image larger than its border, found {list(x.shape)}")
    return crop(call, x, (0, 0, top, left), (0, 0, bottom, right))


EXPERIMENTAL: dict[str, Callable[[OnnxCall], Tensor]] = {
    "Affine": _affine,
    "Crop": _crop,
    "ImageScaler": _image_scaler,
    "ParametricSoftplus": _parametric_softplus,
    "Scale": _scale,
    "ScaledTanh": _scaled_tanh,
}
