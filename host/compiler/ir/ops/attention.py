"""Attention of new tokens to a cache of keys and values."""

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
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["CachedAttention"]


@dataclass(frozen=True)
class CachedAttention(Operator):
    """ins: queries f32 [heads, count, size], keys and values f32 [shared, context, size], which
    heads / shared consecutive heads share, and the position s32 [1] of the first of the count
    tokens. Result: like the queries. Keys and values of s8 have f32 scales [shared, context] as
    further operands.

    Token i attends to those up to position + i, of which with `window` only to the last so many:
    the mean of their values, weighted by softmax(scale · query · key). With `cap`, that product s
    is cap · tanh(s / cap). Positions beyond the context count as its ends. The work grows with the
    position, not with the context.
    """

    kind: ClassVar[str] = "cached_attention"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    scale: float = 1.0
    cap: float = 0.0
    window: int = 0

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        query, keys, values, position = (
            operand(ins, i, name)
            for i, name in enumerate(("queries", "keys", "values", "position"))
        )
        need_dtype(query, (DType.F32,), "queries")
        need_dtype(keys, (DType.F32, DType.I8), "keys")
        need_dtype(values, (keys.dtype,), "values")
        for each, name in ((query, "queries"), (keys, "keys"), (values, "values")):
            need_rank(each, 3, name)
        need_dtype(position, (DType.I32,), "position")
        need_shape(position, (1,), "position")
        need_positive((*query.shape, *keys.shape), "queries and keys")
        need_shape(values, keys.shape, "values")
        (heads, _, size), shared = query.shape, keys.shape[0]
        need_shape(keys, (shared, keys.shape[1], size), "keys")
        if keys.dtype is DType.I8:
            for i, name in ((4, "scales of keys"), (5, "scales of values")):
                scales = operand(ins, i, name)
                need_dtype(scales, (DType.F32,), name)
                need_shape(scales, keys.shape[:2], name)
        if heads % shared:
            raise ShapeError(f"expected a multiple of {shared} heads, found {heads}")
        if self.window < 0 or self.cap < 0:
            raise ShapeError("expected window and cap of 0 or more, found less")
        return [(query.shape, DType.F32)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        query, keys, values, position = (sums.required(x, i) for i in range(4))
        if keys.dtype == np.int8:
            key_scale, value_scale = (sums.required(x, i)[..., None] for i in (4, 5))
            keys, values = keys * key_scale, values * value_scale
        heads, count, _ = query.shape
        shared, context, _ = keys.shape
        last = np.clip(int(position[0]) + np.arange(count), 0, context - 1)
        tokens = np.arange(context)
        seen = tokens <= last[:, None]
        if self.window:
            seen &= tokens > last[:, None] - self.window
        wide = [np.repeat(t.astype(np.float64), heads // shared, axis=0) for t in (keys, values)]
        scores = self.scale * (query.astype(np.float64) @ wide[0].transpose(0, 2, 1))
        if self.cap:
            scores = self.cap * np.tanh(scores / self.cap)
        scores = np.where(seen, scores, -np.inf)
        shares = np.exp(scores - scores.max(axis=2, keepdims=True))
        shares /= shares.sum(axis=2, keepdims=True)
        return [(shares @ wide[1]).astype(np.float32)]
