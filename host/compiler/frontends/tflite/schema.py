"""Reads the flatbuffer of a .tflite file into plain frozen records.

A flatbuffer consists of offsets, none of which can be trusted, and only this module follows them.
Any failure (an offset outside the file, a vector longer than the file, an unknown type) is raised
as `InputError`. Records copy small items and hold read-only views of constants, so memory use is
bounded by a small multiple of the file size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import tflite
from numpy.typing import NDArray

from edgekit.host.common.text import printable as escaped
from edgekit.host.compiler.frontends.common.files import check_nodes, check_operands
from edgekit.host.compiler.frontends.formats import is_tflite
from edgekit.host.compiler.ir.types import Array, Quant, Shape
from edgekit.host.errors import InputError

_RANK_LIMIT = 8
_COUNT_LIMIT = 1 << 16
_TABLE_BYTES = 16  # minimum file size of a tensor or operator
_SHOWN_NAME = 200
# Quantization kinds; BlockwiseQuantization is newer than the generated code.
_NONE, _CUSTOM, _BY_BLOCK = 0, 1, 2
_BLOCK_FIELDS = (4, 6, 8)  # vtable offsets: scales, zero points, block size

_BUILTINS = {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}
_OPTIONS = {v: k for k, v in vars(tflite.BuiltinOptions).items() if isinstance(v, int)}
_OPTIONS_2 = {v: k for k, v in vars(tflite.BuiltinOptions2).items() if isinstance(v, int)}
_TYPES = {v: k for k, v in vars(tflite.TensorType).items() if isinstance(v, int)}
_CODES = ("INT8", "UINT8", "INT16")
_TYPES |= {19: "INT2", 20: "UINT4"}  # newer than the generated code

_INDEX_VECTORS = {
    tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
    tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
    tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector,
}

# Exceptions that the flatbuffers package raises for offsets outside the file.
_CORRUPT = (struct.error, LookupError, ValueError, TypeError, OverflowError, AttributeError)


@dataclass(frozen=True, eq=False)
class FileDimension:
    """Storage of one dimension of a sparse tensor: dense, or compressed (CSR)."""

    size: int
    segments: NDArray[np.int64] | None
    indices: NDArray[np.int64] | None


@dataclass(frozen=True, eq=False)
class FileSparsity:
    order: tuple[int, ...]
    block_map: tuple[int, ...]
    dimensions: tuple[FileDimension, ...]


@dataclass(frozen=True)
class FileBlocks:
    """Blockwise quantization with `size` values per block: indices of the tensors with scales and
    zero points (-1: none)."""

    scales: int
    zeros: int
    size: int


@dataclass(frozen=True, eq=False)
class FileTensor:
    """`type` is the schema's name (FLOAT32, INT8, …); `data` the raw bytes of a constant.

    `signature` is the shape with -1 for open dimensions, empty if none is open; `shape` is used
    unless resized. A `variable` is written by operators and persists between runs.
    """

    name: str
    shape: Shape
    type: str
    quant: Quant | None
    data: Array | None
    sparsity: FileSparsity | None
    signature: Shape = ()
    variable: bool = False
    blocks: FileBlocks | None = None


@dataclass(frozen=True, eq=False)
class FileOperator:
    """`options` is an instance of the generated class `options_type`; read it with `option`."""

    index: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options_type: str
    options: Any
    custom_options: bytes
    intermediates: tuple[int, ...] = ()

    def option(self, name: str) -> Any:
        """A scalar field; absent options have the schema's defaults."""
        if self.options is None:
            return 0
        with corruption(f"the options of operator {self.index} ({self.name})"):
            return getattr(self.options, name)()

    def option_text(self, name: str) -> str:
        """A text as messages can show it; different ones stay different."""
        value: bytes = self.option(name) or b""
        return escaped(value[:_SHOWN_NAME].decode("utf-8", "replace"))

    def option_vector(self, name: str) -> tuple[int, ...] | None:
        """A vector of integers, or None if absent."""
        if self.options is None:
            return None
        with corruption(f"the options of operator {self.index} ({self.name})"):
            length = getattr(self.options, f"{name}Length")()
            return _small_vector(getattr(self.options, f"{name}AsNumpy"), length)


