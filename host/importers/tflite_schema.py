"""Reads the flatbuffer of a .tflite file into plain frozen records.

A flatbuffer is a web of offsets, and none of them can be trusted. This is the one file that
follows them: whatever goes wrong on the way (an offset outside of the file, a vector longer than
the file, a type that does not exist) leaves as `InputError`. Records hold copies of small things
and read-only views of constants, so memory stays within a few times the size of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite
from numpy.typing import NDArray

from edgekit.host.errors import InputError
from edgekit.host.graph.types import Array, Quant, Shape

_IDENTIFIER = b"TFL3"
_RANK_LIMIT = 8
_COUNT_LIMIT = 1 << 16
_CUSTOM_OPTIONS_LIMIT = 1 << 16
_SHOWN_NAME = 200

_BUILTINS = {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}
_OPTIONS = {v: k for k, v in vars(tflite.BuiltinOptions).items() if isinstance(v, int)}
_TYPES = {v: k for k, v in vars(tflite.TensorType).items() if isinstance(v, int)}

# What the flatbuffers package raises when it is led outside of the file.
_CORRUPT = (struct.error, IndexError, ValueError, TypeError, OverflowError, AttributeError)


@dataclass(frozen=True, eq=False)
class FileDimension:
    """How one dimension of a sparse tensor is stored: densely, or as compressed rows."""

    size: int
    segments: NDArray[np.int64] | None
    indices: NDArray[np.int64] | None


@dataclass(frozen=True, eq=False)
class FileSparsity:
    order: tuple[int, ...]
    block_map: tuple[int, ...]
    dimensions: tuple[FileDimension, ...]


@dataclass(frozen=True, eq=False)
class FileTensor:
    """`type` is the schema's name (FLOAT32, INT8, …); `data` the raw bytes of a constant."""

    name: str
    shape: Shape
    type: str
    quant: Quant | None
    data: Array | None
    sparsity: FileSparsity | None


@dataclass(frozen=True, eq=False)
class FileOperator:
    """`options` is the generated flatbuffer class named `options_type`: read it with `option`."""

    index: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options_type: str
    options: Any
    custom_options: bytes

    def option(self, name: str) -> Any:
        """One scalar field; absent options have the schema's defaults."""
        if self.options is None:
            return 0
        with corruption(f"the options of operator {self.index} ({self.name})"):
            return getattr(self.options, name)()

    def option_text(self, name: str) -> str:
        value: bytes = self.option(name) or b""
        return value[:_SHOWN_NAME].decode("utf-8", "replace")

    def option_vector(self, name: str) -> tuple[int, ...] | None:
        """A vector of integers, or None if the file has none."""
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
class FileModel:
    subgraphs: tuple[FileSubgraph, ...]


@contextmanager
def corruption(what: str) -> Iterator[None]:
    """Turns what flatbuffers raises on corrupt data into an `InputError`."""
    try:
        yield
    except _CORRUPT as error:
        raise InputError(
            f"expected {what} within the file, found an offset or length outside of it "
            f"({type(error).__name__}): the file is truncated or corrupt; fetch it again"
        ) from error


def is_tflite(content: bytes) -> bool:
    return content[4:8] == _IDENTIFIER


def read_model(content: bytes) -> FileModel:
    """Parses a whole .tflite file. Raises `InputError` (without the file's name)."""
    with corruption("the root table"):
        model = tflite.Model.GetRootAs(content, 0)
        version = model.Version()
    if version != 3:
        raise InputError(f"expected a TensorFlow Lite schema of version 3, found {version}")
    with corruption("the operator codes"):
        codes = [_code_name(c) for c in _tables(model.OperatorCodesLength, model.OperatorCodes)]
    with corruption("the buffers"):
        buffers = [_buffer(b, content) for b in _tables(model.BuffersLength, model.Buffers)]
    with corruption("the subgraphs"):
        subgraphs = list(_tables(model.SubgraphsLength, model.Subgraphs))
    if not subgraphs:
        raise InputError("expected a model with a subgraph, found none")
    return FileModel(tuple(_subgraph(s, codes, buffers, len(content)) for s in subgraphs))


def _count(length: int) -> int:
    if length > _COUNT_LIMIT:
        raise InputError(f"expected at most {_COUNT_LIMIT} entries in a table, found {length}")
    return length


def _tables(length: Callable[[], int], get: Callable[[int], Any]) -> Iterator[Any]:
    for index in range(_count(length())):
        yield get(index)


def _code_name(code: Any) -> str:
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    name = _BUILTINS.get(number, f"BUILTIN_{number}")
    if name != "CUSTOM":
        return name
    custom: bytes = code.CustomCode() or b"unnamed"
    return f"CUSTOM:{printable(custom[:_SHOWN_NAME].decode('utf-8', 'replace'))}"


