"""Fourier transforms of whole rows, for every format."""

from __future__ import annotations

import math
from dataclasses import replace

from edgekit.host.compiler.frontends.common.emitter import Emitter
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Tensor


def transform(
    call: Emitter,
    x: Tensor,
    points: int,
    onesided: bool = False,
    inverse: bool = False,
    planar: bool = False,
) -> Tensor:
    """[..., n, parts] → [..., frequencies or points, parts], or [..., parts, frequencies] if
    `planar`; the other arguments are as in `ops.Fourier`. Rows of any length are cropped or
    zero-padded."""
    outer, (length, parts) = x.shape[:-2], x.shape[-2:]
    wanted = points // 2 + 1 if onesided and inverse else points
    rows = call.reshape(x, (math.prod(outer), length, parts))
    more = (max(wanted - length, 0) if onesided else 0, 2 - parts if inverse else 0)
    if inverse and any(more):
        rows = call.emit(ops.Pad((0, 0, 0), (0, *more)), rows)
    n = rows.shape[1]
    made = spectra(call, rows, ops.Fourier(points, min(n, wanted), n, onesided, inverse, planar))
    return call.reshape(made, (*outer, *made.shape[2:]))


def spectra(call: Emitter, x: Tensor, op: ops.Fourier, window: Tensor | None = None) -> Tensor:
    """`op` applied to x [rows, n, parts], where `onesided` keeps the lower frequencies of complex
    signals, too."""
    if op.onesided and not op.inverse and x.shape[2] > 1:
        made = call.emit(replace(op, onesided=False), x, window)
        return call.part(made, 3 if op.planar else 2, 0, op.shown)
    return call.emit(op, x, window)
