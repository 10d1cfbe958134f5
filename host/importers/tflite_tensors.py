"""The tensors of one subgraph: which can be read yet, and what they take."""

from __future__ import annotations

import math

from edgekit.host.errors import InputError
from edgekit.host.graph.types import Array, DType, Shape, Tensor
from edgekit.host.importers.tflite_names import tensor_names
from edgekit.host.importers.tflite_schema import FileSubgraph, FileTensor, printable
from edgekit.host.importers.tflite_sparse import to_dense

_BYTES_LIMIT = 1 << 30  # of all activations and all densified weights together
_RANK_LIMIT = 8

_DTYPES = {
    "FLOAT32": DType.F32,
    "FLOAT16": DType.F16,
    "INT8": DType.I8,
    "UINT8": DType.U8,
    "INT16": DType.I16,
    "INT32": DType.I32,
    "INT64": DType.I64,
    "BOOL": DType.BOOL,
}
_SCALED = (DType.I8, DType.U8, DType.I16, DType.I32)


class TensorTable:
    """Tensors by their number in the file; readable once constant, input or produced."""

    def __init__(self, graph: FileSubgraph) -> None:
        self._file = graph.tensors
        self._names = tensor_names(graph)
        self._readable: dict[int, Tensor] = {}
        self._fixed: set[int] = set()
        self._bytes = 0

    def name(self, index: int) -> str:
        return self._names[index]

    def readable(self) -> dict[str, Tensor]:
        return {t.name: t for t in self._readable.values()}

    def source(self, index: int) -> FileTensor:
        if not 0 <= index < len(self._file):
            raise InputError(f"expected a tensor from 0 to {len(self._file) - 1}, found {index}")
        return self._file[index]

    def shown(self, index: int) -> str:
        """How messages name a tensor."""
        return f"tensor {index} ({printable(self.source(index).name[:100])})"

    def dtype(self, index: int) -> DType:
        name = self.source(index).type
        if name not in _DTYPES:
            raise InputError(f"{self.shown(index)}: expected a supported type, found {name}")
        return _DTYPES[name]

    def is_fixed(self, index: int) -> bool:
        """Whether a tensor depends on constants only."""
        return index in self._fixed

    def has_value(self, index: int) -> bool:
        return index in self._readable or self.source(index).data is not None

    def get(self, index: int) -> Tensor:
        """A tensor that an operator reads; constants enter the graph when first used."""
        source = self.source(index)
        if index not in self._readable:
            if source.data is None:
                raise InputError(
                    f"expected {self.shown(index)} to be a constant, an input or the output of "
                    "an earlier operator, found none of these"
                )
            self._readable[index] = self._constant(index, source, source.data)
            self._fixed.add(index)
        return self._readable[index]

    def add(self, index: int, shape: Shape, dtype: DType, fixed: bool = False) -> None:
        """Makes an input or a result readable; `fixed` if it depends on constants only."""
        if len(shape) > _RANK_LIMIT or any(d < 1 for d in shape):
            raise InputError(
                f"{self.shown(index)}: expected at most {_RANK_LIMIT} dimensions of at least 1, "
                f"found {list(shape)}"
            )
        quant = self.source(index).quant if dtype in _SCALED else None
        if dtype.is_quantized and (quant is None or quant.per_channel):
            found = "none" if quant is None else f"{quant.scale.size}"
            raise InputError(f"{self.shown(index)}: expected one scale, found {found}")
        self._charge(math.prod(shape) * dtype.bytes)
        self._readable[index] = Tensor(self._names[index], shape, dtype, quant)
        if fixed:
            self._fixed.add(index)

    def alias(self, index: int, source: int) -> None:
        """Makes `index` readable as another name of the constant `source` (DENSIFY)."""
        tensor = self.get(source)
        if tensor.data is None:
            raise InputError(f"expected a constant, found {self.shown(source)}, which is computed")
        self._readable[index] = Tensor(
            self._names[index], tensor.shape, tensor.dtype, tensor.quant, tensor.data, tensor.sparse
        )
        self._fixed.add(index)

    def _constant(self, index: int, source: FileTensor, raw: Array) -> Tensor:
        dtype, shape, sparsity = self.dtype(index), source.shape, source.sparsity
        if any(d < 0 for d in shape):
            raise InputError(f"{self.shown(index)}: expected sizes from 0, found {list(shape)}")
        size = math.prod(shape) * dtype.bytes
        if raw.size != size if sparsity is None else raw.size % dtype.bytes:
            raise InputError(
                f"{self.shown(index)}: expected {size} bytes for {dtype.value}{list(shape)}, "
                f"found {raw.size}"
            )
        values = raw.view(dtype.numpy)
        if sparsity is not None:
            self._charge(size)
            values = to_dense(values, shape, sparsity)
        data = values.reshape(shape)
        data.flags.writeable = False
        quant = source.quant if dtype in _SCALED else None
        return Tensor(self._names[index], shape, dtype, quant, data, sparsity is not None)

    def _charge(self, size: int) -> None:
        self._bytes += size
        if self._bytes > _BYTES_LIMIT:
            raise InputError(
                f"expected activations of at most {_BYTES_LIMIT >> 20} MiB in total, found more"
            )
