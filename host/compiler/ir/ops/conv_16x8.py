"""Convolutions of 16-bit images with 8-bit weights ("16x8")."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir import sums
from edgekit.host.compiler.ir.checks import (
    need_dtype,
    need_pairs,
    need_positive,
    need_rank,
    need_scale,
    need_scales_of_rows,
    need_shape,
    operand,
    optional,
)
from edgekit.host.compiler.ir.quantization import Multiplier, convolution_multiplier, shortened
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import (
    Activation,
    Array,
    DType,
    Operator,
    Padding,
    Shape,
    ShapeError,
    Tensor,
)
from edgekit.host.compiler.ir.windows import image_size, pad_image, span, tap, window_positions

__all__ = ["Conv2D16x8", "Rounding"]


class Rounding(enum.Enum):
    """How sums are requantized; LiteRT's method depends on the operator and the bias type."""

    SHORT = "short"  # once, by a 16-bit factor
    ONCE = "once"  # halves away from zero
    TWICE = "twice"  # like 8-bit convolutions; sums wrap at 32 bits


@dataclass(frozen=True)
class Conv2D16x8(Operator):
    """ins: x s16 [n,h,w,c], weights s8 [oc,kh,kw,c/groups], bias s64 or s32 [oc] or None.

    Each group of input channels produces its share of the output channels. All zero points are 0.
    """

    kind: ClassVar[str] = "wide_conv2d"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "matrix"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    multiplies = True
    weight_axis = 0
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = Padding()
    groups: int = 1
    activation: Activation = Activation.NONE
    rounding: Rounding = Rounding.SHORT

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, w, bias = operand(ins, 0, "image"), operand(ins, 1, "weights"), optional(ins, 2)
        for t, dtype, what in ((x, DType.I16, "image"), (w, DType.I8, "weights")):
            need_rank(t, 4, what)
            need_dtype(t, (dtype,), what)
        need_scale(x, "image")
        need_positive((*x.shape, *w.shape), "image and weights")
        need_pairs("stride and dilation", self.stride, self.dilation)
        need_positive((self.groups,), "groups")
        if x.shape[3] != self.groups * w.shape[3] or w.shape[0] % self.groups:
            raise ShapeError(
                f"expected weights for {self.groups} groups of {x.shape[3]} channels, "
                f"found {list(w.shape)}"
            )
        need_scales_of_rows(w)
        if bias is not None:
            need_shape(bias, (w.shape[0],), "bias")
            need_dtype(bias, (DType.I64, DType.I32), "bias")
        window = span(image_size(w.shape), self.dilation)
        out = window_positions(image_size(x.shape), window, self.stride, self.padding)
        return [((x.shape[0], *out, w.shape[0]), DType.I16)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        out, weights = outs[0], sums.required(x, 1).astype(np.float64)
        oc, kh, kw, depth = weights.shape
        size = image_size(out.shape)
        padded = pad_image(sums.required(x, 0).astype(np.float64), self.padding)
        split = weights.reshape(self.groups, oc // self.groups, kh, kw, depth)
        total = np.zeros((*out.shape[:3], self.groups, 1, oc // self.groups))  # exact: below 2^53
        for i, j in np.ndindex(kh, kw):
            offset = (i * self.dilation[0], j * self.dilation[1])
            pixels = tap(padded, offset, size, self.stride)
            pixels = pixels.reshape(*out.shape[:3], self.groups, 1, depth)
            total += pixels @ split[:, :, i, j].transpose(0, 2, 1)
        factor = convolution_multiplier(operand(ins, 0, "image"), operand(ins, 1, "weights"), out)
        return [
            sums.finish_quantized(
                total.reshape(out.shape), sums.optional(x, 2), self.rescale(factor), out,
                self.activation,
            )
        ]  # fmt: skip

    def rescale(self, factor: Multiplier) -> sums.Rescale:
        if self.rounding is Rounding.TWICE:
            return lambda total: factor.apply(total.astype(np.int32))
        if self.rounding is Rounding.ONCE:
            return factor.apply_rounding_once
        return lambda total: shortened(total, factor)
