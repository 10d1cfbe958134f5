"""Broadcast operands as strides over a shape with as few dimensions as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.host.compiler.ir.types import Shape
from edgekit.host.compiler.lowering.context import UnsupportedFormError


@dataclass(frozen=True)
class Broadcast:
    """Collapsed shape of the result, and each operand's strides over it (0 repeats)."""

    dims: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


def collapse(operands: Sequence[Shape], y: Shape, limit: int) -> Broadcast:
    """Computes strides in elements; neighboring dimensions are merged if all operands allow it.

    Always returns `limit` dimensions; unused outer ones are 1.
    """
    rows: list[tuple[int, tuple[int, ...]]] = []
    steps = [1] * len(operands)
    for i in range(1, len(y) + 1):
        sizes = [shape[-i] if i <= len(shape) else 1 for shape in operands]
        strides = tuple(0 if d == 1 else s for d, s in zip(sizes, steps, strict=True))
        steps = [s * d for d, s in zip(sizes, steps, strict=True)]
        if y[-i] == 1:
            continue
        if rows and strides == tuple(s * rows[-1][0] for s in rows[-1][1]):
            rows[-1] = (rows[-1][0] * y[-i], rows[-1][1])
        else:
            rows.append((y[-i], strides))
    if len(rows) > limit:
        raise UnsupportedFormError(f"broadcasting over {len(rows)} dimensions (at most {limit})")
    rows += [(1, (0,) * len(operands))] * (limit - len(rows))
    rows.reverse()
    return Broadcast(
        tuple(r[0] for r in rows),
        tuple(tuple(r[1][i] for r in rows) for i in range(len(operands))),
    )
