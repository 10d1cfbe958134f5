"""Operators that only move data, or compute shapes (which the importer folds)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.checks import (
    need_axis,
    need_dtype,
    need_elements,
    need_known_scales,
    need_pairs,
    need_positive,
    need_rank,
    operand,
    present,
)
from edgekit.host.compiler.ir.quantization import concat_rescale, zero_point_of
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, CostKind, Half, OnQuantized
from edgekit.host.compiler.ir.types import (
    Array,
    DType,
    MisfitError,
    Operator,
    Shape,
    ShapeError,
    Tensor,
)

__all__ = [
    "BatchToSpace",
    "BitCast",
    "Concat",
    "DepthToSpace",
    "Pad",
    "Reshape",
    "SpaceToBatch",
    "Split",
    "StridedSlice",
    "Transpose",
]

Inferred = list[tuple[Shape, DType]]
_PAD_LIMIT = 1 << 24
_LARGE_COPY = 1 << 20  # bytes
_COLUMNS = 64


@dataclass(frozen=True)
class Moving(Operator):
    """Rearranges values of the operands, possibly dropping or repeating some."""

    elementwise = False
    arithmetic = Arithmetic.EXACT
    cost_kind: ClassVar[CostKind] = "move"
    on_quantized = OnQuantized.MOVES
    half = Half.YES


@dataclass(frozen=True)
class Reshape(Moving):
    """Also SQUEEZE and EXPAND_DIMS; `shape` is final (no -1)."""

    kind: ClassVar[str] = "reshape"
    cost_kind = "none"
    places_values = True
    shape: Shape = ()

    def infer(self, ins: Sequence[Tensor | None]) -> Inferred:
        x = operand(ins, 0, "input")
        if min(self.shape, default=1) < 0 or math.prod(self.shape) != math.prod(x.shape):
            raise MisfitError(
                f"expected a shape of {math.prod(x.shape)} elements for input {list(x.shape)}, "
                f"found {list(self.shape)}"
            )
        return [(self.shape, x.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        return [required(x, 0).reshape(self.shape)]


@dataclass(frozen=True)
class BitCast(Moving):
    """Reinterprets the bits of each element as another plain dtype of the same size."""

    kind: ClassVar[str] = "bit_cast"
    cost_kind = "none"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    to: DType = DType.I32

    def infer(self, ins: Sequence[Tensor | None]) -> Inferred:
        x = operand(ins, 0, "input")
        if self.to.bytes != x.dtype.bytes or self.to is DType.BOOL:
            raise ShapeError(
                f"expected a type of {x.dtype.bytes} bytes that is not bool, found {self.to.value}"
            )
        return [(x.shape, self.to)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        return [np.ascontiguousarray(required(x, 0)).view(self.to.numpy).reshape(outs[0].shape)]


@dataclass(frozen=True)
class Transpose(Moving):
    kind: ClassVar[str] = "transpose"
    places_values = True
    permutation: tuple[int, ...] = ()

    def infer(self, ins: Sequence[Tensor | None]) -> Inferred:
        x = operand(ins, 0, "input")
        if sorted(self.permutation) != list(range(len(x.shape))):
            raise ShapeError(
                f"expected a permutation of {len(x.shape)} axes, found {list(self.permutation)}"
            )
        return [(tuple(x.shape[p] for p in self.permutation), x.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        return [_moved_copy(required(x, 0).transpose(self.permutation))]


def _moved_copy(view: Array) -> Array:
    """A contiguous copy. A large one is made in columns: whole rows would load each cache line of
    the source once per element."""
    if view.nbytes < _LARGE_COPY or view.strides[-1] == view.itemsize:
        return np.ascontiguousarray(view)
    made = np.empty(view.shape, view.dtype)
    for at in range(0, view.shape[-1], _COLUMNS):
        made[..., at : at + _COLUMNS] = view[..., at : at + _COLUMNS]
    return made


@dataclass(frozen=True)
class Pad(Moving):
    """Pads with zero (quantized: the zero point); `before` and `after` per dimension."""

    kind: ClassVar[str] = "pad"
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def infer(self, ins: Sequence[Tensor | None]) -> Inferred:
        x = operand(ins, 0, "input")
        if not len(self.before) == len(self.after) == len(x.shape):
            raise ShapeError(
                f"expected padding for {len(x.shape)} dimensions, "
                f"found {len(self.before)} and {len(self.after)}"
            )
        if any(not 0 <= p <= _PAD_LIMIT for p in (*self.before, *self.after)):
            raise ShapeError(
                f"expected padding from 0 to {_PAD_LIMIT}, "
                f"found {list(self.before)} and {list(self.after)}"
            )
        dims = zip(self.before, x.shape, self.after, strict=True)
        shape = tuple(b + d + a for b, d, a in dims)
        need_elements(shape)
        return [(shape, x.dtype)]

    def keeps_factors(self, ins: Sequence[Tensor | None]) -> bool:
        return len(self.before) == 4 and self.before[3] == 0  # appended, not prepended

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        value = zero_point_of(outs[0]) if outs[0].quant is not None else 0
        widths = list(zip(self.before, self.after, strict=True))
        return [np.pad(required(x, 0), widths, constant_values=value)]


@dataclass(frozen=True)
class Concat(Moving):
    """Concatenates along an axis; quantized inputs are rescaled to the output's quantization."""

    kind: ClassVar[str] = "concat"
    on_quantized = OnQuantized.RESCALES
    axis: int = 0

    def infer(self, ins: Sequence[Tensor | None]) -> Inferred:
        tensors = present(ins)
        first = tensors[0]
        need_axis(self.axis, len(first.shape))
        for t in tensors:
            need_dtype(t, (first.dtype,), "operand")
            need_rank(t, len(first.shape), "operand")
            if _drop_axis(t.shape, self.axis) != _drop_axis(first.shape, self.axis):
                raise MisfitError(
                    f"expected operands of equal sizes except on axis {self.axis}, "
                    f"found {list(first.shape)} and {list(t.shape)}"
                )
        need_known_scales(tensors, "an operand next to one with a scale")
        total = sum(t.shape[self.axis] for t in tensors)
        shape = (*first.shape[: self.axis], total, *first.shape[self.axis + 1 :])
        return [(shape, first.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        parts = [
            concat_rescale(required(x, i), operand(ins, i, "operand"), outs[0])
            for i in range(len(x))
        ]
        return [np.concatenate(parts, axis=self.axis)]


@dataclass(frozen=True)
class Split(Moving):
    """One output per entry of `sizes`, along `axis`."""

    kind: ClassVar[str] = "split"
    axis: int = 0
    sizes: tuple[int, ...] = ()

    def infer(self, ins: Sequence[Tensor | None]) -> Inferred:
        x = operand(ins, 0, "input")
        need_axis(self.axis, len(x.shape))
        need_positive(self.sizes, "part sizes")
        if not self.sizes or sum(self.sizes) != x.shape[self.axis]:
            raise ShapeError(
                f"expected parts that add up to {x.shape[self.axis]}, found {list(self.sizes)}"
            )
        before, after = x.shape[: self.axis], x.shape[self.axis + 1 :]
        return [((*before, size, *after), x.dtype) for size in self.sizes]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        ends = np.cumsum(self.sizes)[:-1].tolist()
        return list(np.split(required(x, 0), ends, axis=self.axis))


@dataclass(frozen=True)
class StridedSlice(Moving):
    """NumPy's x[begin:end:stride], with explicit attributes; `shape` is the output's."""

    kind: ClassVar[str] = "strided_slice"
    places_values = True
    begin: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    extent: tuple[int, ...] = ()  # number of elements per dimension of x
    shape: Shape = ()

    def is_run(self, source: Shape) -> bool:
        """Whether the slice is contiguous in a tensor of shape `source`."""
        taken = 1
        for size, stride, extent in zip(source, self.stride, self.extent, strict=True):
            if (extent != size and taken != 1) or (stride != 1 and extent > 1):
                return False
            taken *= extent
        return True

    def infer(self, ins: Sequence[Tensor | None]) -> Inferred:
        x = operand(ins, 0, "input")
        if not len(self.begin) == len(self.stride) == len(self.extent) == len(x.shape):
            raise ShapeError(
                f"expected a slice of {len(x.shape)} dimensions, found {len(self.begin)}"
            )
        need_positive((*self.extent, *self.shape), "slice size")
        for size, begin, stride, extent in zip(
            x.shape, self.begin, self.stride, self.extent, strict=True
        ):
            last = begin + (extent - 1) * stride
            if stride == 0 or not (0 <= begin < size and 0 <= last < size):
                raise ShapeError(
                    f"expected a slice within {size}, found {begin} to {last} by {stride}"
                )
        if math.prod(self.shape) != math.prod(self.extent):
            raise ShapeError(
                f"expected a slice of {list(self.shape)}, found {list(self.extent)} elements"
            )
        return [(self.shape, x.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        picks = [
            begin + stride * np.arange(extent)
            for begin, stride, extent in zip(self.begin, self.stride, self.extent, strict=True)
        ]
        return [required(x, 0)[np.ix_(*picks)].reshape(self.shape)]


@dataclass(frozen=True)
class DepthToSpace(Moving):
    kind: ClassVar[str] = "depth_to_space"
    places_values = True
    block: int = 2

    def infer(self, ins: Sequence[Tensor | None]) -> Inferred:
        x = operand(ins, 0, "image")
        need_rank(x, 4, "image")
        need_positive((self.block,), "block")
        n, h, w, c = x.shape
        if c % (self.block * self.block):
            raise ShapeError(f"expected channels divisible by {self.block**2}, found {c}")
        shape = (n, h * self.block, w * self.block, c // self.block**2)
        return [(shape, x.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values = required(x, 0)
        n, h, w, _ = values.shape
        blocks = values.reshape(n, h, w, self.block, self.block, outs[0].shape[3])
        return [blocks.transpose(0, 1, 3, 2, 4, 5).reshape(outs[0].shape)]


@dataclass(frozen=True)
class SpaceToBatch(Moving):
    """Pads an image (with the zero point if quantized), then moves block pixels to batches."""

    kind: ClassVar[str] = "space_to_batch"
    block: tuple[int, int] = (1, 1)
    padding: Shape = (0, 0, 0, 0)  # top, bottom, left, right

    def infer(self, ins: Sequence[Tensor | None]) -> Inferred:
        x = operand(ins, 0, "image")
        need_rank(x, 4, "image")
        need_pairs("block", self.block)
        _need_borders(self.padding, "padding")
        n, h, w, c = x.shape
        top, bottom, left, right = self.padding
        height, width = h + top + bottom, w + left + right
        rows, columns = self.block
        if height % rows or width % columns:
            raise ShapeError(
                f"expected a padded image divisible by {rows}x{columns}, found {height}x{width}"
            )
        return [((n * rows * columns, height // rows, width // columns, c), x.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values = required(x, 0)
        top, bottom, left, right = self.padding
        zero = zero_point_of(outs[0]) if outs[0].is_quantized else 0
        widths = ((0, 0), (top, bottom), (left, right), (0, 0))
        padded = np.pad(values, widths, constant_values=zero)
        _, h, w, c = outs[0].shape
        rows, columns = self.block
        blocks = padded.reshape(values.shape[0], h, rows, w, columns, c)
        return [blocks.transpose(2, 4, 0, 1, 3, 5).reshape(outs[0].shape)]


@dataclass(frozen=True)
class BatchToSpace(Moving):
    """Inverse of SpaceToBatch: moves batches back to pixels, then crops."""

    kind: ClassVar[str] = "batch_to_space"
    places_values = True
    block: tuple[int, int] = (1, 1)
    crop: Shape = (0, 0, 0, 0)  # top, bottom, left, right

    def infer(self, ins: Sequence[Tensor | None]) -> Inferred:
        x = operand(ins, 0, "image")
        need_rank(x, 4, "image")
        need_pairs("block", self.block)
        _need_borders(self.crop, "crop")
        n, h, w, c = x.shape
        rows, columns = self.block
        if n % (rows * columns):
            raise ShapeError(f"expected a batch divisible by {rows * columns}, found {n}")
        top, bottom, left, right = self.crop
        height, width = h * rows - top - bottom, w * columns - left - right
        need_positive((height, width), "cropped height and width")
        return [((n // (rows * columns), height, width, c), x.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values = required(x, 0)
        _, h, w, c = values.shape
        rows, columns = self.block
        n, height, width, _ = outs[0].shape
        blocks = values.reshape(rows, columns, n, h, w, c).transpose(2, 3, 0, 4, 1, 5)
        whole = blocks.reshape(n, h * rows, w * columns, c)
        top, left = self.crop[0], self.crop[2]
        return [np.ascontiguousarray(whole[:, top : top + height, left : left + width])]


def _drop_axis(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]


def _need_borders(borders: Shape, name: str) -> None:
    if len(borders) != 4 or any(not 0 <= b <= _PAD_LIMIT for b in borders):
        raise ShapeError(f"expected four sizes from 0 to {_PAD_LIMIT} as {name}, found {borders}")
