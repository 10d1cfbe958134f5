"""Products of float activations with 8- or 4-bit weights, with outlier channels in float."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir import sums
from edgekit.host.compiler.ir.checks import (
    need_dtype,
    need_positive,
    need_rank,
    need_shape,
    operand,
)
from edgekit.host.compiler.ir.checks import optional as optional_operand
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import (
    Activation,
    Array,
    DType,
    Operator,
    Shape,
    ShapeError,
    Tensor,
)

__all__ = ["FEW_OUTLIERS", "OutlierFullyConnected"]

# Share without samples, at most one in so many channels: real outliers are fewer, and where a
# layer's values just are large, a quarter of them in float took 7 times as long as 8 bits alone.
FEW_OUTLIERS = 32

_MOST_FACTOR = np.float32(5e37)
_LARGEST = np.finfo(np.float32).max
_AT_ONCE = 1 << 20  # weights that are widened together


@dataclass(frozen=True)
class OutlierFullyConnected(Operator):
    """ins: x f32 [..., k], weights s8 [n,k], scale f32 [k / slice, n], bias f32 [n] or None,
    residual f32 of the output's shape or absent, which is added before the activation.

    A channel of x whose magnitude exceeds `threshold` in any row is an outlier and is multiplied
    in float by the dequantized weights. All others are quantized symmetrically, each row by its
    largest inlier. If more than one in `share` channels exceeds the threshold (for example inputs
    of 0 to 255), the threshold is doubled until they do not, so that at any scale of x most
    channels are quantized. `slice` values of k share a scale per output. Shapes are as in
    FullyConnected; with `keep_dims` this can also be a 1x1 convolution of images [n,h,w,k].

    `outliers`: expected number according to samples; only the cost model uses it.

    `tables`: instead, inliers of a row are multiplied by 2-bit weights two at a time, by looking
    up sums that are rounded to 8 bits. Each slice has its own step: a 127th of the largest sum
    that weights of -1.5 to 1.5 can make of two values, or of -1 to 1 if all weights are that
    small; half a step is the largest error of a sum. By bytes of x, whose step is a 127th of the
    row's largest inlier, two products are off by up to two such steps, or one; half a step of
    tables is at most 1.5 of these, or one. Needs slices of an even number of values.
    """

    kind: ClassVar[str] = "outlier_fully_connected"
    elementwise = False
    arithmetic = Arithmetic.QUANTIZED
    cost_kind = "matrix"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    multiplies = True
    weight_axis = 0
    quantized_weights = True
    threshold: float = 6.0
    keep_dims: bool = False
    activation: Activation = Activation.NONE
    outliers: int = 0
    share: int = 4
    tables: bool = False

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, w = operand(ins, 0, "input"), operand(ins, 1, "weights")
        scale, bias = operand(ins, 2, "scales"), optional_operand(ins, 3)
        need_dtype(x, (DType.F32,), "input")
        need_dtype(w, (DType.I8,), "weights")
        need_dtype(scale, (DType.F32,), "scales")
        need_rank(w, 2, "weights")
        need_rank(scale, 2, "scales")
        need_positive((*x.shape, *w.shape, *scale.shape), "input, weights and scales")
        fits = 0 < self.threshold <= float(_LARGEST) and np.float32(self.threshold) > 0
        if not fits:  # kernels use f32
            raise ShapeError(f"expected a threshold above 0 in f32, found {self.threshold:g}")
        n, k = w.shape
        need_shape(scale, (scale.shape[0], n), "scales")
        if k % scale.shape[0]:
            raise ShapeError(f"expected slices that divide {k}, found {scale.shape[0]}")
        if x.elements % k or (self.keep_dims and x.shape[-1:] != (k,)):
            raise ShapeError(f"expected rows of {k} values, found input {list(x.shape)}")
        if bias is not None:
            need_shape(bias, (n,), "bias")
            need_dtype(bias, (DType.F32,), "bias")
        shape = (*x.shape[:-1], n) if self.keep_dims else (x.elements // k, n)
        residual = optional_operand(ins, 4)
        if residual is not None:
            need_shape(residual, shape, "residual")
            need_dtype(residual, (DType.F32,), "residual")
        return [(shape, DType.F32)]

    def threshold_for(self, rows: Array) -> float:
        """Return the effective threshold for rows f32 [m, k]."""
        most, threshold = np.abs(rows).max(axis=0), np.float32(self.threshold)
        while threshold < _LARGEST:
            beyond = most.size - np.count_nonzero(most <= threshold)
            if beyond <= most.size // self.share:
                break
            threshold = np.float32(min(2 * float(threshold), float(_LARGEST)))
        return float(threshold)

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        weights, scale = sums.required(x, 1), sums.required(x, 2)
        rows = sums.required(x, 0).reshape(-1, weights.shape[1])
        inlier: Array = np.all(np.abs(rows) <= self.threshold_for(rows), axis=0, keepdims=True)[0]
        inside = np.where(inlier, rows, np.float32(0))
        quantized, step = _quantized(inside)
        tables = _Tables.of(inside, weights, len(scale)) if self.tables else None
        (n, k), outliers = weights.shape, np.flatnonzero(~inlier)
        total, at_once = np.empty((len(rows), n)), max(_AT_ONCE // k, 1)
        for start in range(0, n, at_once):
            at = slice(start, start + at_once)
            parts = weights[at].reshape(-1, len(scale), k // len(scale))
            wide = (parts * scale[:, at].T.astype(np.float64)[:, :, None]).reshape(-1, k).T
            if tables:
                total[:, at] = tables.look_up(weights[at], scale[:, at])
            else:
                total[:, at] = quantized @ wide * step
            total[:, at] += rows[:, outliers].astype(np.float64) @ wide[outliers]
        for extra in (sums.optional(x, 3), sums.optional(x, 4)):
            if extra is not None:
                total += extra.reshape(-1, weights.shape[0])
        y = total.astype(np.float32)
        return [sums.clamp_float(y, self.activation).reshape(outs[0].shape)]


def _quantized(inside: Array) -> tuple[Array, Array]:
    """Inliers f32 [m, k] as integers, and the step of each row [m, 1], both in f64."""
    largest = np.abs(inside).max(axis=1, keepdims=True, initial=0)
    # For tiny values the reciprocal would overflow.
    factor = np.float32(127) / np.maximum(largest, np.float32(127 / _MOST_FACTOR))
    step = np.where(factor < _MOST_FACTOR, largest / np.float32(127), 1 / _MOST_FACTOR)
    quantized = np.rint(inside * factor.astype(np.float32))
    return quantized.astype(np.float64), step.astype(np.float64)


@dataclass(frozen=True, eq=False)
class _Tables:
    """Rows of inliers as outlier/row_tables.c has them: pairs i32 [m, groups, pairs, 2] times twice
    a weight plus `odd` are 256ths of a step; f32 scales of sums, and what is added to these,
    [m, groups]."""

    pairs: Array
    odd: int
    scales: Array
    added: Array

    @classmethod
    def of(cls, inside: Array, weights: Array, groups: int) -> _Tables:
        odd = int(weights.min(initial=0) < -1)
        pairs = inside.reshape(len(inside), groups, -1, 2)
        halves = np.abs(pairs * np.float32(0.5))
        largest = np.maximum((halves[..., 0] + halves[..., 1]).max(axis=2), np.float32(1e-30))
        factor = np.float32(127 * 256 / (2 + odd)) / np.float32(2) / largest
        rounded = np.rint(pairs * factor[:, :, None, None]).astype(np.int32)
        added = (128 - odd * rounded.sum(axis=(2, 3))) >> 8
        return cls(rounded, odd, np.float32(128) / factor, added)

    def look_up(self, weights: Array, scale: Array) -> Array:
        """Products f64 [m, n] by weights s8 [n, k] with scales f32 [groups, n]."""
        twice = 2 * weights.reshape(len(weights), *self.pairs.shape[1:]).astype(np.int32) + self.odd
        made = np.empty((len(self.pairs), len(weights)))
        for row, pairs in enumerate(self.pairs):
            sums = (((twice * pairs).sum(axis=3) + 128) >> 8).sum(axis=2)
            values = (sums + self.added[row]) * self.scales[row].astype(np.float64)
            made[row] = (values * scale.T).sum(axis=1)
        return made
