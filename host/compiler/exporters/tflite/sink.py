"""Operator emission for TensorFlow Lite export handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgekit.host.compiler.exporters.halves import as_halves
from edgekit.host.compiler.exporters.refusal import refused
from edgekit.host.compiler.exporters.tflite.file import OperatorRecord, SubgraphRecord, TensorRecord
from edgekit.host.compiler.ir.by_operator import ByOperator
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.types import (
    Activation,
    Array,
    DType,
    Graph,
    Node,
    Operator,
    Quant,
    Shape,
    Tensor,
)
from edgekit.host.errors import InputError

FUSED = {
    Activation.NONE: 0,
    Activation.RELU: 1,
    Activation.RELU_N1_TO_1: 2,
    Activation.RELU6: 3,
}
CLAMPS = {
    Activation.RELU: "RELU",
    Activation.RELU_N1_TO_1: "RELU_N1_TO_1",
    Activation.RELU6: "RELU6",
    Activation.RELU_0_TO_1: "RELU_0_TO_1",
}
_OF_HALVES = 3  # version of DEQUANTIZE that accepts f16


class TfliteSink:
    """The tensors and operators of one subgraph of the file, in file order."""

    def __init__(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        self._name = name
        self._known = dict(tensors)
        self._taken = set(tensors)
        self._numbers: dict[str, int] = {}
        self._records: list[TensorRecord] = []
        self._operators: list[OperatorRecord] = []

    def number(self, name: str) -> int:
        """The index of a tensor in the file, assigned on first use."""
        if name not in self._numbers:
            t = self._known[name]
            if t.dtype.is_float and t.quant is not None:  # floats may record their quantization
                t = replace(t, quant=None)
            if t.data is None or not self._add_compressed(t, t.data):
                self._add_record(TensorRecord(name, t.shape, t.dtype, t.quant, t.data))
        return self._numbers[name]

    def _add_compressed(self, t: Tensor, data: Array) -> bool:
        """Stores a constant compressed (sparse, f16 if that is lossless, or both) and emits the
        operators that expand it, which engines run once at load time. False if neither applies."""
        half = as_halves(data)
        stored, dtype = (data, t.dtype) if half is None else (half, DType.F16)
        dense = not (t.sparse and data.any())  # an empty buffer would not be a constant
        steps = [] if dense else ["DENSIFY"]
        steps += [] if half is None else ["DEQUANTIZE"]
        if not steps:
            return False
        name = fresh_name(f"{t.name}.stored", self._taken)
        self._add_record(TensorRecord(name, t.shape, dtype, t.quant, stored, not dense))
        for step in steps:
            source, last = self._numbers[name], step == steps[-1]
            name = t.name if last else fresh_name(f"{t.name}.dense", self._taken)
            self._add_record(TensorRecord(name, t.shape, t.dtype if last else dtype, t.quant))
            version = _OF_HALVES if step == "DEQUANTIZE" else 1
            made, options = self._numbers[name], f"{step.capitalize()}Options"
            self._operators.append(OperatorRecord(step, version, (source,), (made,), options))
        return True

    def keep(self, like: Tensor) -> Tensor:
        """Registers a new tensor with a unique name derived from that of `like`."""
        own = replace(like, name=fresh_name(like.name, self._taken))
        self._known[own.name] = own
        return own

    def handle(self, state: str) -> int:
        """The index of a new tensor that refers to a variable."""
        name = fresh_name(f"{state}.handle", self._taken)
        self._add_record(TensorRecord(name, (), None))
        return self._numbers[name]

    def operator(self, record: OperatorRecord) -> None:
        self._operators.append(record)

    def finish(self, inputs: Sequence[str] = (), outputs: Sequence[str] = ()) -> SubgraphRecord:
        ends = [tuple(self.number(name) for name in names) for names in (inputs, outputs)]
        return SubgraphRecord(self._name, self._records, self._operators, *ends)

    def _add_record(self, record: TensorRecord) -> None:
        self._numbers[record.name] = len(self._records)
        self._records.append(record)


@dataclass(frozen=True, eq=False)
class TfliteExportCall:
    """One node, its tensors, and the sink it is written to."""

    graph: Graph
    node: Node
    sink: TfliteSink

    def operand(self, index: int) -> Tensor:
        name = self.node.inputs[index]
        assert name is not None, f"{self.node.name} lacks input {index}"
        return self.graph.tensors[name]

    def maybe(self, index: int) -> Tensor | None:
        name = self.node.inputs[index] if index < len(self.node.inputs) else None
        return None if name is None else self.graph.tensors[name]

    @property
    def operands(self) -> list[Tensor | None]:
        return [self.maybe(i) for i in range(len(self.node.inputs))]

    @property
    def outs(self) -> list[Tensor]:
        return [self.graph.tensors[name] for name in self.node.outputs]

    @property
    def out(self) -> Tensor:
        return self.outs[0]

    def refuse(self, expected: str, found: str, instead: str) -> InputError:
        return refused(self.node, "TensorFlow Lite", expected, found, instead)

    def like(
        self,
        x: Tensor,
        shape: Shape | None = None,
        dtype: DType | None = None,
        quant: Quant | None = None,
    ) -> Tensor:
        """A new intermediate tensor: a copy of `x` without data, with the given overrides. A new
        quantized `dtype` needs a `quant`."""
        made = replace(
            x,
            name=f"{self.node.name}.part",
            shape=x.shape if shape is None else shape,
            dtype=dtype or x.dtype,
            quant=quant if quant is not None or dtype is not None else x.quant,
            data=None,
            sparse=False,
        )
        return self.sink.keep(made)

    def constant(self, value: Array, dtype: DType, quant: Quant | None = None) -> Tensor:
        data = np.ascontiguousarray(value, dtype.numpy).reshape(np.shape(value))
        name = f"{self.node.name}.const"
        return self.sink.keep(Tensor(name, data.shape, dtype, quant, data))

    def integers(self, values: Sequence[int] | Array) -> Tensor:
        return self.constant(np.array(values), DType.I32)

    def emit(
        self,
        code: str,
        ins: Sequence[Tensor | None],
        outs: Sequence[Tensor] | Tensor,
        options: str = "",
        version: int = 1,
        **fields: Any,
    ) -> None:
        """Emits one operator; trailing absent inputs are omitted."""
        present = list(ins)
        while present and present[-1] is None:
            present.pop()
        made = [outs] if isinstance(outs, Tensor) else outs
        number = self.sink.number
        self.sink.operator(
            OperatorRecord(
                code,
                version,
                tuple(-1 if t is None else number(t.name) for t in present),
                tuple(number(t.name) for t in made),
                options,
                fields,
            )
        )

    def activated(
        self,
        code: str,
        ins: Sequence[Tensor | None],
        activation: Activation,
        options: str,
        version: int = 1,
        out: Tensor | None = None,
        **fields: Any,
    ) -> None:
        """Emits an operator with a fused activation, or followed by one if the format cannot fuse
        it. `out` overrides the node's output."""
        last = self.out if out is None else out
        apart = activation not in FUSED
        made = self.like(last) if apart else last
        fused = FUSED.get(activation, 0)
        self.emit(code, ins, made, options, version, FusedActivationFunction=fused, **fields)
        if apart:
            self.emit(CLAMPS[activation], [made], last)


