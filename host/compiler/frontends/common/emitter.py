"""Base class for the import handlers of every format."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from edgekit.host.compiler.frontends.common.builder import GraphBuilder
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Operator, Quant, Shape, ShapeError, Tensor

_PARTS_LIMIT = 1 << 12


class Emitter:
    """Shortcuts for common operators; each format's subclass adds access to the file's node."""

    builder: GraphBuilder

    def emit(self, op: Operator, *ins: Tensor | None, quant: Quant | None = None) -> Tensor:
        return self.builder.emit(op, *ins, quant=quant)

    def constant(self, value: Array) -> Tensor:
        return self.builder.constant(value)

    def quantized(self, value: Array, quant: Quant | None) -> Tensor:
        """An f32 constant; `quant` records the quantization its values came from."""
        made = self.builder.constant(value)
        return made if quant is None else self.builder.with_quant(made, quant)

    def filled(self, shape: Sequence[int], value: Any, kind: DTypeLike) -> Tensor:
        """A constant of one value."""
        self.builder.need_room(shape, kind)
        return self.builder.constant(np.full(shape, value, kind))

    def counting(self, shape: Sequence[int], kind: DTypeLike = np.int64) -> Tensor:
        """A constant of 0, 1, 2, ... in memory order."""
        self.builder.need_room(shape, kind)
        return self.builder.constant(np.arange(math.prod(shape), dtype=kind).reshape(shape))

    def scalar(self, value: float, like: Tensor) -> Tensor:
        """A constant of rank 0 with the type of `like`."""
        try:
            return self.builder.constant(np.array(value, like.dtype.numpy))
        except OverflowError as error:
            raise ShapeError(
                f"expected a number of type {like.dtype.value}, found {value}"
            ) from error

    def reshape(self, x: Tensor, shape: Shape) -> Tensor:
        if x.shape == tuple(shape):
            return x
        return self.emit(ops.Reshape(tuple(shape)), x, quant=x.quant)

    def transpose(self, x: Tensor, order: Sequence[int]) -> Tensor:
        if list(order) == list(range(len(x.shape))):
            return x
        return self.emit(ops.Transpose(tuple(order)), x, quant=x.quant)

    def split(self, x: Tensor, axis: int, sizes: Sequence[int]) -> list[Tensor]:
        """Parts of `x` along `axis`; parts may be empty."""
        need_parts(len(sizes))
        filled = tuple(s for s in sizes if s)
        if len(filled) < 2 and min(sizes, default=0) >= 0 and sum(filled) == x.shape[axis]:
            made = iter([x])
        else:
            quants = [x.quant] * len(filled)
            made = iter(self.builder.emit_all(ops.Split(axis, filled), [x], quants))
        empty = np.zeros((*x.shape[:axis], 0, *x.shape[axis + 1 :]), x.dtype.numpy)
        return [next(made) if s else self.quantized(empty, x.quant) for s in sizes]

    def part(self, x: Tensor, axis: int, begin: int, count: int) -> Tensor:
        """`count` elements of `axis` from `begin` on."""
        extent = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        if extent == x.shape:
            return x
        first = tuple(begin if i == axis else 0 for i in range(len(extent)))
        op = ops.StridedSlice(first, (1,) * len(extent), extent, extent)
        return self.emit(op, x, quant=x.quant)

    def last(self, x: Tensor, axis: int) -> Tensor:
        """`x` with `axis` moved to the end."""
        order = [i for i in range(len(x.shape)) if i != axis]
        return self.transpose(x, [*order, axis])

    def back(self, x: Tensor, axis: int) -> Tensor:
        """The inverse of `last`."""
        rank = len(x.shape)
        order = list(range(rank - 1))
        order.insert(axis, rank - 1)
        return self.transpose(x, order)

    def convert(self, x: Tensor, to: DType) -> Tensor:
        return x if x.dtype is to else self.emit(ops.Convert(to), x)

    def nhwc(self, x: Tensor) -> Tensor:
        return self.transpose(x, (0, 2, 3, 1))

    def nchw(self, x: Tensor) -> Tensor:
        return self.transpose(x, (0, 3, 1, 2))


def need_parts(count: int) -> None:
    """Limits tensors that an operator makes of one: a file can request any number of them."""
    if count > _PARTS_LIMIT:
        raise ShapeError(f"expected at most {_PARTS_LIMIT:,} parts of a tensor, found {count:,}")


def need_rank(x: Tensor, *ranks: int, error: type[ShapeError] = ShapeError) -> None:
    """`error`: pass MisfitError if the operator is undefined for other ranks."""
    if len(x.shape) not in ranks:
        wanted = " or ".join(str(r) for r in ranks)
        raise error(f"expected a tensor of rank {wanted}, found shape {list(x.shape)}")


def need_axes(x: Tensor, count: int) -> None:
    if len(x.shape) < count:
        raise ShapeError(f"expected a tensor of at least {count} axes, found shape {list(x.shape)}")