def printable(text: str) -> str:
    """Text from a file that may be shown in a one-line message."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _buffer(buffer: Any, content: bytes) -> Array | None:
    """Raw bytes of a buffer; those of files above 2 GiB lie behind the flatbuffer."""
    if buffer.DataLength():
        data: Array = buffer.DataAsNumpy()
        return data
    offset, size = buffer.Offset(), buffer.Size()
    if offset <= 1 or size == 0:
        return None
    return np.frombuffer(content, np.uint8, count=size, offset=offset)


def _subgraph(
    graph: Any, codes: list[str], buffers: list[Array | None], file_size: int
) -> FileSubgraph:
    tensors: list[FileTensor] = []
    text = 0
    with corruption("the tensors"):
        for tensor in _tables(graph.TensorsLength, graph.Tensors):
            tensors.append(_tensor(tensor, len(tensors), buffers))
            text += len(tensors[-1].name)
            if text > file_size:
                raise InputError("expected the names of the tensors to fit the file: it is corrupt")
    operators: list[FileOperator] = []
    with corruption("the operators"):
        for operator in _tables(graph.OperatorsLength, graph.Operators):
            operators.append(_operator(operator, len(operators), codes))
        inputs = _small_vector(graph.InputsAsNumpy, graph.InputsLength())
        outputs = _small_vector(graph.OutputsAsNumpy, graph.OutputsLength())
    return FileSubgraph(tuple(tensors), tuple(operators), inputs, outputs)


def _small_vector(get: Callable[[], Array], length: int) -> tuple[int, ...]:
    return tuple(int(v) for v in get()) if _count(length) else ()


def _tensor(tensor: Any, index: int, buffers: list[Array | None]) -> FileTensor:
    name = (tensor.Name() or b"").decode("utf-8", "replace")
    shown = f"tensor {index} ({printable(name[:_SHOWN_NAME])})"
    rank = tensor.ShapeLength()
    if rank > _RANK_LIMIT:
        raise InputError(f"{shown}: expected at most {_RANK_LIMIT} dimensions, found {rank}")
    shape = tuple(int(d) for d in tensor.ShapeAsNumpy()) if rank else ()
    buffer = tensor.Buffer()
    if buffer >= len(buffers):
        raise InputError(f"{shown}: expected a buffer below {len(buffers)}, found {buffer}")
    type_name = _TYPES.get(tensor.Type(), f"type {tensor.Type()}")
    sparsity = tensor.Sparsity()
    return FileTensor(
        name,
        shape,
        type_name,
        _quant(tensor.Quantization(), shape, shown),
        buffers[buffer],
        None if sparsity is None else _sparsity(sparsity),
    )


def _quant(quant: Any, shape: Shape, shown: str) -> Quant | None:
    if quant is None or quant.ScaleLength() == 0:
        return None
    count, zero_count, axis = quant.ScaleLength(), quant.ZeroPointLength(), 0
    if count > 1:
        axis = quant.QuantizedDimension()
        if not 0 <= axis < len(shape) or shape[axis] != count:
            raise InputError(
                f"{shown}: expected one scale per channel, found {count} scales for axis {axis} "
                f"of shape {list(shape)}"
            )
    if zero_count not in (0, 1, count):
        raise InputError(f"{shown}: expected {count} zero points, found {zero_count}")
    scale = quant.ScaleAsNumpy()
    zero = quant.ZeroPointAsNumpy() if zero_count else np.zeros(1, np.int64)
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise InputError(f"{shown}: expected positive finite scales, found {float(scale.min())}")
    return Quant(scale.astype(np.float32), np.broadcast_to(zero, count).astype(np.int64), axis)


def _sparsity(sparsity: Any) -> FileSparsity:
    dimensions = list(_tables(sparsity.DimMetadataLength, sparsity.DimMetadata))
    return FileSparsity(
        _small_vector(sparsity.TraversalOrderAsNumpy, sparsity.TraversalOrderLength()),
        _small_vector(sparsity.BlockMapAsNumpy, sparsity.BlockMapLength()),
        tuple(_dimension(d) for d in dimensions),
    )


def _dimension(dimension: Any) -> FileDimension:
    if dimension.Format() == tflite.DimensionType.DENSE:
        return FileDimension(dimension.DenseSize(), None, None)
    segments = _index_vector(dimension.ArraySegmentsType(), dimension.ArraySegments())
    indices = _index_vector(dimension.ArrayIndicesType(), dimension.ArrayIndices())
    return FileDimension(0, segments, indices)


def _index_vector(kind: int, table: Any) -> NDArray[np.int64]:
    vector = {
        tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
        tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
        tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector,
    }[kind]()
    vector.Init(table.Bytes, table.Pos)
    if vector.ValuesLength() == 0:
        return np.zeros(0, np.int64)
    values: NDArray[np.int64] = vector.ValuesAsNumpy().astype(np.int64)
    return values


def _operator(operator: Any, index: int, codes: list[str]) -> FileOperator:
    code = operator.OpcodeIndex()
    if code >= len(codes):
        raise InputError(
            f"operator {index}: expected an operator code below {len(codes)}, found {code}"
        )
    options_type = _OPTIONS.get(operator.BuiltinOptionsType(), "unknown")
    options, union = None, operator.BuiltinOptions()
    if union is not None and options_type not in ("NONE", "unknown"):
        options = getattr(tflite, options_type)()
        options.Init(union.Bytes, union.Pos)
    custom = b""
    if 0 < operator.CustomOptionsLength() <= _CUSTOM_OPTIONS_LIMIT:
        custom = operator.CustomOptionsAsNumpy().tobytes()
    return FileOperator(
        index,
        codes[code],
        _small_vector(operator.InputsAsNumpy, operator.InputsLength()),
        _small_vector(operator.OutputsAsNumpy, operator.OutputsLength()),
        options_type,
        options,
        custom,
    )