@dataclass(frozen=True, eq=False)
class FileSubgraph:
    tensors: tuple[FileTensor, ...]
    operators: tuple[FileOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class TfliteFile:
    subgraphs: tuple[FileSubgraph, ...]


@contextmanager
def corruption(what: str) -> Iterator[None]:
    """Converts the flatbuffers package's exceptions for corrupt data to `InputError`."""
    try:
        yield
    except _CORRUPT as error:
        raise InputError(
            f"expected {what} within the file, found an offset or length outside of it; the file "
            "is truncated or corrupt: fetch it again"
        ) from error


class _Budget:
    """Limits the bytes read from a file to the file's size.

    Many tables may share one long vector by offset, so each use is charged.
    """

    def __init__(self, size: int) -> None:
        self._left = size

    def spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise InputError("expected tables that do not overlap, found more data than the file")


def read_model(content: bytes) -> TfliteFile:
    """Parses a complete .tflite file. Raises `InputError` (without the file's name)."""
    if not is_tflite(content):
        raise InputError(
            f"expected a TensorFlow Lite file (TFL3 at byte 4), found {content[4:8]!r} there"
        )
    with corruption("the root table"):
        model = tflite.Model.GetRootAs(content, 0)
        version = model.Version()
    if version != 3:
        raise InputError(f"expected a TensorFlow Lite schema of version 3, found {version}")
    with corruption("the operator codes"):
        codes = [
            _code_name(c) for c in _iter_tables(model.OperatorCodesLength, model.OperatorCodes)
        ]
    with corruption("the buffers"):
        buffers = [
            _read_buffer(b, content) for b in _iter_tables(model.BuffersLength, model.Buffers)
        ]
    with corruption("the subgraphs"):
        subgraphs = list(_iter_tables(model.SubgraphsLength, model.Subgraphs))
    if not subgraphs:
        raise InputError("expected a model with a subgraph, found none")
    reader = _Reader(codes, buffers, _Budget(len(content)))
    return TfliteFile(tuple(reader.subgraph(s) for s in subgraphs))


def printable(text: str) -> str:
    """Text from the file, made safe for a one-line message."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _check_count(length: int) -> int:
    if length > _COUNT_LIMIT:
        raise InputError(f"expected at most {_COUNT_LIMIT} entries in a table, found {length}")
    return length


def _iter_tables(length: Callable[[], int], get: Callable[[int], Any]) -> Iterator[Any]:
    for index in range(_check_count(length())):
        yield get(index)


def _read_blocks(quant: Any, shown: str) -> FileBlocks | None:
    """Tensor 0 as zero points means none, as that is the field's default."""
    table = quant.Details()
    if quant.DetailsType() in (_NONE, _CUSTOM):
        return None
    if quant.DetailsType() != _BY_BLOCK or table is None:
        raise InputError(f"{shown}: expected scales of channels or of blocks, found neither")
    places = [table.Offset(field) for field in _BLOCK_FIELDS]
    get, kind = table.Get, flatbuffers.number_types.Int32Flags
    scales, zeros, size = (get(kind, place + table.Pos) if place else 0 for place in places)
    return FileBlocks(scales, zeros or -1, size)


def _small_vector(get: Callable[[], Array], length: int) -> tuple[int, ...]:
    return tuple(get().tolist()) if _check_count(length) else ()


def _code_name(code: Any) -> str:
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    name: str = _BUILTINS.get(number, f"BUILTIN_{number}")
    if name != "CUSTOM":
        return name
    custom: bytes = code.CustomCode() or b"unnamed"
    return f"CUSTOM:{printable(custom[:_SHOWN_NAME].decode('utf-8', 'replace'))}"


def _read_buffer(buffer: Any, content: bytes) -> Array | None:
    """The raw bytes of a buffer; in files above 2 GiB they follow the flatbuffer."""
    if buffer.DataLength():
        data: Array = buffer.DataAsNumpy()
        return data
    offset, size = buffer.Offset(), buffer.Size()
    if offset <= 1 or size == 0:
        return None
    return np.frombuffer(content, np.uint8, count=size, offset=offset)


@dataclass(frozen=True, eq=False)
class _Reader:
    """Reads subgraphs; `codes` and `buffers` resolve operator and buffer indices."""

    codes: list[str]
    buffers: list[Array | None]
    budget: _Budget

    def subgraph(self, graph: Any) -> FileSubgraph:
        with corruption("the operators"):
            count = graph.OperatorsLength()
        check_nodes(count)
        with corruption("the tensors"):
            tables = _iter_tables(graph.TensorsLength, graph.Tensors)
            tensors = tuple(self._read_tensor(t, i) for i, t in enumerate(tables))
        with corruption("the operators"):
            tables = _iter_tables(graph.OperatorsLength, graph.Operators)
            operators = tuple(self._read_operator(o, i) for i, o in enumerate(tables))
            inputs = self._read_vector(graph.InputsAsNumpy, graph.InputsLength())
            outputs = self._read_vector(graph.OutputsAsNumpy, graph.OutputsLength())
        return FileSubgraph(tensors, operators, inputs, outputs)

    def _read_vector(self, get: Callable[[], Array], length: int) -> tuple[int, ...]:
        self.budget.spend(length)
        return _small_vector(get, length)

    def _read_tensor(self, tensor: Any, index: int) -> FileTensor:
        name = tensor.Name() or b""
        self.budget.spend(_TABLE_BYTES + len(name))
        name = name.decode("utf-8", "replace")
        shown = f"tensor {index} ({printable(name[:_SHOWN_NAME])})"
        rank = tensor.ShapeLength()
        if rank > _RANK_LIMIT:
            raise InputError(f"{shown}: expected at most {_RANK_LIMIT} dimensions, found {rank}")
        shape = _small_vector(tensor.ShapeAsNumpy, rank)
        signed = tensor.ShapeSignatureLength() == rank  # a signature of another rank is unusable
        signature = _small_vector(tensor.ShapeSignatureAsNumpy, rank) if signed else ()
        buffer, quant, sparsity = tensor.Buffer(), tensor.Quantization(), tensor.Sparsity()
        if buffer >= len(self.buffers):
            raise InputError(
                f"{shown}: expected a buffer below {len(self.buffers)}, found {buffer}"
            )
        dtype = _TYPES.get(tensor.Type(), f"number {tensor.Type()}")
        return FileTensor(
            name,
            shape,
            dtype,
            None if quant is None else self._read_quant(quant, shape, shown, dtype),
            self.buffers[buffer],
            None if sparsity is None else self._read_sparsity(sparsity),
            signature,
            variable=bool(tensor.IsVariable()),
            blocks=None if quant is None else _read_blocks(quant, shown),
        )

    def _read_quant(self, quant: Any, shape: Shape, shown: str, dtype: str) -> Quant | None:
        count, zero_count, axis = quant.ScaleLength(), quant.ZeroPointLength(), 0
        if count == 0:
            return None
        self.budget.spend(count + zero_count)
        if count > 1:
            axis = quant.QuantizedDimension()
            if not 0 <= axis < len(shape) or shape[axis] != count:
                raise InputError(
                    f"{shown}: expected one scale per channel, found {count} scales "
                    f"for axis {axis} of shape {list(shape)}"
                )
        if zero_count not in (0, 1, count):
            raise InputError(f"{shown}: expected {count} zero points, found {zero_count}")
        scale = quant.ScaleAsNumpy()
        zero = quant.ZeroPointAsNumpy() if zero_count else np.zeros(1, np.int64)
        codes = np.iinfo(dtype.lower() if dtype in _CODES else "int32")
        if zero.min() < codes.min or zero.max() > codes.max:
            raise InputError(
                f"{shown}: expected zero points from {codes.min} to {codes.max}, "
                f"found {zero.min()} to {zero.max()}"
            )
        if not (np.isfinite(scale).all() and (scale > 0).all()):
            raise InputError(
                f"{shown}: expected positive finite scales, found {float(scale.min())}"
            )
        return Quant(scale.astype(np.float32), np.broadcast_to(zero, count).astype(np.int64), axis)

    def _read_sparsity(self, sparsity: Any) -> FileSparsity:
        tables = _iter_tables(sparsity.DimMetadataLength, sparsity.DimMetadata)
        return FileSparsity(
            self._read_vector(sparsity.TraversalOrderAsNumpy, sparsity.TraversalOrderLength()),
            self._read_vector(sparsity.BlockMapAsNumpy, sparsity.BlockMapLength()),
            tuple(self._read_dimension(d) for d in tables),
        )

    def _read_dimension(self, dimension: Any) -> FileDimension:
        if dimension.Format() == tflite.DimensionType.DENSE:
            return FileDimension(dimension.DenseSize(), None, None)
        segments = self._read_indices(dimension.ArraySegmentsType(), dimension.ArraySegments())
        indices = self._read_indices(dimension.ArrayIndicesType(), dimension.ArrayIndices())
        return FileDimension(0, segments, indices)

    def _read_indices(self, kind: int, table: Any) -> NDArray[np.int64]:
        vector = _INDEX_VECTORS[kind]()
        vector.Init(table.Bytes, table.Pos)
        length = vector.ValuesLength()
        self.budget.spend(length)
        if length == 0:
            return np.zeros(0, np.int64)
        values: NDArray[np.int64] = vector.ValuesAsNumpy().astype(np.int64)
        return values

    def _read_operator(self, operator: Any, index: int) -> FileOperator:
        code = operator.OpcodeIndex()
        if code >= len(self.codes):
            raise InputError(
                f"operator {index}: expected an operator code below {len(self.codes)}, found {code}"
            )
        check_operands(operator.InputsLength(), operator.OutputsLength())
        options_type = _OPTIONS.get(operator.BuiltinOptionsType(), "unknown")
        options, union = None, operator.BuiltinOptions()
        if options_type == "NONE":  # newer operators use a second field
            options_type = _OPTIONS_2.get(operator.BuiltinOptions2Type(), "unknown")
            union = operator.BuiltinOptions2()
        if union is not None and options_type not in ("NONE", "unknown"):
            options = getattr(tflite, options_type)()
            options.Init(union.Bytes, union.Pos)
        length, custom = operator.CustomOptionsLength(), b""
        self.budget.spend(_TABLE_BYTES + length)
        if length:
            custom = operator.CustomOptionsAsNumpy().tobytes()
        return FileOperator(
            index,
            self.codes[code],
            self._read_vector(operator.InputsAsNumpy, operator.InputsLength()),
            self._read_vector(operator.OutputsAsNumpy, operator.OutputsLength()),
            options_type,
            options,
            custom,
            self._read_vector(operator.IntermediatesAsNumpy, operator.IntermediatesLength()),
        )
