"""Operators on channels-first images: [n,c,h,w] instead of [n,h,w,c].

Each wraps the corresponding NHWC operator; weights keep their layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.checks import need_dtype, need_positive, need_rank, operand
from edgekit.host.compiler.ir.ops.conv import Conv2D, DepthwiseConv2D
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import (
    Activation,
    Array,
    DType,
    Operator,
    Padding,
    Shape,
    Tensor,
)

__all__ = ["ChannelsFirst", "ChannelsFirstConv2D", "ChannelsFirstDepthwiseConv2D"]

TO_NCHW = (0, 3, 1, 2)  # NHWC → NCHW, as permutation of a transpose
TO_NHWC = (0, 2, 3, 1)


def _to_nhwc(t: Tensor) -> Tensor:
    need_rank(t, 4, "image")
    need_dtype(t, (DType.F32,), "image")
    return replace(t, shape=tuple(t.shape[p] for p in TO_NHWC), data=None)


@dataclass(frozen=True)
class ChannelsFirst(Operator):
    """Inputs listed in `images` and the output are [n,c,h,w]; all else is as in `inner`."""

    images: ClassVar[tuple[int, ...]] = (0,)

    @property
    def inner(self) -> Operator:
        """The corresponding operator on NHWC images."""
        raise TypeError(f"{self.kind} names no operator")

    def _nhwc_inputs(self, ins: Sequence[Tensor | None]) -> list[Tensor | None]:
        return [t if t is None or i not in self.images else _to_nhwc(t) for i, t in enumerate(ins)]

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        need_positive(operand(ins, 0, "image").shape, "image")
        made = self.inner.infer(self._nhwc_inputs(ins))
        return [(tuple(shape[p] for p in TO_NCHW), dtype) for shape, dtype in made]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values = [
            v if v is None or i not in self.images else v.transpose(TO_NHWC)
            for i, v in enumerate(x)
        ]
        made = self.inner.reference(values, self._nhwc_inputs(ins), [_to_nhwc(t) for t in outs])
        return [np.ascontiguousarray(y.transpose(TO_NCHW)) for y in made]


@dataclass(frozen=True)
class ChannelsFirstConv2D(ChannelsFirst):
    """f32 only. ins: x [n,ic,h,w], weights [oc,kh,kw,ic], bias [oc] or None, residual
    [n,oc,oh,ow] or absent."""

    kind: ClassVar[str] = "channels_first_conv2d"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "matrix"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    multiplies = True
    weight_axis = 0
    skips_zeros = True
    images: ClassVar[tuple[int, ...]] = (0, 3)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = Padding()
    activation: Activation = Activation.NONE

    @property
    def inner(self) -> Conv2D:
        return Conv2D(self.stride, self.dilation, self.padding, self.activation)

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        need_dtype(operand(ins, 1, "weights"), (DType.F32,), "weights")
        return super().infer(ins)


@dataclass(frozen=True)
class ChannelsFirstDepthwiseConv2D(ChannelsFirst):
    """f32 only. ins: x [n,c,h,w], weights [1,kh,kw,c], bias [c] or None."""

    kind: ClassVar[str] = "channels_first_depthwise_conv2d"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "window"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    multiplies = True
    weight_axis = 3
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = Padding()
    activation: Activation = Activation.NONE

    @property
    def inner(self) -> DepthwiseConv2D:
        return DepthwiseConv2D(self.stride, self.dilation, self.padding, 1, self.activation)

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        need_dtype(operand(ins, 1, "weights"), (DType.F32,), "weights")
        return super().infer(ins)
