"""Convolutions over NHWC images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgekit.host.graph.types import Activation, Operator, Padding


@dataclass(frozen=True)
class Conv2D(Operator):
    """ins: x [n,h,w,ic], weights [oc,kh,kw,ic], bias [oc] or None, residual [n,oh,ow,oc] or absent.

    f32 x with s8 weights (dynamic-range): x is quantized per image to s8, symmetric.
    `residual` (f32 only, made by a pass) is added after the bias, before the activation.
    """

    kind: ClassVar[str] = "conv2d"
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = Padding()
    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class DepthwiseConv2D(Operator):
    """ins: x [n,h,w,c], weights [1,kh,kw,c·multiplier], bias [c·multiplier] or None."""

    kind: ClassVar[str] = "depthwise_conv2d"
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = Padding()
    multiplier: int = 1
    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class TransposeConv2D(Operator):
    """ins: x [n,h,w,ic], weights [oc,kh,kw,ic], bias [oc] or None; out [n,*out_size,oc].

    `padding` is what the forward convolution would have had: it is cut from the result.
    """

    kind: ClassVar[str] = "transpose_conv2d"
    stride: tuple[int, int] = (1, 1)
    padding: Padding = Padding()
    out_size: tuple[int, int] = (0, 0)
    activation: Activation = Activation.NONE
