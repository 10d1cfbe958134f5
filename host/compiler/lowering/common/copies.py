"""Fills and strided copies, of which operators that move data consist."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.device.runtime.kernel_facts import COPY_DIMS
from edgekit.host.compiler.lowering.context import Context, UnsupportedFormError
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value

_SHORT = 8  # iterations


@dataclass(frozen=True)
class _Rows:
    """A simplified copy: (extent, x stride, y stride) per dimension, and bytes per run."""

    dims: list[tuple[int, int, int]]
    run: int

    @property
    def grain(self) -> int:
        """The minimum rows of the outermost dimension per thread."""
        below = self.run * math.prod(d[0] for d in self.dims[1:])
        return max(1, 16384 // max(below, 1))


def _merge_dims(
    dims: Sequence[int], x_strides: Sequence[int], y_strides: Sequence[int], size: int
) -> _Rows:
    n, xs, ys = list(dims), list(x_strides), list(y_strides)
    run = size
    # Innermost dimensions that are contiguous on both sides become part of the run.
    while n and (n[-1] == 1 or (xs[-1] == run and ys[-1] == run)):
        run *= n.pop()
        xs.pop()
        ys.pop()
    merged: list[tuple[int, int, int]] = []
    for d, a, b in zip(n, xs, ys, strict=True):
        if d == 1:
            continue
        if merged and merged[-1][1] == a * d and merged[-1][2] == b * d:
            merged[-1] = (merged[-1][0] * d, a, b)
        else:
            merged.append((d, a, b))
    # Long innermost loops cost less per run; the first dimension is divided among threads.
    if len(merged) > 2 and merged[-1][0] < _SHORT <= merged[-2][0]:
        merged[-2:] = merged[:-3:-1]
    if len(merged) > COPY_DIMS:
        raise UnsupportedFormError(
            f"moving data over {len(merged)} dimensions (at most {COPY_DIMS})"
        )
    first = merged[0] if merged else (1, 0, 0)
    return _Rows([first, *[(1, 0, 0)] * (COPY_DIMS - max(len(merged), 1)), *merged[1:]], run)


def strided_copy(
    ctx: Context,
    dims: Sequence[int],
    x_strides: Sequence[int],
    y_strides: Sequence[int],
    size: int,
    x: Value,
    y: Value,
) -> KernelCall:
    """A copy of `dims` elements of `size` bytes; contiguous runs are merged into one element."""
    rows = _merge_dims(dims, x_strides, y_strides, size)
    kernel = ctx.kernel("copy", "layout/copy.c", "layout/copy.h", "ek_copy_args")
    fields: dict[str, Field] = {
        "dim": tuple(r[0] for r in rows.dims),
        "x_stride": tuple(r[1] for r in rows.dims),
        "y_stride": tuple(r[2] for r in rows.dims),
        "run": rows.run,
        "x": x,
        "y": y,
    }
    return KernelCall(kernel, fields, rows.dims[0][0], rows.grain)


def fill(
    ctx: Context, dims: Sequence[int], strides: Sequence[int], size: int, y: Value, byte: int
) -> KernelCall:
    """Sets every byte of a strided block to `byte`: 0, or an 8-bit zero point."""
    rows = _merge_dims(dims, strides, strides, size)
    kernel = ctx.kernel("fill", "layout/copy.c", "layout/copy.h", "ek_copy_args", OP_FILL=1)
    fields: dict[str, Field] = {
        "dim": tuple(r[0] for r in rows.dims),
        "y_stride": tuple(r[2] for r in rows.dims),
        "run": rows.run,
        "x": y,
        "y": y,
        "fill_byte": byte & 0xFF,
    }
    return KernelCall(kernel, fields, rows.dims[0][0], rows.grain)