@contextmanager
def in_floats(call: TfliteExportCall) -> Iterator[TfliteExportCall]:
    """The same node on real values: dequantizes the inputs and quantizes the outputs."""
    tensors = dict(call.graph.tensors)
    ins, outs = list(call.node.inputs), list(call.node.outputs)
    for i, t in enumerate(call.operands):
        if t is not None and t.is_quantized:
            real = call.like(t, dtype=DType.F32)
            call.emit("DEQUANTIZE", [t], real, "DequantizeOptions", 2)
            tensors[real.name], ins[i] = real, real.name
    quantized = [(i, t) for i, t in enumerate(call.outs) if t.is_quantized]
    for i, t in quantized:
        real = call.like(t, dtype=DType.F32)
        tensors[real.name], outs[i] = real, real.name
    node = replace(call.node, inputs=tuple(ins), outputs=tuple(outs))
    yield TfliteExportCall(replace(call.graph, tensors=tensors), node, call.sink)
    for i, t in quantized:
        call.emit("QUANTIZE", [tensors[outs[i]]], t, "QuantizeOptions")


Fields = dict[str, Any]
Row = Callable[[TfliteExportCall, Any], None]
writes = ByOperator[Row]()  # decorator that registers a handler


def floats_only(row: Row) -> Row:
    """Wraps a handler whose operator LiteRT only supports in float: quantized operands are
    converted before and after."""

    def write(call: TfliteExportCall, op: Operator) -> None:
        if not call.operand(0).is_quantized:
            row(call, op)
            return
        with in_floats(call) as real:
            row(real, op)

    return write
