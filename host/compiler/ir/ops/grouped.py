"""Convolutions of groups of channels, created by a pass that joins those of single groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir import sums
from edgekit.host.compiler.ir.checks import (
    FLOATS,
    need_dtype,
    need_positive,
    need_rank,
    operand,
    optional,
)
from edgekit.host.compiler.ir.ops.conv import Conv2D
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

__all__ = ["GroupedConv2D"]


@dataclass(frozen=True)
class GroupedConv2D(Operator):
    """ins: x [n,h,w,c], weights [oc,kh,kw,c/groups], bias [oc] or None; all of one float type.

    Each group of input channels produces its share of the output channels. `epilogue` as in Conv2D,
    with its operand as fifth input.
    """

    kind: ClassVar[str] = "grouped_conv2d"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "matrix"
    on_quantized = OnQuantized.NEVER
    half = Half.YES
    multiplies = True
    weight_axis = 0
    takes_epilogue = True
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = Padding()
    groups: int = 1
    activation: Activation = Activation.NONE
    epilogue: Operator | None = None

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, w = operand(ins, 0, "image"), operand(ins, 1, "weights")
        need_rank(x, 4, "image")
        need_rank(w, 4, "weights")
        need_dtype(x, FLOATS, "image")
        need_dtype(w, (x.dtype,), "weights")
        need_positive((self.groups,), "groups")
        if x.shape[3] != self.groups * w.shape[3] or w.shape[0] % self.groups:
            raise ShapeError(
                f"expected weights for {self.groups} groups of {x.shape[3]} channels, "
                f"found {list(w.shape)}"
            )
        # Each output channel is one of a convolution over the channels of its group.
        group = Tensor(x.name, (*x.shape[:3], w.shape[3]), x.dtype)
        return self._alone().infer([group, w, optional(ins, 2)])

    def _alone(self) -> Conv2D:
        """The convolution of a group, without an epilogue."""
        return Conv2D(self.stride, self.dilation, self.padding, self.activation)

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        """As the convolutions of its groups, one after the other."""
        alone = self._alone()
        images = np.split(sums.required(x, 0), self.groups, axis=3)
        weights = np.split(sums.required(x, 1), self.groups)
        bias = sums.optional(x, 2)
        terms = [None] * self.groups if bias is None else np.split(bias, self.groups)
        shape = (*outs[0].shape[:3], outs[0].shape[3] // self.groups)
        out = Tensor(outs[0].name, shape, outs[0].dtype)
        made = []
        for parts in zip(images, weights, terms, strict=True):
            own = [
                None if t is None or part is None else Tensor(t.name, part.shape, t.dtype)
                for t, part in zip((*ins, None)[:3], parts, strict=True)
            ]
            made += alone.reference(list(parts), own, [out])
        y = np.concatenate(made, axis=3)
        return [sums.apply_epilogue(self.epilogue, y, x, ins, outs[0])]
