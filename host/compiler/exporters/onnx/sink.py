"""Node emission for ONNX export handlers, and the layouts in which each tensor exists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.host.compiler.exporters.gates import gates_of
from edgekit.host.compiler.exporters.halves import as_halves
from edgekit.host.compiler.exporters.refusal import refused
from edgekit.host.compiler.ir.by_operator import ByOperator
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.quantization import (
    dequantize,
    quantized_range,
)
from edgekit.host.compiler.ir.types import (
    Activation,
    Array,
    DType,
    Graph,
    Node,
    Quant,
    Shape,
    Tensor,
)
from edgekit.host.errors import InputError

TO_IMAGE = (0, 3, 1, 2)
FROM_IMAGE = (0, 2, 3, 1)


@dataclass(frozen=True)
class NodeRecord:
    """`attributes`: numbers, strings or sequences of integers, by ONNX name."""

    kind: str
    inputs: tuple[str, ...]
    outputs: list[str]
    attributes: dict[str, Any]


class OnnxSink:
    """Nodes and constants of the file, and the names of all forms of the graph's tensors."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.gates = gates_of(graph)
        self.nodes: list[NodeRecord] = []
        self.constants: dict[str, Array] = {}
        self._taken = set(graph.tensors)
        self._known: dict[tuple[bytes, Shape, str], str] = {}
        self._forms: dict[tuple[str, bool, bool], str] = {}
        self._made: dict[str, tuple[NodeRecord, int]] = {}  # results without a final name yet
        for name in graph.inputs:
            self._forms[name, False, False] = name

    def has_own(self, t: Tensor) -> bool:
        """Whether a tensor exists in the graph's layout, so that reading it needs no transpose."""
        return t.data is not None or (t.name, False, False) in self._forms

    def get(self, t: Tensor, image: bool = False, real: bool = True) -> str:
        """The name of the requested form of `t`, which is created if needed."""
        key = (t.name, image, real and t.is_quantized)
        if key not in self._forms:
            self._forms[key] = self._convert_form(t, image, key[2])
            self._made.pop(self._forms[key], None)
        return self._forms[key]

    def _convert_form(self, t: Tensor, image: bool, real: bool) -> str:
        if real and t.quant is not None:
            return self.dequantized(self.get(t, image, False), t.quant, t.dtype)
        if t.data is not None:
            data = t.data
            if image:
                data = data.reshape((1,) * (4 - data.ndim) + data.shape).transpose(TO_IMAGE)
            return self.constant(data)
        made = self.step("Transpose", [self.get(t, not image, False)],
                         perm=TO_IMAGE if image else FROM_IMAGE)  # fmt: skip
        return made if image else self._assign_name(t, made)

    def put(self, t: Tensor, made: str, image: bool = False, real: bool = True) -> None:
        """Registers `made` as a form of the node's result `t`. A quantized `t` given as real values
        is quantized first."""
        if real and t.is_quantized and t.quant is not None:
            made = self.step("QuantizeLinear", [made, *self.scale(t.quant, t.dtype)])
        self._forms[t.name, image, False] = made if image else self._assign_name(t, made)
        self._made.pop(made, None)

    def _assign_name(self, t: Tensor, made: str) -> str:
        """Gives a result the tensor's name if it has no final name yet or is a graph output."""
        place = self._made.pop(made, None)
        if place is None and t.name in self.graph.outputs:
            place = self._made.pop(self.step("Identity", [made]))
        if place is None:
            return made
        record, index = place
        record.outputs[index] = t.name
        return t.name

    def scale(self, quant: Quant, dtype: DType) -> list[str]:
        """Scale and zero point as constants, per tensor or per channel."""
        scale, zero = quant.scale.reshape(-1), quant.zero_point.reshape(-1).astype(dtype.numpy)
        if not quant.per_channel:
            return [self.constant(scale[0]), self.constant(zero[0])]
        return [self.constant(scale), self.constant(np.resize(zero, scale.size))]

    def dequantized(self, quantized: str, quant: Quant, dtype: DType) -> str:
        axis = {"axis": quant.axis} if quant.per_channel else {}
        return self.step("DequantizeLinear", [quantized, *self.scale(quant, dtype)], **axis)

    def step(self, kind: str, ins: Sequence[str], **attributes: Any) -> str:
        """Emits a node with one result; its name is temporary until `put` binds it to a tensor."""
        return self.steps(kind, ins, 1, **attributes)[0]

    def steps(self, kind: str, ins: Sequence[str], count: int, **attributes: Any) -> list[str]:
        for name in ins:
            self._made.pop(name, None)
        outs = [fresh_name(f"{kind}_{len(self.nodes)}", self._taken) for _ in range(count)]
        record = NodeRecord(kind, tuple(ins), outs, attributes)
        self.nodes.append(record)
        self._made.update({name: (record, i) for i, name in enumerate(outs)})
        return list(outs)

    def constant(self, value: Array | np.generic) -> str:
        """The name of a constant. Equal constants are stored once, as f16 if that is lossless."""
        data = np.asarray(value)
        data = np.ascontiguousarray(data).reshape(data.shape)
        key = (data.tobytes(), data.shape, data.dtype.str)
        if key not in self._known:
            half = as_halves(data)
            name = fresh_name(f"constant_{len(self.constants)}", self._taken)
            self.constants[name] = data if half is None else half
            if half is not None:  # engines fold this once, at load time
                name = self.step("Cast", [name], to=DType.F32)
                del self._made[name]
            self._known[key] = name
        return self._known[key]


