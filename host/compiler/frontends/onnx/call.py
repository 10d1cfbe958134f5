"""One ONNX node as the import handlers (`operators.py`) see it, and the builder they emit to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgekit.host.compiler.frontends.common.bounded import Bounded
from edgekit.host.compiler.frontends.common.builder import GraphBuilder
from edgekit.host.compiler.frontends.common.emitter import Emitter
from edgekit.host.compiler.frontends.onnx.file import FileGraph, FileNode
from edgekit.host.compiler.frontends.onnx.types import DTYPES, TensorList, Texts, Value, described
from edgekit.host.compiler.ir.types import Array, DType, Quant, ShapeError, Tensor

_FORMS = 18  # the opset in which handlers call each other
_SMALL = 4096  # elements of shapes, axes and other operands read at import time


Run = Callable[[FileGraph, Sequence[Value | None]], Sequence[Value | None]]
Find = Callable[[str], Value | None]


@dataclass(frozen=True, eq=False)
class OnnxCall(Emitter):
    """All methods raise `ShapeError` if the file lacks something the operator needs.

    `run` emits a subgraph attribute for given inputs; `outer` resolves a name in the enclosing
    scopes; `bfloat16` names f32 tensors that are bfloat16 in the file.
    """

    node: FileNode
    attributes: Mapping[str, Any]
    values: Sequence[Value | None]
    opset: int
    builder: GraphBuilder
    run: Run
    bounded: Bounded
    outer: Find
    bfloat16: set[str]

    def counted(
        self, x: Tensor, length: Tensor, axis: int = 0, needed: Tensor | None = None
    ) -> Tensor:
        """A result with `length` ([1] s64) valid rows along `axis`, or `needed` in a larger
        buffer."""
        self.bounded.add(x, length, x.shape[axis], needed)
        return x

    def given(self, *values: Value | None, **attributes: Any) -> OnnxCall:
        """The same node with other inputs and attributes, in opset 18: handlers of fused operators
        call those of plain ones."""
        return replace(self, values=values, attributes=attributes, opset=_FORMS)

    # Inputs

    def x(self, index: int = 0) -> Tensor:
        found = self.maybe(index)
        if found is None:
            raise ShapeError(f"expected input {index}, found none")
        return found

    def maybe(self, index: int) -> Tensor | None:
        found = self.values[index] if index < len(self.values) else None
        if isinstance(found, TensorList):
            raise ShapeError(f"expected a tensor as input {index}, found a sequence")
        if isinstance(found, Texts):
            raise ShapeError(f"expected numbers as input {index}, found strings")
        return found

    def strings(self, index: int) -> Texts | None:
        """Input `index` if it consists of strings."""
        found = self.values[index] if index < len(self.values) else None
        return found if isinstance(found, Texts) else None

    def all(self) -> list[Tensor]:
        if not self.values:
            raise ShapeError("expected at least one input, found none")
        return [self.x(i) for i in range(len(self.values))]

    def sequence(self, index: int) -> tuple[Tensor, ...]:
        found = self.values[index] if index < len(self.values) else None
        if not isinstance(found, TensorList):
            raise ShapeError(f"expected a sequence as input {index}, found {described(found)}")
        return found.items

    def value(self, index: int, what: str) -> Array:
        """A constant input."""
        data = self.x(index).data
        if data is None:
            raise ShapeError(f"expected constant {what} as input {index}, found a computed tensor")
        return data

    def integers(self, index: int, what: str) -> tuple[int, ...]:
        """A small constant integer input, flattened."""
        data = self.value(index, what)
        if data.dtype.kind not in "iu" or data.size > _SMALL:
            raise ShapeError(f"expected a few integers as {what}, found {data.dtype}{data.shape}")
        return tuple(int(v) for v in data.reshape(-1))

    def single(self, index: int, what: str) -> int:
        """A constant input with exactly one integer."""
        found = self.integers(index, what)
        if len(found) != 1:
            raise ShapeError(f"expected one integer as {what}, found {len(found)}")
        return found[0]

    def numbers(self, index: int, what: str) -> tuple[float, ...]:
        data = self.value(index, what)
        if data.size > _SMALL:
            raise ShapeError(f"expected a few numbers as {what}, found {data.size}")
        return tuple(float(v) for v in data.reshape(-1))

    def whole_numbers(self, index: int, what: str) -> tuple[int, ...]:
        """A constant input with integers in a type that may be float, as in the first opset."""
        found = self.numbers(index, what)
        if not all(math.isfinite(v) and v == int(v) for v in found):
            raise ShapeError(f"expected integers as {what}, found {list(found)}")
        return tuple(map(int, found))

    # Attributes

    def _typed_attribute(self, name: str, kinds: tuple[type, ...], default: Any) -> Any:
        found = self.attributes.get(name)
        if found is None:
            if default is None:
                raise ShapeError(f"expected attribute {name}, found none")
            return default
        if not isinstance(found, kinds):
            raise ShapeError(f"expected attribute {name} of another type, found {found!r:.40}")
        return found

    def has(self, name: str) -> bool:
        return self.attributes.get(name) is not None

    def integer(self, name: str, default: int | None = None) -> int:
        return int(self._typed_attribute(name, (int,), default))

    def number(self, name: str, default: float | None = None) -> float:
        return float(self._typed_attribute(name, (float, int), default))

    def text(self, name: str, default: str | None = None) -> str:
        return str(self._typed_attribute(name, (str,), default))

    def list(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        values = self._typed_attribute(name, (tuple,), default)
        if not all(isinstance(v, int) for v in values) or len(values) > _SMALL:
            raise ShapeError(f"expected integers as attribute {name}, found {values!r:.40}")
        return tuple(values)

    def floats(self, name: str) -> tuple[float, ...]:
        """An attribute with a list of numbers; empty if absent."""
        values = self._typed_attribute(name, (tuple,), ())
        if not all(isinstance(v, int | float) for v in values):
            raise ShapeError(f"expected numbers as attribute {name}, found {values!r:.40}")
        return tuple(float(v) for v in values)

    def texts(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        return tuple(str(v) for v in self._typed_attribute(name, (tuple,), default))

    def graph(self, name: str) -> FileGraph:
        """A subgraph attribute."""
        found = self._typed_attribute(name, (FileGraph,), None)
        assert isinstance(found, FileGraph)
        return found

    def axis(self, value: int, rank: int) -> int:
        """A non-negative axis; negative values count from the end."""
        if not -rank <= value < rank:
            raise ShapeError(f"expected an axis from {-rank} to {rank - 1}, found {value}")
        return value % rank

    def axes(self, rank: int, index: int = 1) -> tuple[int, ...] | None:
        """The axes from input `index`."""
        if self.maybe(index) is None:
            return None
        given = self.integers(index, "axes")
        found = tuple(self.axis(a, rank) for a in given)
        if len(set(found)) != len(found):
            raise ShapeError(f"expected distinct axes, found {list(given)}")
        return found

    def dtype(self, number: int) -> DType:
        if number not in DTYPES:
            raise ShapeError(f"expected a supported element type, found number {number}")
        return DTYPES[number]

    def quant(self, index: int) -> Quant | None:
        """The quantization of a constant input that was dequantized."""
        found = self.maybe(index)
        return found.quant if found is not None and found.dtype is DType.F32 else None
