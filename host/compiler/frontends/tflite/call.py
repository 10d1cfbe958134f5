"""One TensorFlow Lite operator as the import handlers (`operators.py`) see it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flatbuffers import flexbuffers
from numpy.typing import NDArray

from edgekit.host.compiler.frontends.common.builder import GraphBuilder
from edgekit.host.compiler.frontends.common.emitter import Emitter
from edgekit.host.compiler.frontends.tflite.checks import check_quantized
from edgekit.host.compiler.frontends.tflite.schema import FileOperator, FileSubgraph, corruption
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import need_dtype
from edgekit.host.compiler.ir.types import (
    Activation,
    Array,
    DType,
    Operator,
    Padding,
    Quant,
    Shape,
    ShapeError,
    State,
    Tensor,
)
from edgekit.host.compiler.ir.windows import Pair, same_padding

ACTIVATIONS = {
    0: Activation.NONE,
    1: Activation.RELU,
    2: Activation.RELU_N1_TO_1,
    3: Activation.RELU6,
}
_SAME, _VALID = 0, 1
_SHAPE_OPERAND_LIMIT = 64


@dataclass(frozen=True)
class Output:
    """The declared type, quantization and shape of an output."""

    dtype: DType
    quant: Quant | None
    shape: Shape = ()  # as stored in the file


@dataclass(frozen=True, eq=False)
class TfliteCall(Emitter):
    """One operator: its options, its input tensors, and the builder it emits to.

    All methods raise `ShapeError` if the file lacks what the operator needs. `note_rows` records a
    result, its number of valid rows, and its number of rows.
    """

    operator: FileOperator
    tensors: Sequence[Tensor | None]
    outputs: Sequence[Output]
    builder: GraphBuilder
    note_rows: Callable[[Tensor, Tensor, int], None]
    variables: Mapping[int, str] = field(default_factory=dict)  # input → state
    intermediates: Sequence[Quant | None] = ()  # their quantizations
    by_block: Mapping[int, str] = field(default_factory=dict)  # f32 input → its quantized type
    states: dict[str, State] = field(default_factory=dict)  # of the graph
    place: str = "operator"  # prefix for names of states
    subgraphs: Sequence[FileSubgraph] = ()  # of the file

    def counted(self, x: Tensor, length: Tensor) -> Tensor:
        """A result whose first `length` ([1] s64) rows are valid."""
        self.note_rows(x, length, x.shape[0])
        return x

    # Inputs

    def tensor(self, index: int, name: str) -> Tensor:
        found = self.maybe(index)
        if found is None:
            raise ShapeError(f"expected input {index} ({name}), found none")
        return found

    def maybe(self, index: int) -> Tensor | None:
        return self.tensors[index] if index < len(self.tensors) else None

    def all(self) -> list[Tensor]:
        if not self.tensors:
            raise ShapeError("expected at least one input, found none")
        return [self.tensor(i, "operand") for i in range(len(self.tensors))]

    def value(self, index: int, name: str) -> Array:
        """A constant input."""
        data = self.tensor(index, name).data
        if data is None:
            raise ShapeError(
                f"expected a constant as input {index} ({name}), found a computed tensor"
            )
        return data

    def integers(self, index: int, name: str) -> tuple[int, ...]:
        """A small constant integer input, flattened: axes, sizes, paddings."""
        tensor = self.tensor(index, name)
        value = tensor.data
        if value is None or tensor.dtype not in (DType.I32, DType.I64):
            raise ShapeError(
                f"expected constant integers as input {index} ({name}), found "
                f"{'a computed tensor' if value is None else tensor.dtype.value}"
            )
        if value.size > _SHAPE_OPERAND_LIMIT:
            raise ShapeError(f"expected a short input {index} ({name}), found {value.size} values")
        return tuple(int(v) for v in value.reshape(-1))

    def rows(self, index: int, name: str, count: int) -> NDArray[np.int64]:
        """A constant [count, 2] integer input: paddings or crops."""
        shape = self.tensor(index, name).shape
        if shape != (count, 2):
            raise ShapeError(f"expected {name} of shape [{count}, 2], found {list(shape)}")
        return np.array(self.integers(index, name), np.int64).reshape(count, 2)

    def integer(self, index: int, name: str) -> int:
        values = self.integers(index, name)
        if len(values) != 1:
            raise ShapeError(f"expected one integer as input {index} ({name}), found {len(values)}")
        return values[0]

    # Options

    def option(self, name: str) -> Any:
        return self.operator.option(name)

    def custom_map(self) -> Mapping[str, Any]:
        """The options of a custom operator stored as a flexbuffer map."""
        content = self.operator.custom_options
        with corruption(f"the options of operator {self.operator.index}"):
            found = flexbuffers.Loads(content) if content else {}
        if not isinstance(found, dict):
            raise ShapeError(f"expected a map of options, found {type(found).__name__}")
        return found

    def custom_number(self, name: str, default: float | None = None) -> float:
        """A finite number from `custom_map`."""
        value = self.custom_map().get(name, default)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ShapeError(f"expected a number as option {name}, found {value!r:.40}")
        return value

    def custom_whole(self, name: str, least: int, most: int, default: int | None = None) -> int:
        """An integer from `custom_map`, between `least` and `most`."""
        value = self.custom_number(name, default)
        if value != int(value) or not least <= value <= most:
            raise ShapeError(f"expected a {name} of {least} to {most}, found {value}")
        return int(value)

    def region(self, name: str) -> str:
        """The single operator in the subgraph that option `name` refers to, applied to both inputs;
        "" if the subgraph just returns its second input."""
        number: int = self.option(name)
        if not 0 < number < len(self.subgraphs):
            raise ShapeError(
                f"expected a subgraph from 1 to {len(self.subgraphs) - 1}, found {number}"
            )
        body = self.subgraphs[number]
        if len(body.inputs) == 2 and not body.operators and body.outputs == body.inputs[1:]:
            return ""
        if len(body.operators) == 1 and len(body.inputs) == 2:
            (only,) = body.operators
            if sorted(only.inputs) == sorted(body.inputs) and only.outputs == body.outputs:
                return only.name
        raise ShapeError(f"expected one operator of two inputs as subgraph {number}, found others")

    def stride(self) -> Pair:
        return _check_positive("stride", self.option("StrideH"), self.option("StrideW"))

    def dilation(self) -> Pair:
        height, width = self.option("DilationHFactor"), self.option("DilationWFactor")
        return _check_positive("dilation", height, width)

    def activation(self) -> Activation:
        number = self.option("FusedActivationFunction")
        if number not in ACTIVATIONS:
            raise ShapeError(f"expected no fused activation or RELU, RELU6, found number {number}")
        return ACTIVATIONS[number]

    def padding(self, size: Pair, window: Pair, stride: Pair) -> Padding:
        """Explicit padding for a (dilated) window on an image of `size`."""
        kind = self.option("Padding")
        if kind == _VALID:
            return Padding()
        if kind != _SAME:
            raise ShapeError(f"expected padding SAME or VALID, found number {kind}")
        top, bottom = same_padding(size[0], window[0], stride[0])
        left, right = same_padding(size[1], window[1], stride[1])
        return Padding(top, bottom, left, right)

    def axis(self, axis: int, rank: int) -> int:
        """A non-negative axis; negative values count from the end."""
        if not -rank <= axis < rank:
            raise ShapeError(f"expected an axis from {-rank} to {rank - 1}, found {axis}")
        return axis % rank

    # Emitting

    @property
    def out_dtype(self) -> DType:
        return self.outputs[0].dtype

    def emit(self, op: Operator, *ins: Tensor | None, quant: Quant | None = None) -> Tensor:
        """Emits `op` and returns its only output, an intermediate tensor."""
        return self._emit_checked(op, ins, quant)[0]

    def result(self, op: Operator, *ins: Tensor | None) -> Tensor:
        """Emits `op` and returns its only output, quantized like the first file output."""
        return self._emit_checked(op, ins, self.outputs[0].quant)[0]

    def results(self, op: Operator, *ins: Tensor | None) -> list[Tensor]:
        """Emits `op`; its outputs are those of the file, with their quantization."""
        made = op.infer(ins)
        if len(made) != len(self.outputs):
            raise ShapeError(f"expected {len(made)} outputs, found {len(self.outputs)}")
        return self._emit_checked(op, ins, [o.quant for o in self.outputs])

    def keep(self, index: int, value: Tensor) -> None:
        """Writes `value` to the variable at input `index`."""
        if index not in self.variables:
            raise ShapeError(f"expected a variable as input {index}, found another tensor")
        if self.tensor(index, "variable").shape != value.shape:
            raise ShapeError(
                f"expected a variable of shape {list(value.shape)}, "
                f"found {list(self.tensor(index, 'variable').shape)}"
            )
        self.builder.emit_all(ops.WriteState(self.variables[index]), [value])

    def plain(self, index: int, *dtypes: DType) -> Tensor:
        """An input as its stored numbers, ignoring quantization."""
        x = self.tensor(index, "operand")
        need_dtype(x, dtypes, f"input {index}")
        return x if x.quant is None else self.emit(ops.BitCast(x.dtype), x)

    def made(self, y: Tensor, index: int = 0) -> Tensor:
        """An output of stored numbers, with the file's quantization attached."""
        quant = self.outputs[index].quant
        return y if quant is None else self.emit(ops.BitCast(y.dtype), y, quant=quant)

    def remembered(self, name: str, initial: Array) -> Tensor:
        """The state `name` as left by the previous run; `initial` on the first run."""
        state = f"{self.place}.{name}"
        known = self.states.setdefault(state, State(state, initial)).initial
        if (known.shape, known.dtype) != (initial.shape, initial.dtype):
            raise ShapeError(f"expected one use of the variable {state}, found another")
        dtype = next(d for d in DType if d.numpy == initial.dtype)
        return self.emit(ops.ReadState(state, initial.shape, dtype))

    def remember(self, name: str, value: Tensor) -> None:
        self.builder.emit_all(ops.WriteState(f"{self.place}.{name}"), [value])

    def _emit_checked(
        self,
        op: Operator,
        ins: Sequence[Tensor | None],
        quant: Quant | Sequence[Quant | None] | None,
    ) -> list[Tensor]:
        outs = self.builder.emit_all(op, ins, quant)
        check_quantized(op, ins, outs)
        return outs


def _check_positive(name: str, height: int, width: int) -> Pair:
    if height < 1 or width < 1:
        raise ShapeError(f"expected a {name} of at least 1, found {height}x{width}")
    return height, width
