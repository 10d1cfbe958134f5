"""Element types of ONNX files: those of the graph, and floats that are computed in f32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends.common.builder import Builder
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Tensor

# What ONNX numbers element types.
DTYPES = {
    1: DType.F32,
    2: DType.U8,
    3: DType.I8,
    4: DType.U16,
    5: DType.I16,
    6: DType.I32,
    7: DType.I64,
    9: DType.BOOL,
    10: DType.F16,
    11: DType.F64,
    12: DType.U32,
    13: DType.U64,
    16: DType.F32,
}
BFLOAT16 = 16  # f32 in the graph
# The types that inputs may have, as files name them.
INPUT_TYPES = {
    "FLOAT": DType.F32,
    "FLOAT16": DType.F16,
    "BFLOAT16": DType.F32,
    "DOUBLE": DType.F64,
    "UINT8": DType.U8,
    "INT8": DType.I8,
    "UINT16": DType.U16,
    "INT16": DType.I16,
    "UINT32": DType.U32,
    "INT32": DType.I32,
    "UINT64": DType.U64,
    "INT64": DType.I64,
    "BOOL": DType.BOOL,
}


@dataclass(frozen=True, eq=False)
class TensorList:
    """A sequence, whose length is known while importing."""

    items: tuple[Tensor, ...]


Value = Tensor | TensorList

_STORED = (DType.F16, DType.F64)
_CASTS = ("Cast", "CastLike")
# Operators that read no values, or whose body is a graph of its own.
_UNTOUCHED = {
    "BitCast", "ConcatFromSequence", "EyeLike", "If", "Loop", "Optional", "OptionalGetElement",
    "OptionalHasElement", "Scan", "SequenceAt", "SequenceConstruct", "SequenceErase",
    "SequenceInsert", "SequenceLength", "SequenceMap", "Shape", "Size", "SplitToSequence",
}  # fmt: skip
# Operators that move elements without a look at them: as they are stored, if nothing else is known.
_MOVES = {
    "Compress", "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather",
    "GatherElements", "GatherND", "Identity", "OneHot", "Pad", "Range", "Reshape",
    "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Trilu",
    "Unsqueeze", "Where",
}  # fmt: skip
# The input whose type the output has; of others it is the first float.
_TYPED_BY = {"OneHot": 2, "RMSNormalization": 1}
_ALWAYS_F32 = {("LayerNormalization", 1), ("LayerNormalization", 2)}  # operator, output


def is_bfloat16(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.name == "bfloat16"


def plain(attribute: Any) -> Any:
    """An attribute as rows take it."""
    return attribute.astype(np.float32) if is_bfloat16(attribute) else attribute


def makes_bfloat16(attributes: Mapping[str, Any]) -> bool:
    """Whether the type of a node's results is an attribute, and bfloat16."""
    if any(is_bfloat16(v) for v in attributes.values()):
        return True
    asked = [attributes.get(name) for name in ("dtype", "output_dtype")]
    return any(isinstance(number, int) and number == BFLOAT16 for number in asked)


class Floats:
    """f16 and f64 are how values are stored: rows of operators see them as f32.

    What a row returns is converted to the file's type. A later operator takes the f32 value that
    was converted, and `dead` removes the conversions that nothing reads.

    bfloat16 is f32 in the graph; `bfloat16` are the names of such tensors.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._wide: dict[str, Tensor] = {}  # by name of the stored value
        self._stored: dict[str, Tensor] = {}  # by name of the f32 value
        self.bfloat16: set[str] = set()

    def constant(self, value: Array) -> Tensor:
        """A constant of the file."""
        made = self._builder.constant(plain(value))
        if is_bfloat16(value):
            self.bfloat16.add(made.name)
        return made

    def rename(self, x: Tensor, name: str) -> Tensor:
        """`Builder.rename`."""
        made = self._builder.rename(x, name)
        if x.name in self.bfloat16:
            self.bfloat16.add(made.name)
        return made

    def operands(self, op: str, given: Sequence[Value | None]) -> list[Value | None]:
        """What the row of `op` gets for the operands `given`."""
        known = any(isinstance(t, Tensor) and t.name in self._wide for t in given)
        if op in _CASTS and given:
            return [self._widened(given[0]) if known else given[0], *given[1:]]
        if op in _UNTOUCHED or (op in _MOVES and not known):
            return list(given)
        return [self._widened(t) for t in given]

    def _widened(self, t: Value | None) -> Value | None:
        if not isinstance(t, Tensor) or t.dtype not in _STORED:
            return t
        if t.name not in self._wide:
            self.remember(t, self._builder.emit(ops.Convert(DType.F32), t))
        return self._wide[t.name]

    def remember(self, stored: Tensor, wide: Tensor) -> None:
        """`wide` is the f32 value that `stored` was made of, or is made of it."""
        self._wide[stored.name] = wide
        self._stored[wide.name] = stored

    def results(
        self, op: str, given: Sequence[Value | None], seen: Sequence[Value | None],
        made: Sequence[Value | None],
    ) -> list[Value | None]:  # fmt: skip
        """What the row of `op` made of the operands `seen`, in the types of the file."""
        typed = given[_TYPED_BY[op] :][:1] if op in _TYPED_BY else given
        floats = [t for t in typed if isinstance(t, Tensor) and t.dtype.is_float]
        if op not in _CASTS and op not in _UNTOUCHED and floats and floats[0].name in self.bfloat16:
            self.mark([t for i, t in enumerate(made) if (op, i) not in _ALWAYS_F32])
        if op in _CASTS or list(given) == list(seen) or not floats:
            return list(made)
        kind = floats[0].dtype
        return [
            self._converted(t, kind)
            if isinstance(t, Tensor) and t.dtype is DType.F32 and (op, i) not in _ALWAYS_F32
            else t
            for i, t in enumerate(made)
        ]

    def mark(self, made: Sequence[Value | None]) -> None:
        """Floats among these are bfloat16."""
        floats = [t for t in made if isinstance(t, Tensor) and t.dtype is DType.F32]
        self.bfloat16.update(t.name for t in floats)

    def _converted(self, t: Tensor, kind: DType) -> Tensor:
        if kind not in _STORED:
            return t
        before = self._stored.get(t.name)
        return before if before is not None else self._builder.emit(ops.Convert(kind), t)
