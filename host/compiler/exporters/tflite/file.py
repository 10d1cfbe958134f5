"""Serializes plain records to the flatbuffer of a .tflite file; output is deterministic."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import tflite

from edgekit.host.compiler.ir.types import Array, DType, Quant, Shape
from edgekit.host.errors import InputError

TYPES = {
    DType.F16: tflite.TensorType.FLOAT16,
    DType.F32: tflite.TensorType.FLOAT32,
    DType.F64: tflite.TensorType.FLOAT64,
    DType.I8: tflite.TensorType.INT8,
    DType.U8: tflite.TensorType.UINT8,
    DType.I16: tflite.TensorType.INT16,
    DType.U16: tflite.TensorType.UINT16,
    DType.I32: tflite.TensorType.INT32,
    DType.U32: tflite.TensorType.UINT32,
    DType.I64: tflite.TensorType.INT64,
    DType.U64: tflite.TensorType.UINT64,
    DType.BOOL: tflite.TensorType.BOOL,
}
_SCHEMA_VERSION = 3
_ALIGNMENT = 16  # of constants in the file, because engines map them
_SIZE_LIMIT = (1 << 31) - (1 << 24)  # flatbuffer offsets have 31 bits
_LAST_BYTE_CODE = 127  # codes from here on fit only in the newer 32-bit field
_INDICES = (("Uint8Vector", np.uint8), ("Uint16Vector", np.uint16), ("Int32Vector", np.int32))
_SIGNATURE = "serving_default"


@dataclass(frozen=True, eq=False)
class TensorRecord:
    """`dtype` None: handle of a variable. `sparse`: only non-zero values are stored."""

    name: str
    shape: Shape
    dtype: DType | None
    quant: Quant | None = None
    data: Array | None = None
    sparse: bool = False


@dataclass(frozen=True)
class OperatorRecord:
    """`inputs` and `outputs` are tensor indices, -1 if absent; `fields` are the fields of the
    schema table `options`, by schema name."""

    code: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SubgraphRecord:
    name: str
    tensors: Sequence[TensorRecord]
    operators: Sequence[OperatorRecord]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def pack(subgraphs: Sequence[SubgraphRecord], metadata: Mapping[str, bytes]) -> bytes:
    """A .tflite file with `metadata` by name. Raises `InputError` if it would exceed 2 GiB."""
    total = sum(t.data.nbytes for g in subgraphs for t in g.tensors if t.data is not None)
    total += sum(len(content) for content in metadata.values())
    if total > _SIZE_LIMIT:
        raise InputError(
            f"expected constants of at most {_SIZE_LIMIT >> 20} MiB in a .tflite file, found "
            f"{total >> 20} MiB; write an .onnx file, or quantize the weights"
        )
    return _Packer().file(subgraphs, metadata)


class _Packer:
    """Builds the flatbuffer bottom-up; one instance per file. Equal vectors and tables are stored
    once: in a small quantized model, zero points, shapes and the like take as many bytes as
    biases."""

    def __init__(self) -> None:
        self._builder = flatbuffers.Builder(1 << 16)
        self._buffers: dict[bytes, int] = {b"": 0}
        self._codes: dict[tuple[str, int], int] = {}
        self._stored: dict[Hashable, int] = {}

    def file(self, subgraphs: Sequence[SubgraphRecord], metadata: Mapping[str, bytes]) -> bytes:
        b = self._builder
        graphs = self._write_offsets([self._write_subgraph(g) for g in subgraphs])
        signatures = self._write_offsets([self._write_signature(subgraphs[0])])
        notes = self._write_offsets(
            [self._write_metadata(name, data) for name, data in metadata.items()]
        )
        codes = self._write_offsets([self._write_operator_code(*code) for code in self._codes])
        buffers = self._write_offsets([self._write_buffer(data) for data in self._buffers])
        description = self._write_string("edgekit")
        tflite.ModelStart(b)
        tflite.ModelAddVersion(b, _SCHEMA_VERSION)
        tflite.ModelAddOperatorCodes(b, codes)
        tflite.ModelAddSubgraphs(b, graphs)
        tflite.ModelAddDescription(b, description)
        tflite.ModelAddBuffers(b, buffers)
        if metadata:
            tflite.ModelAddMetadata(b, notes)
        tflite.ModelAddSignatureDefs(b, signatures)
        b.Finish(tflite.ModelEnd(b), file_identifier=b"TFL3")
        return bytes(b.Output())

    def _write_once(self, content: Hashable, make: Callable[[], Any]) -> int:
        """The offset of `content`, which `make` writes on first use."""
        if content not in self._stored:
            self._stored[content] = int(make())
        return self._stored[content]

    def _write_offsets(self, offsets: Sequence[int]) -> int:
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return int(self._builder.EndVector())

    def _write_vector(self, values: Array) -> int:
        key = values.dtype.str, values.tobytes()
        return self._write_once(key, lambda: self._builder.CreateNumpyVector(values))

    def _write_ints(self, values: Sequence[int]) -> int:
        return self._write_vector(np.array(values, np.int32))

    def _write_string(self, text: str) -> int:
        return int(self._builder.CreateSharedString(text))

    def _write_subgraph(self, graph: SubgraphRecord) -> int:
        b = self._builder
        tensors = self._write_offsets([self._write_tensor(t) for t in graph.tensors])
        operators = self._write_offsets([self._write_operator(o) for o in graph.operators])
        inputs, outputs = self._write_ints(graph.inputs), self._write_ints(graph.outputs)
        name = self._write_string(graph.name)
        tflite.SubGraphStart(b)
        tflite.SubGraphAddTensors(b, tensors)
        tflite.SubGraphAddInputs(b, inputs)
        tflite.SubGraphAddOutputs(b, outputs)
        tflite.SubGraphAddOperators(b, operators)
        tflite.SubGraphAddName(b, name)
        return int(tflite.SubGraphEnd(b))

    def _write_tensor(self, tensor: TensorRecord) -> int:
        b = self._builder
        name, shape = self._write_string(tensor.name), self._write_ints(tensor.shape)
        quant = 0 if tensor.quant is None else self._write_quant(tensor.quant)
        buffer, sparsity = 0, 0
        if tensor.data is not None:
            data = np.ascontiguousarray(tensor.data)
            sparsity = self._write_sparsity(data) if tensor.sparse else 0
            content = data[data != 0].tobytes() if tensor.sparse else data.tobytes()
            buffer = self._buffers.setdefault(content, len(self._buffers))
        kind = tflite.TensorType.RESOURCE if tensor.dtype is None else TYPES[tensor.dtype]
        tflite.TensorStart(b)
        tflite.TensorAddShape(b, shape)
        tflite.TensorAddType(b, kind)
        tflite.TensorAddBuffer(b, buffer)
        tflite.TensorAddName(b, name)
        if quant:
            tflite.TensorAddQuantization(b, quant)
        if sparsity:
            tflite.TensorAddSparsity(b, sparsity)
        tflite.TensorAddHasRank(b, True)
        return int(tflite.TensorEnd(b))

    def _write_quant(self, quant: Quant) -> int:
        b = self._builder
        scale = self._write_vector(quant.scale.astype(np.float32).reshape(-1))
        wide = np.broadcast_to(quant.zero_point.reshape(-1), quant.scale.size)
        zero = self._write_vector(wide.astype(np.int64))

        def table() -> Any:
            tflite.QuantizationParametersStart(b)
            tflite.QuantizationParametersAddScale(b, scale)
            tflite.QuantizationParametersAddZeroPoint(b, zero)
            tflite.QuantizationParametersAddQuantizedDimension(b, quant.axis)
            return tflite.QuantizationParametersEnd(b)

        return self._write_once(("quantization", scale, zero, quant.axis), table)

    def _write_sparsity(self, data: Array) -> int:
        """The table of non-zero positions: rows of the last axis, compressed (CSR)."""
        b, (*lead, row) = self._builder, data.shape
        counts = np.count_nonzero(data.reshape(-1, row), axis=1)
        segments = self._write_indices(np.concatenate([[0], np.cumsum(counts)]))
        places = self._write_indices(np.nonzero(data.reshape(-1, row))[1])
        levels = [self._write_dimension(size) for size in lead]
        levels.append(self._write_dimension(0, segments, places))
        order, tables = self._write_ints(range(data.ndim)), self._write_offsets(levels)
        tflite.SparsityParametersStart(b)
        tflite.SparsityParametersAddTraversalOrder(b, order)
        tflite.SparsityParametersAddDimMetadata(b, tables)
        return int(tflite.SparsityParametersEnd(b))

    def _write_indices(self, values: Array) -> tuple[int, int]:
        """The type and offset of a vector of non-negative integers, in the narrowest type."""
        kind, dtype = next(
            pair for pair in _INDICES if values.max(initial=0) <= np.iinfo(pair[1]).max
        )
        vector = self._write_vector(values.astype(dtype))
        _schema_function(f"{kind}Start")(self._builder)
        _schema_function(f"{kind}AddValues")(self._builder, vector)
        return getattr(tflite.SparseIndexVector, kind), _schema_function(f"{kind}End")(
            self._builder
        )

    def _write_dimension(
        self, size: int, segments: tuple[int, int] = (0, 0), places: tuple[int, int] = (0, 0)
    ) -> int:
        """One axis: dense with `size` elements, or compressed."""
        b = self._builder
        tflite.DimensionMetadataStart(b)
        if size:
            tflite.DimensionMetadataAddFormat(b, tflite.DimensionType.DENSE)
            tflite.DimensionMetadataAddDenseSize(b, size)
        else:
            tflite.DimensionMetadataAddFormat(b, tflite.DimensionType.SPARSE_CSR)
            tflite.DimensionMetadataAddArraySegmentsType(b, segments[0])
            tflite.DimensionMetadataAddArraySegments(b, segments[1])
            tflite.DimensionMetadataAddArrayIndicesType(b, places[0])
            tflite.DimensionMetadataAddArrayIndices(b, places[1])
        return int(tflite.DimensionMetadataEnd(b))

    def _write_operator(self, operator: OperatorRecord) -> int:
        b = self._builder
        code = (operator.code, operator.version)
        number = self._codes.setdefault(code, len(self._codes))
        inputs, outputs = self._write_ints(operator.inputs), self._write_ints(operator.outputs)
        options = self._write_options(operator) if operator.options else 0
        tflite.OperatorStart(b)
        tflite.OperatorAddOpcodeIndex(b, number)
        tflite.OperatorAddInputs(b, inputs)
        tflite.OperatorAddOutputs(b, outputs)
        if options:
            kind = getattr(tflite.BuiltinOptions, operator.options)
            tflite.OperatorAddBuiltinOptionsType(b, kind)
            tflite.OperatorAddBuiltinOptions(b, options)
        return int(tflite.OperatorEnd(b))

    def _write_options(self, operator: OperatorRecord) -> int:
        b, table = self._builder, operator.options
        fields = {
            name: self._write_string(value) if isinstance(value, str) else value
            for name, value in operator.fields.items()
        }

        def options() -> Any:
            _schema_function(f"{table}Start")(b)
            for name, value in fields.items():
                _schema_function(f"{table}Add{name}")(b, value)
            return _schema_function(f"{table}End")(b)

        return self._write_once((table, *fields.items()), options)

    def _write_operator_code(self, name: str, version: int) -> int:
        b, number = self._builder, getattr(tflite.BuiltinOperator, name)
        tflite.OperatorCodeStart(b)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(b, min(number, _LAST_BYTE_CODE))
        tflite.OperatorCodeAddVersion(b, version)
        tflite.OperatorCodeAddBuiltinCode(b, number)
        return int(tflite.OperatorCodeEnd(b))

    def _write_buffer(self, data: bytes) -> int:
        b = self._builder
        vector = 0
        if data:
            b.StartVector(1, len(data), _ALIGNMENT)
            b.head -= len(data)
            b.Bytes[b.head : b.head + len(data)] = data
            vector = b.EndVector()
        tflite.BufferStart(b)
        if vector:
            tflite.BufferAddData(b, vector)
        return int(tflite.BufferEnd(b))

    def _write_metadata(self, name: str, data: bytes) -> int:
        b, text = self._builder, self._write_string(name)
        number = self._buffers.setdefault(data, len(self._buffers))
        tflite.MetadataStart(b)
        tflite.MetadataAddName(b, text)
        tflite.MetadataAddBuffer(b, number)
        return int(tflite.MetadataEnd(b))

    def _write_signature(self, graph: SubgraphRecord) -> int:
        b = self._builder
        inputs = self._write_offsets([self._write_tensor_map(graph, i) for i in graph.inputs])
        outputs = self._write_offsets([self._write_tensor_map(graph, i) for i in graph.outputs])
        key = self._write_string(_SIGNATURE)
        tflite.SignatureDefStart(b)
        tflite.SignatureDefAddInputs(b, inputs)
        tflite.SignatureDefAddOutputs(b, outputs)
        tflite.SignatureDefAddSignatureKey(b, key)
        tflite.SignatureDefAddSubgraphIndex(b, 0)
        return int(tflite.SignatureDefEnd(b))

    def _write_tensor_map(self, graph: SubgraphRecord, number: int) -> int:
        b, name = self._builder, self._write_string(graph.tensors[number].name)
        tflite.TensorMapStart(b)
        tflite.TensorMapAddName(b, name)
        tflite.TensorMapAddTensorIndex(b, number)
        return int(tflite.TensorMapEnd(b))


def _schema_function(name: str) -> Callable[..., Any]:
    """A function of the code generated from the schema."""
    found: Callable[..., Any] = getattr(tflite, name)
    return found
