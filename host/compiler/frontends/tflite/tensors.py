"""The tensors of one subgraph: which of them are readable so far, and their constants."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from edgekit.host.compiler.frontends.common.builder import GraphBuilder
from edgekit.host.compiler.frontends.common.refusal import need_numbers
from edgekit.host.compiler.frontends.tflite.schema import (
    FileBlocks,
    FileSubgraph,
    FileTensor,
    printable,
)
from edgekit.host.compiler.frontends.tflite.sparse import to_dense
from edgekit.host.compiler.ir.types import Array, DType, Quant, Shape, Tensor
from edgekit.host.errors import InputError

_DENSE_LIMIT = 1 << 30  # bytes of all expanded sparse weights
_NAME_LIMIT = 500  # TensorFlow joins the names of operators that it fuses

_DTYPES = {
    "FLOAT32": DType.F32,
    "FLOAT16": DType.F16,
    "INT2": DType.I8,  # packed in the file, one per byte in the graph
    "INT4": DType.I8,
    "UINT4": DType.U8,
    "INT8": DType.I8,
    "UINT8": DType.U8,
    "INT16": DType.I16,
    "UINT16": DType.U16,
    "INT32": DType.I32,
    "UINT32": DType.U32,
    "INT64": DType.I64,
    "UINT64": DType.U64,
    "FLOAT64": DType.F64,
    "BOOL": DType.BOOL,
}
_BITS = {"INT2": 2, "INT4": 4, "UINT4": 4}
_BLOCK_SCALES = ("FLOAT16", "FLOAT32")
_BLOCK_ZEROS = ("INT4", "INT8", "INT16", "INT32", "INT64")
_SCALED = (DType.I8, DType.U8, DType.I16, DType.I32, DType.I64)


class TensorTable:
    """Tensors by index in the file; readable once they are constant, input or produced.

    `constants` is shared by all runs of one subgraph; `prefix` makes the names of a run unique.
    """

    def __init__(
        self,
        graph: FileSubgraph,
        builder: GraphBuilder,
        constants: dict[int, Tensor],
        prefix: str = "",
    ) -> None:
        self._file = graph.tensors
        self._builder = builder
        self._names = [builder.take(prefix + name) for name in _tensor_names(graph)]
        self._constants = constants
        self._values: dict[int, Tensor] = {}
        self._dense_bytes = 0

    def name(self, index: int) -> str:
        self.source(index)
        return self._names[index]

    def source(self, index: int) -> FileTensor:
        if not 0 <= index < len(self._file):
            raise InputError(f"expected a tensor from 0 to {len(self._file) - 1}, found {index}")
        return self._file[index]

    def shown(self, index: int) -> str:
        """A tensor as messages name it."""
        return f"tensor {index} ({printable(self.source(index).name[:100])})"

    def dtype(self, index: int) -> DType:
        name = self.source(index).type
        need_numbers(self.shown(index), name)
        if name not in _DTYPES:
            raise InputError(f"{self.shown(index)}: expected a supported type, found {name}")
        return _DTYPES[name]

    def quant(self, index: int) -> Quant | None:
        """The file's quantization of a computed tensor."""
        dtype = self.dtype(index)
        quant = self.source(index).quant if dtype in _SCALED else None
        if dtype.is_quantized and quant is not None and quant.per_channel:
            raise InputError(f"{self.shown(index)}: expected one scale, found {quant.scale.size}")
        return quant

    def has_value(self, index: int) -> bool:
        return index in self._values or self.source(index).data is not None

    def is_variable(self, index: int) -> bool:
        return self.source(index).variable and not self.has_value(index)

    def get(self, index: int) -> Tensor:
        """A tensor that an operator reads; constants are added to the graph on first use."""
        if index in self._values:
            return self._values[index]
        if index not in self._constants:
            self._constants[index] = self._builder.place(self._read_constant(index))
        return self._constants[index]

    def known(self, index: int) -> Tensor | None:
        """A tensor that was already read, set or produced, else None."""
        return self._values.get(index, self._constants.get(index))

    def set(self, index: int, tensor: Tensor) -> None:
        """Makes an input or result readable."""
        self._values[index] = tensor

    def release(self, index: int) -> None:
        """Lets a computed constant go that no later operator reads."""
        tensor = self._values.get(index)
        if tensor is not None and tensor.data is not None:
            self._builder.release(tensor)
            self._values[index] = replace(tensor, data=None)

    def _read_constant(self, index: int) -> Tensor:
        source, dtype = self.source(index), self.dtype(index)
        shape, sparsity, raw = source.shape, source.sparsity, source.data
        if any(d < 0 for d in shape):
            raise InputError(
                f"{self.shown(index)}: expected sizes of at least 0, found {list(shape)}"
            )
        if raw is None and 0 in shape:
            raw = np.zeros(0, np.uint8)  # files store empty tensors without data
        if raw is None:
            raise InputError(
                f"expected {self.shown(index)} to be a constant, an input or the output of "
                "an earlier operator, found none of these"
            )
        values = self._values_of(index, raw, math.prod(shape), sparsity is not None)
        if sparsity is not None:
            self._charge_dense_bytes(math.prod(shape) * dtype.bytes)
            values = to_dense(values, shape, sparsity)
        if source.blocks is not None:
            dtype, values = DType.F32, self._dequantize_blocks(index, source.blocks, values)
        data = values.reshape(shape)
        data.flags.writeable = False
        quant = source.quant if dtype in _SCALED else None
        return Tensor(self._names[index], shape, dtype, quant, data, sparsity is not None)

    def _values_of(self, index: int, raw: Array, count: int, sparse: bool) -> Array:
        """The stored elements of a constant: `count` of them, or fewer if it is sparse."""
        dtype, bits = self.dtype(index), _BITS.get(self.source(index).type)
        size = count * dtype.bytes if bits is None else -(-count * bits // 8)
        if raw.size % dtype.bytes if sparse else raw.size != size:
            raise InputError(
                f"{self.shown(index)}: expected {size} bytes for {dtype.value}"
                f"{list(self.source(index).shape)}, found {raw.size}"
            )
        stored = raw.view(dtype.numpy)
        if bits is None:
            return stored
        # Lower bits come first; shifting left, then right, sign-extends them.
        parts = [np.left_shift(stored, up) >> (8 - bits) for up in range(8 - bits, -1, -bits)]
        return np.stack(parts, axis=1).reshape(-1)[: None if sparse else count]

    def _dequantize_blocks(self, index: int, blocks: FileBlocks, quantized: Array) -> Array:
        """f32 weights, dequantized with one scale per block."""
        try:
            scales = self._of_blocks(blocks.scales, _BLOCK_SCALES)
            zeros = None if blocks.zeros < 0 else self._of_blocks(blocks.zeros, _BLOCK_ZEROS)
            return _block_values(quantized, self.source(index).shape, blocks.size, scales, zeros)
        except InputError as error:
            raise InputError(f"{self.shown(index)}: {error}") from error

    def _of_blocks(self, index: int, types: tuple[str, ...]) -> Array:
        """A constant with one value per block."""
        source = self.source(index)
        if source.data is None or source.type not in types or source.sparsity is not None:
            raise InputError(
                f"expected a dense constant of {' or '.join(types)} with the scales or zero points "
                f"of blocks, found {self.shown(index)}"
            )
        return self._values_of(index, source.data, math.prod(source.shape), False)

    def _charge_dense_bytes(self, size: int) -> None:
        self._dense_bytes += size
        if self._dense_bytes > _DENSE_LIMIT:
            raise InputError(
                f"expected sparse weights of at most {_DENSE_LIMIT >> 20} MiB, found more"
            )


def _tensor_names(graph: FileSubgraph) -> list[str]:
    """One printable name per tensor; inputs and outputs keep the file's name if it is unique."""
    ends = dict.fromkeys((*graph.inputs, *graph.outputs))
    count = len(graph.tensors)
    order = [*(i for i in ends if 0 <= i < count), *(i for i in range(count) if i not in ends)]
    taken: dict[str, int] = {}
    names = [""] * count
    for index in order:
        name = graph.tensors[index].name
        readable = name.isprintable() and 0 < len(name) <= _NAME_LIMIT
        names[index] = _unique_name(name if readable else f"tensor_{index}", taken)
    return names


def _unique_name(name: str, taken: dict[str, int]) -> str:
    """`name`, with a number appended if it is taken; `taken` counts the uses of each name."""
    candidate = name
    while candidate in taken:
        taken[name] += 1
        candidate = f"{name}_{taken[name]}"
    taken[candidate] = 1
    return candidate


def _block_values(
    quantized: Array, shape: Shape, size: int, scales: Array, zeros: Array | None
) -> Array:
    """(quantized − zero) · scale in f32; each `size` values along the last axis share a scale.

    `quantized` has `shape`; scales and zeros are in block order. LiteRT's kernels only support f16
    scales without zero points; this implements the schema's definition.
    """
    if not shape or size < 1 or shape[-1] % size:
        raise InputError(f"expected blocks that divide the rows of {list(shape)}, found {size}")
    blocks = quantized.size // size
    if scales.size != blocks:
        raise InputError(f"expected {blocks} scales of blocks, found {scales.size}")
    scales = scales.astype(np.float32)
    bad = scales[~(np.isfinite(scales) & (scales >= 0))]
    if bad.size:
        raise InputError(f"expected finite block scales of at least 0, found {bad[0]:g}")
    values = quantized.reshape(blocks, size).astype(np.float32)
    if zeros is not None:
        if zeros.size not in (1, blocks):
            raise InputError(f"expected {blocks} zero points of blocks, found {zeros.size}")
        values -= zeros.reshape(-1, 1).astype(np.float32)
    with np.errstate(over="ignore"):
        values *= scales.reshape(-1, 1)
    found: Array = values.reshape(shape)
    return found
