"""Element types of ONNX files: the graph's types, and float types that are computed in f32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends.common.builder import GraphBuilder
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Tensor

# ONNX's element type numbers.
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
# Supported input types, by name in the file.
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
    """A sequence; its length is known at import time."""

    items: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Texts:
    """Strings, each as its place (s64) in a vocabulary."""

    places: Tensor
    vocabulary: tuple[str, ...]


Value = Tensor | TensorList | Texts


def described(value: Value | None) -> str:
    """The kind of a value, for messages."""
    if value is None:
        return "nothing"
    return {Tensor: "a tensor", TensorList: "a sequence"}.get(type(value), "text")


def texts_of(builder: GraphBuilder, strings: Array) -> Texts:
    """Constant strings; the vocabulary lists them in order of first occurrence."""
    vocabulary = tuple(dict.fromkeys(str(v) for v in strings.reshape(-1)))
    number = {text: i for i, text in enumerate(vocabulary)}
    places = np.array([number[str(v)] for v in strings.reshape(-1)], np.int64)
    return Texts(builder.constant(places.reshape(strings.shape)), vocabulary)


_STRING = 8  # ONNX's number of strings
LEARNED = "ai.onnx.ml:"  # prefix of operators of its domain

_STORED = (DType.F16, DType.F64)
_CASTS = ("Cast", "CastLike")
# Operators that read no values, or whose body is a subgraph.
_UNTOUCHED = {
    "Bernoulli", "BitCast", "ConcatFromSequence", "EyeLike", "If", "Loop", "Optional",
    "OptionalGetElement", "OptionalHasElement", "RandomNormalLike", "RandomUniformLike", "Scan",
    "SequenceAt", "SequenceConstruct", "SequenceErase",
    "SequenceInsert", "SequenceLength", "SequenceMap", "Shape", "Size", "SplitToSequence",
    *(f"{LEARNED}TreeEnsemble{kind}" for kind in ("", "Classifier", "Regressor")),
}  # fmt: skip
# Operators that only move elements: they keep the stored type unless an f32 value is known.
_MOVES = {
    "Compress", "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather",
    "GatherElements", "GatherND", "Identity", "OneHot", "Pad", "Range", "Reshape",
    "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Trilu",
    "Unsqueeze", "Where",
}  # fmt: skip
# The input that determines the output type; for other operators it is the first float input.
_TYPED_BY = {"OneHot": 2, "RMSNormalization": 1}
# Operators of `LEARNED` that return the type of their first input; the others return f32.
_LEARNED_TYPED = {"ArrayFeatureExtractor", "Binarizer", "Imputer"}
_ALWAYS_F32 = {("LayerNormalization", 1), ("LayerNormalization", 2)}  # operator, output


def is_bfloat16(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.name == "bfloat16"


def plain(attribute: Any) -> Any:
    """An attribute in the form handlers expect."""
    return attribute.astype(np.float32) if is_bfloat16(attribute) else attribute


def makes_bfloat16(attributes: Mapping[str, Any]) -> bool:
    """Whether an attribute makes the result type bfloat16."""
    if any(is_bfloat16(v) for v in attributes.values()):
        return True
    asked = [attributes.get(name) for name in ("dtype", "output_dtype")]
    return any(isinstance(number, int) and number == BFLOAT16 for number in asked)


def moves_texts(op: str, attributes: Mapping[str, Any]) -> bool:
    """Whether an operator moves strings just as it moves their places in the vocabulary."""
    if op == "Cast":
        return attributes.get("to") == _STRING
    return op in _MOVES - {"OneHot", "Pad", "Range", "Trilu"}


class Floats:
    """Treats f16 and f64 as storage types: operator handlers see them as f32.

    Results are converted to the file's type. Later operators read the f32 value from before the
    conversion, and the `dead` pass removes conversions that nothing reads.

    bfloat16 is f32 in the graph; `bfloat16` holds the names of these tensors.
    """

    def __init__(self, builder: GraphBuilder) -> None:
        self._builder = builder
        self._wide: dict[str, Tensor] = {}  # by stored tensor name
        self._stored: dict[str, Tensor] = {}  # by f32 tensor name
        self.bfloat16: set[str] = set()

    def constant(self, value: Array) -> Tensor:
        """Adds a constant of the file."""
        made = self._builder.stored(plain(value))
        if is_bfloat16(value):
            self.bfloat16.add(made.name)
        return made

    def rename(self, x: Tensor, name: str) -> Tensor:
        """`GraphBuilder.rename` that preserves the bfloat16 mark."""
        made = self._builder.rename(x, name)
        if x.name in self.bfloat16:
            self.bfloat16.add(made.name)
        return made

    def operands(self, op: str, given: Sequence[Value | None]) -> list[Value | None]:
        """The operands for the handler of `op`, widened to f32 as needed."""
        known = any(isinstance(t, Tensor) and t.name in self._wide for t in given)
        if op in _CASTS and given:
            return [self._widen_to_f32(given[0]) if known else given[0], *given[1:]]
        if op in _UNTOUCHED or (op in _MOVES and not known):
            return list(given)
        return [self._widen_to_f32(t) for t in given]

    def _widen_to_f32(self, t: Value | None) -> Value | None:
        if not isinstance(t, Tensor) or t.dtype not in _STORED:
            return t
        if t.name not in self._wide:
            self.remember(t, self._builder.emit(ops.Convert(DType.F32), t))
        return self._wide[t.name]

    def remember(self, stored: Tensor, wide: Tensor) -> None:
        """Links `stored` and `wide`, the f32 value of the same tensor."""
        self._wide[stored.name] = wide
        self._stored[wide.name] = stored

    def results(
        self, op: str, given: Sequence[Value | None], seen: Sequence[Value | None],
        made: Sequence[Value | None],
    ) -> list[Value | None]:  # fmt: skip
        """The results of the handler of `op` on operands `seen`, converted to the file's types."""
        typed = given[_TYPED_BY[op] :][:1] if op in _TYPED_BY else given
        floats = [t for t in typed if isinstance(t, Tensor) and t.dtype.is_float]
        if op not in _CASTS and op not in _UNTOUCHED and floats and floats[0].name in self.bfloat16:
            self.mark([t for i, t in enumerate(made) if (op, i) not in _ALWAYS_F32])
        own = op.startswith(LEARNED) and op.removeprefix(LEARNED) not in _LEARNED_TYPED
        if op in _CASTS or own or list(given) == list(seen) or not floats:
            return list(made)
        kind = floats[0].dtype
        return [
            self._to_stored_type(t, kind)
            if isinstance(t, Tensor) and t.dtype is DType.F32 and (op, i) not in _ALWAYS_F32
            else t
            for i, t in enumerate(made)
        ]

    def mark(self, made: Sequence[Value | None]) -> None:
        """Marks the f32 tensors among `made` as bfloat16."""
        floats = [t for t in made if isinstance(t, Tensor) and t.dtype is DType.F32]
        self.bfloat16.update(t.name for t in floats)

    def _to_stored_type(self, t: Tensor, kind: DType) -> Tensor:
        if kind not in _STORED:
            return t
        before = self._stored.get(t.name)
        return before if before is not None else self._builder.emit(ops.Convert(kind), t)
