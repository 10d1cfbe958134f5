"""The graph: a typed DAG of operators over named tensors, in a valid execution order.

Everything here is immutable: a pass takes a `Graph` and returns another one. Images are NHWC.
Shapes are static: the importer rejects those it cannot make static.
"""

from __future__ import annotations

import abc
import enum
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from edgekit.host.common.content import release_pages
from edgekit.host.compiler.ir.traits import Arithmetic, CostKind, Epilogue, Half, OnQuantized

Array = NDArray[Any]
Shape = tuple[int, ...]


class DType(enum.Enum):
    """Element type; the value is the name used in manifests, C symbols and messages."""

    F32 = "f32"
    F16 = "f16"
    F64 = "f64"
    I8 = "s8"
    U8 = "u8"
    I16 = "s16"
    U16 = "u16"
    I32 = "s32"
    U32 = "u32"
    I64 = "s64"
    U64 = "u64"
    BOOL = "bool"

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(_NUMPY[self])

    @property
    def bytes(self) -> int:
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self in (DType.F32, DType.F16, DType.F64)

    @property
    def is_quantized(self) -> bool:
        return self in (DType.I8, DType.U8)


_NUMPY = {
    DType.F32: np.float32,
    DType.F16: np.float16,
    DType.F64: np.float64,
    DType.I8: np.int8,
    DType.U8: np.uint8,
    DType.I16: np.int16,
    DType.U16: np.uint16,
    DType.I32: np.int32,
    DType.U32: np.uint32,
    DType.I64: np.int64,
    DType.U64: np.uint64,
    DType.BOOL: np.bool_,
}


class Activation(enum.Enum):
    """A clamping activation, which can be fused into other operators."""

    NONE = "none"
    RELU = "relu"
    RELU6 = "relu6"
    RELU_N1_TO_1 = "relu_n1_to_1"
    RELU_0_TO_1 = "relu_0_to_1"

    @property
    def bounds(self) -> tuple[float, float]:
        """Lower and upper bound in real (dequantized) units."""
        inf = float("inf")
        return {
            Activation.NONE: (-inf, inf),
            Activation.RELU: (0.0, inf),
            Activation.RELU6: (0.0, 6.0),
            Activation.RELU_N1_TO_1: (-1.0, 1.0),
            Activation.RELU_0_TO_1: (0.0, 1.0),
        }[self]