@dataclass(frozen=True, eq=False)
class OnnxExportCall:
    """One node of the graph, and the sink it is written to."""

    node: Node
    sink: OnnxSink

    @property
    def operands(self) -> list[Tensor | None]:
        known = self.sink.graph.tensors
        return [None if name is None else known[name] for name in self.node.inputs]

    def operand(self, index: int) -> Tensor:
        found = self.operands[index]
        assert found is not None, f"{self.node.name} lacks input {index}"
        return found

    @property
    def outs(self) -> list[Tensor]:
        return [self.sink.graph.tensors[name] for name in self.node.outputs]

    @property
    def out(self) -> Tensor:
        return self.outs[0]

    def refuse(self, expected: str, found: str, instead: str) -> InputError:
        return refused(self.node, "ONNX", expected, found, instead)

    def step(self, kind: str, ins: Sequence[str], **attributes: Any) -> str:
        return self.sink.step(kind, ins, **attributes)

    def number(self, value: float, like: Tensor) -> str:
        """A scalar of the type in which operators on `like` compute."""
        dtype = DType.F32 if like.is_quantized else like.dtype
        return self.sink.constant(np.array(value, dtype.numpy))

    def integers(self, values: Sequence[int]) -> str:
        return self.sink.constant(np.array(values, np.int64))

    @property
    def image(self) -> bool:
        """Whether a layout-agnostic operator should run on NCHW images: if an operand exists only
        in that layout."""
        tensors = [t for t in self.operands if t is not None]
        computed = [t for t in tensors if t.data is None and t.elements > 1]
        ranks = {len(t.shape) for t in (*computed, *self.outs)}
        return ranks == {4} and any(not self.sink.has_own(t) for t in computed)

    def inputs(self, image: bool, real: bool = True) -> list[str]:
        """All operands in one form; scalars broadcast in either layout."""
        present = [t for t in self.operands if t is not None]
        small = {t.name for t in present if len(t.shape) < 4 and t.elements == 1}
        return [self.sink.get(t, image and t.name not in small, real) for t in present]

    def weights(self, t: Tensor, order: Sequence[int]) -> str:
        """Constant weights with their axes in `order`. Quantized weights stay quantized, with
        per-channel scales; float weights that record their quantization are quantized again."""
        quantized, quant = _stored_form(t)
        data = np.ascontiguousarray(quantized.transpose(order))
        name = self.sink.constant(data)
        if quant is None:
            return name
        axis = list(order).index(quant.axis) if quant.per_channel else 0
        kind = DType.I8 if t.dtype.is_float else t.dtype
        return self.sink.dequantized(name, Quant(quant.scale, quant.zero_point, axis), kind)

    def bias(self, x: Tensor, w: Tensor, bias: Tensor) -> str:
        """A constant bias; an s32 bias is dequantized with the scale of the products."""
        assert bias.data is not None
        if bias.dtype is not DType.I32 or x.quant is None or w.quant is None:
            return self.sink.constant(bias.data)
        scale = (x.quant.scale.reshape(-1)[0] * w.quant.scale.reshape(-1)).astype(np.float32)
        quant = Quant(scale, np.zeros(scale.size, np.int64))
        return self.sink.dequantized(self.sink.constant(bias.data), quant, DType.I32)

    def activated(self, made: str, activation: Activation) -> str:
        """`made` followed by an activation."""
        low, high = activation.bounds
        if activation is Activation.NONE:
            return made
        if activation is Activation.RELU:
            return self.step("Relu", [made])
        return self.step("Clip", [made, self.number(low, self.out), self.number(high, self.out)])


def _stored_form(t: Tensor) -> tuple[Array, Quant | None]:
    """The stored form of a constant: the original integers if it was dequantized losslessly."""
    assert t.data is not None
    if t.quant is None or t.dtype is not DType.F32:
        return t.data, t.quant
    shape = [1] * t.data.ndim
    if t.quant.per_channel:
        shape[t.quant.axis] = t.quant.scale.size
    low, high = quantized_range(DType.I8)
    zero = t.quant.zero_point.reshape(shape)
    quantized = np.rint(t.data / t.quant.scale.reshape(shape)) + zero
    stored = np.clip(quantized, low, high).astype(np.int8)
    exact = np.array_equal(dequantize(stored, t.quant), t.data)
    return (stored, t.quant) if exact else (t.data, None)


Row = Callable[[OnnxExportCall, Any], None]
writes = ByOperator[Row]()  # decorator that registers a handler
