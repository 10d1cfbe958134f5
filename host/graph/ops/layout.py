"""Operators that only move data, or compute shapes (the importer folds the latter away)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgekit.host.graph.types import Operator, Shape


@dataclass(frozen=True)
class Reshape(Operator):
    """Also SQUEEZE and EXPAND_DIMS; `shape` is final (no -1)."""

    kind: ClassVar[str] = "reshape"
    shape: Shape = ()


@dataclass(frozen=True)
class Transpose(Operator):
    kind: ClassVar[str] = "transpose"
    permutation: tuple[int, ...] = ()


@dataclass(frozen=True)
class Pad(Operator):
    """Pads with zero (quantized: the zero point); `before` and `after` per dimension."""

    kind: ClassVar[str] = "pad"
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Concat(Operator):
    kind: ClassVar[str] = "concat"
    axis: int = 0


@dataclass(frozen=True)
class Split(Operator):
    """One output per entry of `sizes`, along `axis`."""

    kind: ClassVar[str] = "split"
    axis: int = 0
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class StridedSlice(Operator):
    """NumPy's x[begin:end:stride] with everything made explicit; `shape` is the output's."""

    kind: ClassVar[str] = "strided_slice"
    begin: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    extent: tuple[int, ...] = ()  # elements taken per dimension of x
    shape: Shape = ()


@dataclass(frozen=True)
class DepthToSpace(Operator):
    kind: ClassVar[str] = "depth_to_space"
    block: int = 2


@dataclass(frozen=True)
class SpaceToBatch(Operator):
    kind: ClassVar[str] = "space_to_batch"
    block: tuple[int, int] = (1, 1)
    padding: Shape = (0, 0, 0, 0)  # top, bottom, left, right


@dataclass(frozen=True)
class BatchToSpace(Operator):
    kind: ClassVar[str] = "batch_to_space"
    block: tuple[int, int] = (1, 1)
    crop: Shape = (0, 0, 0, 0)  # top, bottom, left, right


@dataclass(frozen=True)
class ShapeOf(Operator):
    """The static shape of its input as an s32 vector; always folded."""

    kind: ClassVar[str] = "shape_of"


@dataclass(frozen=True)
class Pack(Operator):
    """Stacks tensors of one shape along a new axis; folded, or a concat of reshapes."""

    kind: ClassVar[str] = "pack"
    axis: int = 0
