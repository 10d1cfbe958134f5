"""A writer of small .tflite files that gives tests exact control over the contents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import pytest
import tflite

_TYPES = vars(tflite.TensorType)
_YOUNG_TYPES = {"INT2": 19, "UINT4": 20}  # newer than the generated code
_BY_BLOCK = 2  # BlockwiseQuantization

# Operators whose tests need a version above 1 in the file.
_VERSIONS = {
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 3,
    "FULLY_CONNECTED": 3,
    "STRIDED_SLICE": 3,
    "BROADCAST_TO": 3,
}


@dataclass(frozen=True, eq=False)
class FileTensor:
    """`data` may be an array or raw bytes; `scale` and `zero` have one value, or one per
    channel."""

    name: str
    shape: Sequence[int]
    type: str = "FLOAT32"
    data: Any = None
    scale: Sequence[float] = ()
    zero: Sequence[int] = ()
    axis: int = 0
    buffer: int | None = None
    signature: Sequence[int] = ()
    variable: bool = False
    details: int = 0  # kind of extra quantization parameters
    blocks: tuple[Any, Any, int] | None = None  # scale tensor, zero point tensor, block size


@dataclass(frozen=True)
class FileOp:
    """Inputs and outputs by tensor name, or by number to produce invalid ones."""

    code: str
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    options: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    custom: bytes = b""
    intermediates: Sequence[Any] = ()


@dataclass(frozen=True)
class FileSignature:
    """Inputs and outputs: names of the signature, and the tensors of its subgraph by number."""

    name: str
    subgraph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True)
class FileGraph:
    tensors: Sequence[FileTensor]
    ops: Sequence[FileOp]
    inputs: Sequence[Any]
    outputs: Sequence[Any]


class Writer:
    """Builds the flatbuffer bottom-up; one instance per file."""

    def __init__(self) -> None:
        self._builder = flatbuffers.Builder(1024)
        self._buffers: list[bytes] = [b""]
        self._codes: list[str] = []

    def file(
        self,
        graphs: Sequence[FileGraph],
        version: int = 3,
        signatures: Sequence[FileSignature] = (),
    ) -> bytes:
        b = self._builder
        named = [self._signature(s) for s in signatures]
        defs = self._tables(tflite.ModelStartSignatureDefsVector, named) if named else 0
        subgraphs = self._tables(tflite.ModelStartSubgraphsVector, [self._graph(g) for g in graphs])
        codes = self._tables(
            tflite.ModelStartOperatorCodesVector, [self._code(c) for c in self._codes]
        )
        buffers = self._tables(
            tflite.ModelStartBuffersVector, [self._buffer(d) for d in self._buffers]
        )
        tflite.ModelStart(b)
        tflite.ModelAddVersion(b, version)
        tflite.ModelAddOperatorCodes(b, codes)
        tflite.ModelAddSubgraphs(b, subgraphs)
        tflite.ModelAddBuffers(b, buffers)
        if defs:
            tflite.ModelAddSignatureDefs(b, defs)
        b.Finish(tflite.ModelEnd(b), file_identifier=b"TFL3")
        return bytes(b.Output())

    def _tables(self, start: Callable[..., Any], offsets: Sequence[int]) -> int:
        start(self._builder, len(offsets))
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return self._builder.EndVector()

    def _signature(self, signature: FileSignature) -> int:
        b = self._builder
        inputs = self._tables(
            tflite.SignatureDefStartInputsVector, [self._end(*e) for e in signature.inputs.items()]
        )
        outputs = self._tables(
            tflite.SignatureDefStartOutputsVector,
            [self._end(*e) for e in signature.outputs.items()],
        )
        key = b.CreateString(signature.name)
        tflite.SignatureDefStart(b)
        tflite.SignatureDefAddInputs(b, inputs)
        tflite.SignatureDefAddOutputs(b, outputs)
        tflite.SignatureDefAddSignatureKey(b, key)
        tflite.SignatureDefAddSubgraphIndex(b, signature.subgraph)
        return int(tflite.SignatureDefEnd(b))

    def _end(self, name: str, tensor: int) -> int:
        b = self._builder
        text = b.CreateString(name)
        tflite.TensorMapStart(b)
        tflite.TensorMapAddName(b, text)
        tflite.TensorMapAddTensorIndex(b, tensor)
        return int(tflite.TensorMapEnd(b))

    def _graph(self, graph: FileGraph) -> int:
        b = self._builder
        numbers = {t.name: i for i, t in enumerate(graph.tensors)}
        tensors = self._tables(
            tflite.SubGraphStartTensorsVector, [self._tensor(t, numbers) for t in graph.tensors]
        )
        ops = self._tables(
            tflite.SubGraphStartOperatorsVector, [self._op(o, numbers) for o in graph.ops]
        )
        inputs = self._ints(graph.inputs, numbers)
        outputs = self._ints(graph.outputs, numbers)
        tflite.SubGraphStart(b)
        tflite.SubGraphAddTensors(b, tensors)
        tflite.SubGraphAddInputs(b, inputs)
        tflite.SubGraphAddOutputs(b, outputs)
        tflite.SubGraphAddOperators(b, ops)
        return tflite.SubGraphEnd(b)

    def _ints(self, values: Sequence[Any], numbers: Mapping[str, int] | None = None) -> int:
        ints = [(numbers or {}).get(v, v) for v in values]
        return self._builder.CreateNumpyVector(np.array(ints, np.int32))

    def _tensor(self, tensor: FileTensor, numbers: Mapping[str, int]) -> int:
        b = self._builder
        name, shape = b.CreateString(tensor.name), self._ints(tensor.shape)
        signature = self._ints(tensor.signature) if len(tensor.signature) else 0
        quant = self._by_block(tensor, numbers) if tensor.blocks else self._quant(tensor)
        number = tensor.buffer
        if number is None:
            number = 0
            if tensor.data is not None:
                data = tensor.data
                self._buffers.append(data if isinstance(data, bytes) else data.tobytes())
                number = len(self._buffers) - 1
        tflite.TensorStart(b)
        tflite.TensorAddName(b, name)
        tflite.TensorAddShape(b, shape)
        tflite.TensorAddType(b, _YOUNG_TYPES.get(tensor.type) or _TYPES[tensor.type])
        tflite.TensorAddBuffer(b, number)
        if signature:
            tflite.TensorAddShapeSignature(b, signature)
        if tensor.variable:
            tflite.TensorAddIsVariable(b, True)
        if quant:
            tflite.TensorAddQuantization(b, quant)
        return tflite.TensorEnd(b)

    def _quant(self, tensor: FileTensor) -> int:
        if not len(tensor.scale) and not tensor.details:
            return 0
        b = self._builder
        scale = b.CreateNumpyVector(np.array(tensor.scale, np.float32))
        zero = b.CreateNumpyVector(np.array(tensor.zero or [0] * len(tensor.scale), np.int64))
        tflite.QuantizationParametersStart(b)
        tflite.QuantizationParametersAddScale(b, scale)
        tflite.QuantizationParametersAddZeroPoint(b, zero)
        tflite.QuantizationParametersAddQuantizedDimension(b, tensor.axis)
        tflite.QuantizationParametersAddDetailsType(b, tensor.details)
        return tflite.QuantizationParametersEnd(b)

    def _by_block(self, tensor: FileTensor, numbers: Mapping[str, int]) -> int:
        """Write BlockwiseQuantization, which the generated code lacks."""
        b = self._builder
        assert tensor.blocks is not None
        b.StartObject(3)
        for slot, value in enumerate(tensor.blocks):
            b.PrependInt32Slot(slot, numbers.get(value, value), 0)
        blocks = b.EndObject()
        tflite.QuantizationParametersStart(b)
        tflite.QuantizationParametersAddQuantizedDimension(b, tensor.axis)
        tflite.QuantizationParametersAddDetailsType(b, tensor.details or _BY_BLOCK)
        tflite.QuantizationParametersAddDetails(b, blocks)
        return int(tflite.QuantizationParametersEnd(b))

    def _op(self, op: FileOp, numbers: Mapping[str, int]) -> int:
        b = self._builder
        if op.code not in self._codes:
            self._codes.append(op.code)
        inputs, outputs = self._ints(op.inputs, numbers), self._ints(op.outputs, numbers)
        options = self._options(op) if op.options else 0
        custom = b.CreateByteVector(op.custom) if op.custom else 0
        between = self._ints(op.intermediates, numbers) if op.intermediates else 0
        tflite.OperatorStart(b)
        tflite.OperatorAddOpcodeIndex(b, self._codes.index(op.code))
        tflite.OperatorAddInputs(b, inputs)
        tflite.OperatorAddOutputs(b, outputs)
        kind = getattr(tflite.BuiltinOptions, op.options, None) if options else None
        if kind is not None:
            tflite.OperatorAddBuiltinOptionsType(b, kind)
            tflite.OperatorAddBuiltinOptions(b, options)
        elif options:  # of newer operators
            tflite.OperatorAddBuiltinOptions2Type(b, getattr(tflite.BuiltinOptions2, op.options))
            tflite.OperatorAddBuiltinOptions2(b, options)
        if custom:
            tflite.OperatorAddCustomOptions(b, custom)
        if between:
            tflite.OperatorAddIntermediates(b, between)
        return tflite.OperatorEnd(b)

    def _options(self, op: FileOp) -> int:
        b = self._builder
        fields = {}
        for name, value in op.fields.items():
            if isinstance(value, str):
                fields[name] = b.CreateString(value)
            elif isinstance(value, np.ndarray):
                fields[name] = b.CreateNumpyVector(value)
            else:
                fields[name] = self._ints(value) if isinstance(value, list | tuple) else value
        getattr(tflite, f"{op.options}Start")(b)
        for name, value in fields.items():
            getattr(tflite, f"{op.options}Add{name}")(b, value)
        return int(getattr(tflite, f"{op.options}End")(b))

    def _code(self, code: str) -> int:
        b = self._builder
        name, _, custom = code.partition(":")
        custom_name = b.CreateString(custom) if custom else 0
        number = getattr(tflite.BuiltinOperator, name)
        tflite.OperatorCodeStart(b)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(b, min(number, 127))
        tflite.OperatorCodeAddBuiltinCode(b, number)
        tflite.OperatorCodeAddVersion(b, _VERSIONS.get(name, 1))
        if custom_name:
            tflite.OperatorCodeAddCustomCode(b, custom_name)
        return tflite.OperatorCodeEnd(b)

    def _buffer(self, data: bytes) -> int:
        b = self._builder
        vector = b.CreateByteVector(data) if data else 0
        tflite.BufferStart(b)
        if vector:
            tflite.BufferAddData(b, vector)
        return tflite.BufferEnd(b)


@dataclass(frozen=True)
class Files:
    """The writer's building blocks, and `model`, which serializes one graph."""

    tensor: type[FileTensor] = FileTensor
    op: type[FileOp] = FileOp
    graph: type[FileGraph] = FileGraph
    signature: type[FileSignature] = FileSignature

    def model(
        self, *graphs: FileGraph, version: int = 3, signatures: Sequence[FileSignature] = ()
    ) -> bytes:
        return Writer().file(graphs, version, signatures)


@pytest.fixture(scope="session")
def files() -> Files:
    return Files()
