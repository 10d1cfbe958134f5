"""Convolutions over NHWC images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir import sums, winograd
from edgekit.host.compiler.ir.checks import (
    ARITHMETIC,
    need_dtype,
    need_pairs,
    need_positive,
    need_rank,
    need_scale,
    need_shape,
    operand,
    optional,
)
from edgekit.host.compiler.ir.quantization import convolution_multiplier
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
from edgekit.host.compiler.ir.windows import (
    Pair,
    image_size,
    pad_image,
    patches,
    span,
    tap,
    window_positions,
)

__all__ = ["Conv2D", "DepthwiseConv2D", "PrunedConv2D", "TransposeConv2D"]

_PATCHES = 1 << 23  # maximum number of patch elements in memory at a time


@dataclass(frozen=True)
class Conv2D(Operator):
    """ins: x [n,h,w,ic], weights [oc,kh,kw,ic], bias [oc] or None, residual [n,oh,ow,oc] or absent.

    f32 x with s8 weights (dynamic range): x is quantized per image to symmetric s8. `residual`
    (float only, created by a pass) is added after the bias, before the activation. `epilogue`
    (likewise) is a function applied to the result; its second operand, if it has one, is the fifth
    input, a constant per channel. The sixth (likewise, as large as the output) is added last.
    `winograd` (set by a pass) lets kernels use Winograd's transform for f16, whose rounding is
    larger; f32 kernels may always use it.
    """

    kind: ClassVar[str] = "conv2d"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "matrix"
    on_quantized = OnQuantized.SUMS
    half = Half.YES
    multiplies = True
    weight_axis = 0
    on_nna = True
    takes_epilogue = True
    takes_table = True
    layout_kernels = ("dense", "sparse")
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = Padding()
    activation: Activation = Activation.NONE
    epilogue: Operator | None = None
    winograd: bool = field(default=False, repr=False)  # measured orders are keyed by the repr

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, w = _image_and_weights(ins)
        need_shape(w, (*w.shape[:3], x.shape[3]), "weights")
        need_pairs("stride and dilation", self.stride, self.dilation)
        window = span(image_size(w.shape), self.dilation)
        out = window_positions(image_size(x.shape), window, self.stride, self.padding)
        shape = (x.shape[0], *out, w.shape[0])
        _need_bias(ins, w.shape[0])
        for residual in (optional(ins, 3), optional(ins, 5)):
            if residual is not None:
                need_shape(residual, shape, "residual")
                need_dtype(residual, _addend_dtypes(x, DType.F32), "residual")
        return [(shape, x.dtype)]

    def reference(
        self,
        x: Sequence[Array | None],
        ins: Sequence[Tensor | None],
        outs: Sequence[Tensor],
        most_patches: int = _PATCHES,
    ) -> list[Array]:
        """As every operator's; at most `most_patches` patch elements are in memory at a time."""
        pair = sums.operands(x, ins)
        shape = outs[0].shape
        padded = pad_image(pair.x, self.padding)
        if self.winograd:
            summed = winograd.half_convolution(padded, pair.weights).astype(np.float64)
            y = _finish_sums(summed, pair, x[:4], ins, outs[0], self.activation)
            return [self._finish(y, x, ins, outs[0])]
        weights = pair.weights.reshape(shape[3], -1).T
        window = image_size(pair.weights.shape)
        reach = span(window, self.dilation)[0]
        y = np.empty(shape, outs[0].dtype.numpy)
        # Process bands of rows: the patches of a large image do not fit in memory.
        height = max(most_patches // max(shape[0] * shape[2] * weights.shape[0], 1), 1)
        for top in range(0, shape[1], height):
            part = slice(top, min(top + height, shape[1]))
            size = (part.stop - top, shape[2])
            first = top * self.stride[0]
            image = padded[:, first : first + (size[0] - 1) * self.stride[0] + reach]
            rows = patches(image, window, self.stride, self.dilation, size)
            total = sums.product(rows, weights, outs[0].dtype).reshape(shape[0], *size, shape[3])
            terms = [*x[:3], *(None if t is None else t[:, part] for t in x[3:4])]
            y[:, part] = _finish_sums(total, pair, terms, ins, outs[0], self.activation)
        return [self._finish(y, x, ins, outs[0])]

    def _finish(
        self, y: Array, x: Sequence[Array | None], ins: Sequence[Tensor | None], out: Tensor
    ) -> Array:
        y = sums.apply_epilogue(self.epilogue, y, x, ins, out)
        added = sums.optional(x, 5)
        return y if added is None else y + added


@dataclass(frozen=True)
class PrunedConv2D(Conv2D):
    """Sparse Conv2D with 8-bit quantization; `rule` names the reason for choosing it."""

    kind: ClassVar[str] = "pruned_conv2d"
    skips_zeros = True
    takes_epilogue = False
    takes_table = False
    rule: str = ""

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, w = _image_and_weights(ins)
        need_dtype(x, (DType.I8, DType.U8), "input")
        need_dtype(w, (x.dtype,), "weights")
        return super().infer(ins)


@dataclass(frozen=True)
class DepthwiseConv2D(Operator):
    """ins: x [n,h,w,c], weights [1,kh,kw,c·multiplier], bias [c·multiplier] or None.

    `epilogue` as in Conv2D, with its operand as fifth input.
    """

    kind: ClassVar[str] = "depthwise_conv2d"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "window"
    on_quantized = OnQuantized.SUMS
    half = Half.YES
    multiplies = True
    weight_axis = 3
    on_nna = True
    takes_epilogue = True
    takes_table = True
    layout_kernels = ("depthwise", "depthwise_chw")
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = Padding()
    multiplier: int = 1
    activation: Activation = Activation.NONE
    epilogue: Operator | None = None

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, w = _image_and_weights(ins)
        need_pairs("stride and dilation", self.stride, self.dilation)
        need_positive((self.multiplier,), "multiplier")
        channels = x.shape[3] * self.multiplier
        need_shape(w, (1, *image_size(w.shape), channels), "weights")
        window = span(image_size(w.shape), self.dilation)
        out = window_positions(image_size(x.shape), window, self.stride, self.padding)
        _need_bias(ins, channels)
        return [((x.shape[0], *out, channels), x.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        pair = sums.operands(x, ins)
        shape = outs[0].shape
        image: Array = pair.x
        weights: Array = pair.weights
        dtype = operand(ins, 1, "weights").dtype
        if dtype.is_float:
            # Sums are short: f32 additions in TFLite's order give bit-equal results, so that a
            # following dynamic-range layer quantizes identically.
            image, weights = (sums.required(x, i).astype(np.float32) for i in (0, 1))
        if self.multiplier != 1:
            image = np.repeat(image, self.multiplier, axis=3)
        padded = pad_image(image, self.padding)
        total: Array = np.zeros(shape, image.dtype)
        for i, j in np.ndindex(*image_size(weights.shape)):
            offset = (i * self.dilation[0], j * self.dilation[1])
            terms = tap(padded, offset, image_size(shape), self.stride) * weights[0, i, j]
            if dtype is DType.F16:
                sums.add_half(total, terms)
            else:
                total += terms
        y = _finish_sums(total, pair, x[:4], ins, outs[0], self.activation)
        return [sums.apply_epilogue(self.epilogue, y, x, ins, outs[0])]


@dataclass(frozen=True)
class TransposeConv2D(Operator):
    """ins: x [n,h,w,ic], weights [oc,kh,kw,ic], bias [oc] or None; out [n,*out_size,oc].

    `padding` is that of the corresponding forward convolution and is cropped from the result.
    `epilogue` as in Conv2D, with its operand as fifth input.
    """

    kind: ClassVar[str] = "transpose_conv2d"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "matrix"
    on_quantized = OnQuantized.SUMS
    half = Half.YES
    multiplies = True
    weight_axis = 0
    takes_epilogue = True
    stride: tuple[int, int] = (1, 1)
    padding: Padding = Padding()
    out_size: tuple[int, int] = (0, 0)
    activation: Activation = Activation.NONE
    epilogue: Operator | None = None

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, w = _image_and_weights(ins)
        self.check_size(x, w)
        _need_bias(ins, w.shape[0])
        return [((x.shape[0], *self.out_size, w.shape[0]), x.dtype)]

    def check_size(self, x: Tensor, w: Tensor) -> None:
        """Raise `ShapeError` if image, weights and output size do not match."""
        need_shape(w, (*w.shape[:3], x.shape[3]), "weights")
        need_pairs("stride and output size", self.stride, self.out_size)
        forward = window_positions(self.out_size, image_size(w.shape), self.stride, self.padding)
        if forward != image_size(x.shape):
            raise ShapeError(
                f"expected an output size whose convolution gives {list(image_size(x.shape))}, "
                f"found {list(self.out_size)}"
            )

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        pair = sums.operands(x, ins)
        n, height, width, oc = outs[0].shape
        canvas = np.zeros((n, *self._padded_size(), oc), np.float64)
        for i, j in np.ndindex(*image_size(pair.weights.shape)):
            meets = tap(canvas, (i, j), image_size(pair.x.shape), self.stride)
            rows = pair.x.reshape(-1, pair.x.shape[-1])
            meets += sums.product(rows, pair.weights[:, i, j].T, outs[0].dtype).reshape(meets.shape)
        top, left = self.padding.top, self.padding.left
        total = canvas[:, top : top + height, left : left + width]
        y = _finish_sums(total, pair, x[:4], ins, outs[0], self.activation)
        return [sums.apply_epilogue(self.epilogue, y, x, ins, outs[0])]

    def _padded_size(self) -> Pair:
        pad = self.padding
        return self.out_size[0] + pad.top + pad.bottom, self.out_size[1] + pad.left + pad.right


def _image_and_weights(ins: Sequence[Tensor | None]) -> tuple[Tensor, Tensor]:
    x, w = operand(ins, 0, "image"), operand(ins, 1, "weights")
    need_rank(x, 4, "image")
    need_rank(w, 4, "weights")
    need_dtype(x, (*ARITHMETIC, DType.F16), "image")
    need_scale(x, "image")
    need_dtype(w, (DType.F32, DType.I8) if x.dtype is DType.F32 else (x.dtype,), "weights")
    need_positive((*x.shape, *w.shape), "image and weights")
    return x, w


def _need_bias(ins: Sequence[Tensor | None], channels: int) -> None:
    bias = optional(ins, 2)
    if bias is not None:
        need_shape(bias, (channels,), "bias")
        x = operand(ins, 0, "image")
        need_dtype(
            bias, _addend_dtypes(x, DType.I32 if x.dtype.is_quantized else DType.F32), "bias"
        )


def _addend_dtypes(x: Tensor, other: DType) -> tuple[DType, ...]:
    """Allowed dtypes of addends to sums: f16 for f16 images, else `other`."""
    return (DType.F16 if x.dtype is DType.F16 else other,)


def _finish_sums(
    total: sums.F64,
    pair: sums.SumOperands,
    x: Sequence[Array | None],
    ins: Sequence[Tensor | None],
    out: Tensor,
    activation: Activation,
) -> Array:
    if out.dtype.is_float:
        y = sums.finish_float(total, pair.scale, x[2:], out.dtype)
        return sums.clamp_float(y, activation)
    factor = convolution_multiplier(operand(ins, 0, "image"), operand(ins, 1, "weights"), out)
    return sums.finish_quantized(total, sums.optional(x, 2), factor.apply, out, activation)