@dataclass(frozen=True)
class Padding:
    """Zero (or zero-point) rows and columns around an image."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0

    @property
    def any(self) -> bool:
        return bool(self.top or self.bottom or self.left or self.right)


@dataclass(frozen=True, eq=False)
class Quant:
    """real = scale · (stored − zero_point); per tensor (one value) or per channel of `axis`.

    `rounds_once`: operators round once to these values, as ONNX defines it, not twice as in TFLite.
    `from_u8`: the file's values are u8, these plus 128; f32 arithmetic on them rounds accordingly.
    """

    scale: NDArray[np.float32]
    zero_point: NDArray[np.int64]
    axis: int = 0
    rounds_once: bool = False
    from_u8: bool = False

    @property
    def per_channel(self) -> bool:
        return self.scale.size > 1


@dataclass(frozen=True, eq=False)
class Tensor:
    """One edge of the graph; `data` holds the value of a constant.

    `sparse` marks a constant that the file stored as a sparse tensor. Its `data` is dense, and
    kernels for sparse weights may be chosen for it.
    """

    name: str
    shape: Shape
    dtype: DType
    quant: Quant | None = None
    data: Array | None = None
    sparse: bool = False

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.bytes

    @functools.cached_property
    def packed_bytes(self) -> int:
        """Bytes of a constant s8 if products store it in 2, 3 or 4 bits per value where all fit;
        else `bytes`."""
        if self.data is None or self.dtype is not DType.I8:
            return self.bytes
        least, most = self.data.min(initial=0), self.data.max(initial=0)
        release_pages()
        bits = next((b for b in (2, 3, 4) if least >= -(1 << b - 1) and most < 1 << b - 1), 8)
        return -(-self.bytes * bits // 8)

    @property
    def is_quantized(self) -> bool:
        """Whether the tensor has 8- or 16-bit stored values with a scale."""
        small = self.dtype in (DType.I8, DType.U8, DType.I16)
        return small and self.quant is not None and not self.quant.per_channel


@dataclass(frozen=True)
class Operator(abc.ABC):
    """Attributes of one operator. Subclasses: one file per family in this folder.

    `kind` names the operator in messages, plans and timings (snake case). It is followed by the
    traits that every class or its family declares, then by optional ones.
    """

    kind: ClassVar[str] = ""

    elementwise: ClassVar[bool]  # each result depends on one element per (broadcast) operand
    arithmetic: ClassVar[Arithmetic]
    cost_kind: ClassVar[CostKind]
    on_quantized: ClassVar[OnQuantized]
    half: ClassVar[Half]

    # Leading inputs and outputs that its f16 kernel has in f16, the others in f32; None: all.
    halves: ClassVar[tuple[int, int] | None] = None
    # Equivalent operators in model files; for ONNX, of opset 17 with the fields as attributes.
    onnx: ClassVar[str] = ""
    tflite: ClassVar[str] = ""
    # Results are values of the first operand, each used at most once.
    places_values: ClassVar[bool] = False
    # Float results jump where an operand crosses a threshold.
    jumps: ClassVar[bool] = False
    # Weights are quantized though the other operands are floats.
    quantized_weights: ClassVar[bool] = False
    # Multiplies by weights, or two computed matrices: its work is counted in multiply-adds.
    multiplies: ClassVar[bool] = False
    # Axis of the weights, its second operand, that counts output channels; None: has no weights.
    weight_axis: ClassVar[int | None] = None
    # Kernels skip weights that are zero.
    skips_zeros: ClassVar[bool] = False
    # Kernels read a part of its constants, a place at a time.
    reads_parts: ClassVar[bool] = False
    # A convolution accelerator (NNA) has a form for it; ir/nna.py says which operands fit.
    on_nna: ClassVar[bool] = False
    # f16 kernels use its float parameters rounded to f16.
    rounds_parameters: ClassVar[bool] = False
    # Scale and zero point of results that all engines require.
    fixed_quantization: ClassVar[tuple[float, int] | None] = None
    # Usable as activation of a recurrent layer (recurrent/functions.h).
    recurrent: ClassVar[bool] = False
    # Can be computed in the kernel of a preceding product.
    epilogue_form: ClassVar[Epilogue] = Epilogue.NO
    # Kernels can apply a float function (epilogue) or a table of quantized results to the product.
    takes_epilogue: ClassVar[bool] = False
    takes_table: ClassVar[bool] = False
    # Its kernels in a table of layouts, channels-last and channels-first; None: costs the same.
    layout_kernels: ClassVar[tuple[str, str] | None] = None

    @abc.abstractmethod
    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        """Shape and dtype of each output; raises `ShapeError` if the inputs do not fit."""

    def reference(
        self,
        x: Sequence[Array | None],
        ins: Sequence[Tensor | None],
        outs: Sequence[Tensor],
    ) -> list[Array]:
        """Values of the outputs: the definition that every kernel is tested against.

        Operators on states have no reference; `evaluate` handles them.
        """
        raise TypeError(f"{self.kind} has no reference of its own")

    def saturation(self) -> tuple[float, float] | None:
        """Limits of the operand beyond which quantized results do not change, or None."""
        return None

    def keeps_factors(self, ins: Sequence[Tensor | None]) -> bool:
        """Whether channels, the last axis, stay separate and a positive factor on one commutes with
        the operator, as needed for equalization."""
        return False

    def works_by_rows(self) -> bool:
        """Whether it works along the last axis only, and results have the other axes' sizes."""
        return False

    def terms(self, ins: Sequence[Tensor | None]) -> int:
        """Number of products or values that each result combines; 1 where its kernel's work is
        about that of a copy."""
        if self.weight_axis is None:
            return 1
        weights = ins[1]
        assert weights is not None
        return weights.elements // max(weights.shape[self.weight_axis], 1)


class ShapeError(ValueError):
    """Incompatible inputs of an operator; the importer adds the operator's name."""


class MisfitError(ShapeError):
    """Incompatible by the operator's definition: no engine can run it with these shapes."""


@dataclass(frozen=True)
class Node:
    """`op` applied to named tensors; an omitted optional input is None."""

    name: str
    op: Operator
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class State:
    """A variable that persists between runs; `initial` has its shape and dtype."""

    name: str
    initial: Array


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in a valid order; reads and writes of a state keep the order of this tuple.

    `notes`: decisions of the importer that the user may want to change, one sentence each.
    `output_names`: what the model calls outputs whose name an input has, too.
    `given_bytes`: of the constants in the model's file.
    """

    name: str
    tensors: Mapping[str, Tensor]
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: Mapping[str, State] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    output_names: Mapping[str, str] = field(default_factory=dict)
    given_bytes: int = 0

    def producer(self) -> dict[str, Node]:
        """Map each tensor to the node that writes it."""
        return {t: n for n in self.nodes for t in n.outputs}

    def consumers(self) -> dict[str, list[Node]]:
        """Map each tensor to the nodes that read it (graph outputs are not nodes)."""
        users: dict[str, list[Node]] = {t: [] for t in self.tensors}
        for node in self.nodes:
            for t in dict.fromkeys(node.inputs):
                if t is not None:
                    users[t].append(node)
        return users
