"""One Caffe layer as the import handlers (`operators.py`) see it, and the builder they emit to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.frontends.caffe.file import FileLayer
from edgekit.host.compiler.frontends.caffe.schema import enum_name
from edgekit.host.compiler.frontends.common.builder import GraphBuilder
from edgekit.host.compiler.frontends.common.emitter import Emitter
from edgekit.host.compiler.ir.types import Array, Shape, ShapeError, Tensor

_SMALL = 4096  # elements of a repeated attribute
_LARGEST = 1 << 31


@dataclass(frozen=True, eq=False)
class CaffeCall(Emitter):
    """All methods raise `ShapeError` if the files lack something the layer needs."""

    layer: FileLayer
    tensors: Sequence[Tensor]
    blobs: Sequence[Array]
    weights_file: str
    builder: GraphBuilder

    # Inputs

    def x(self, index: int = 0) -> Tensor:
        if index >= len(self.tensors):
            raise ShapeError(f"expected {index + 1} bottoms, found {len(self.tensors)}")
        return self.tensors[index]

    def only(self) -> Tensor:
        """The bottom of a layer with exactly one bottom and one top."""
        if len(self.tensors) != 1 or len(self.layer.tops) != 1:
            raise ShapeError(
                f"expected one bottom and one top, found {len(self.tensors)} and "
                f"{len(self.layer.tops)}"
            )
        return self.tensors[0]

    def all(self) -> Sequence[Tensor]:
        self.x(0)
        return self.tensors

    def blob(self, index: int, shape: Shape, what: str) -> Array:
        """A learned constant; old files may have extra dimensions of 1."""
        if index >= len(self.blobs):
            raise ShapeError(
                f"expected {what} {list(shape)} in {self.weights_file}, found none for this layer"
            )
        found = self.blobs[index]
        if [d for d in found.shape if d != 1] != [d for d in shape if d != 1]:
            raise ShapeError(
                f"expected {what} {list(shape)} in {self.weights_file}, found {list(found.shape)}"
            )
        return found.reshape(shape)

    # Attributes

    def has(self, name: str) -> bool:
        return bool(self.layer.parameters.HasField(name))

    def integer(self, name: str, low: int = -_LARGEST) -> int:
        return _check_range(int(getattr(self.layer.parameters, name)), name, low)

    def number(self, name: str) -> float:
        return _check_finite(float(getattr(self.layer.parameters, name)), name)

    def flag(self, name: str) -> bool:
        return bool(getattr(self.layer.parameters, name))

    def choice(self, name: str) -> str:
        """The name of an enum attribute's value."""
        return enum_name(self.layer.parameters, name)

    def integers(self, name: str, low: int = -_LARGEST) -> list[int]:
        return [_check_range(int(v), name, low) for v in self._repeated_field(name)]

    def numbers(self, name: str) -> list[float]:
        return [_check_finite(float(v), name) for v in self._repeated_field(name)]

    def _repeated_field(self, name: str) -> Sequence[float]:
        values: Sequence[float] = getattr(self.layer.parameters, name)
        if len(values) > _SMALL:
            raise ShapeError(f"expected at most {_SMALL} values of {name}, found {len(values)}")
        return values

    def axis(self, x: Tensor, name: str = "axis", beyond: int = 0) -> int:
        """A non-negative axis of `x`; `beyond`: how many axes past the last are allowed."""
        value, rank = self.integer(name), len(x.shape) + beyond
        if not -rank <= value < rank:
            raise ShapeError(f"expected {name} from {-rank} to {rank - 1}, found {value}")
        return value % rank

    def floats(self, value: Array) -> Tensor:
        return self.builder.stored(np.asarray(value, np.float32))


def _check_range(value: int, name: str, low: int) -> int:
    if not low <= value < _LARGEST:
        wanted = "a number of 32 bits" if low == -_LARGEST else f"at least {low}"
        raise ShapeError(f"expected {name} to be {wanted}, found {value}")
    return value


def _check_finite(value: float, name: str) -> float:
    if not math.isfinite(value):
        raise ShapeError(f"expected {name} to be finite, found {value}")
    return value
