"""The tensors of a file as operands: each is used once, and none may be left over."""

from __future__ import annotations

import math
import mmap

import numpy as np

from edgekit.host.common.paged import LEAST_ARRAY, PagedArrays
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.frontends.common.builder import GraphBuilder
from edgekit.host.compiler.frontends.gguf.blocks import FORMS, floats_of, quantized_of
from edgekit.host.compiler.frontends.gguf.file import GgufFile, TensorInfo
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Tensor
from edgekit.host.errors import InputError

_LEAST_PAGED = 64 << 20  # bytes of weights
_SCALES = 2 * 4 / 32  # bytes for each value: an f32 scale of 32 values, by rows and by columns
_NO_WEIGHTS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")


class Weights:
    """Adds tensors of `file` to a graph as they are first read. With `floats`, quantized blocks
    become f32, else bytes with a scale per block."""

    def __init__(self, file: GgufFile, builder: GraphBuilder, floats: bool) -> None:
        self._file, self._builder, self._floats = file, builder, floats
        self._left = dict.fromkeys(name for name in file.tensors if name not in _NO_WEIGHTS)
        self._known: dict[str, list[Tensor]] = {}
        self._sums: dict[tuple[str, int], Tensor] = {}
        self._paged = PagedArrays(cache_folder(), _paged_bytes(file, floats))

    def __contains__(self, name: str) -> bool:
        return name in self._file.tensors

    def check_has(self, name: str) -> None:
        """Raises InputError if the file has no tensor of that name."""
        if name not in self:
            raise InputError(f"expected a tensor {name}, found none; the file is not complete")

    def rows_in(self, name: str) -> int:
        """The rows of a matrix in the file; 0 if it has none of that name."""
        return self._file.tensors[name].shape[0] if name in self else 0

    def columns_in(self, name: str) -> int:
        """The last size of a tensor in the file; 0 if it has none of that name."""
        return self._file.tensors[name].shape[-1] if name in self else 0

    def vector(self, name: str, size: int) -> Tensor:
        """A tensor f32 [size]."""
        info = self._use(name, (size,))
        value = floats_of(self._file.data(name), info.shape, info.kind)
        return self._stored(name, self._finite(name, value))

    def matrix(self, name: str, shape: tuple[int, int], heads: int = 0) -> list[Tensor]:
        """[values f32] of a matrix, or [values s8, scales f32 [rows, groups]] of a quantized one,
        and offsets like the scales if it has them.

        `heads`: rotary pairs, which are adjacent rows in each head, are moved half a head apart.
        """
        if name not in self._known:
            self._known[name] = self._read(name, shape, heads)
        return self._known[name]

    def product(self, x: Tensor, name: str, rows: int, heads: int = 0) -> Tensor:
        """x [m, k] times weights [rows, k], plus the bias of that name if there is one."""
        width = x.shape[1]
        stored = self.matrix(f"{name}.weight", (rows, width), heads)
        bias = f"{name}.bias"
        added = self._bias(bias, rows, heads) if bias in self else None
        if len(stored) == 1:
            return self._builder.emit(ops.FullyConnected(), x, stored[0], added)
        values, scale, *offset = stored
        assert scale.data is not None
        columns = self._stored(f"{name}.scale", np.ascontiguousarray(scale.data.T))
        op = ops.OutlierFullyConnected(share=ops.FEW_OUTLIERS)
        if not offset:
            return self._builder.emit(op, x, values, columns, added)
        sums = self._sums_of(x, scale.shape[1])
        more = self._builder.emit(ops.FullyConnected(), sums, offset[0], None)
        return self._builder.emit(op, x, values, columns, added, more)

    def _sums_of(self, x: Tensor, groups: int) -> Tensor:
        """x [m, k] summed over each group, f32 [m, groups]: by these, offsets are multiplied."""
        known = (x.name, groups)
        if known not in self._sums:
            shape = (x.shape[0], groups, x.shape[1] // groups)
            parts = self._builder.emit(ops.Reshape(shape), x)
            self._sums[known] = self._builder.emit(ops.ReduceSum((2,)), parts)
        return self._sums[known]

    def rows(self, name: str, shape: tuple[int, int], at: Tensor) -> Tensor:
        """The rows of a matrix at indices, f32 [*, k]."""
        stored = self.matrix(name, shape)
        add = self._builder.emit
        if len(stored) == 1:
            return add(ops.Gather(0), stored[0], at)
        made = add(ops.GatherQuantized(), stored[0], at, stored[1])
        if len(stored) == 2:
            return made
        count, groups = at.elements, stored[2].shape[1]
        more = add(ops.Reshape((count, groups, 1)), add(ops.Gather(0), stored[2], at))
        parts = add(ops.Reshape((count, groups, shape[1] // groups)), made)
        return add(ops.Reshape((count, shape[1])), add(ops.Add(), parts, more))

    def check_all_used(self) -> None:
        """Raises InputError for a tensor that the network as built here does not read."""
        if self._left:
            raise InputError(
                f"expected the tensors of a plain {self._file.architecture} network, found "
                f"{next(iter(self._left))} besides; choose a model without it"
            )

    def _read(self, name: str, shape: tuple[int, int], heads: int) -> list[Tensor]:
        info = self._use(name, shape)
        data, parts = self._file.data(name), list[Array]()
        if FORMS[info.kind].is_float or self._floats:
            parts = [floats_of(data, shape, info.kind)]
        else:
            found = quantized_of(data, shape, info.kind)
            parts = [found.values, found.scale]
            parts += [] if found.offset is None else [found.offset]
        for part in parts:
            if part.dtype != np.int8:
                self._finite(name, part)
        if heads:
            parts = [_halves_apart(part, heads) for part in parts]
        kinds = ("", ".scale", ".offset")
        return [self._stored(name + kind, part) for kind, part in zip(kinds, parts, strict=False)]

    def _bias(self, name: str, rows: int, heads: int) -> Tensor:
        made = self.vector(name, rows)
        if not heads or made.data is None:
            return made
        return self._stored(f"{name}.apart", _halves_apart(made.data[:, None], heads)[:, 0])

    def _use(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        self.check_has(name)
        info = self._file.tensors[name]
        if info.shape != shape:
            raise InputError(
                f"tensor {name}: expected shape {list(shape)}, found {list(info.shape)}"
            )
        self._left.pop(name, None)
        return info

    def _finite(self, name: str, value: Array) -> Array:
        if not np.isfinite(value).all():
            raise InputError(f"tensor {name}: expected finite values, found others")
        return value

    def _stored(self, name: str, value: Array) -> Tensor:
        kind = DType.I8 if value.dtype == np.int8 else DType.F32
        own, data = self._builder.take(name), self._paged.keep(np.ascontiguousarray(value))
        return self._builder.place(Tensor(own, value.shape, kind, None, data))


def _paged_bytes(file: GgufFile, floats: bool) -> int:
    """Room for all large matrices as constants; 0 for a model that needs little memory anyway."""
    total = 0
    for info in file.tensors.values():
        wide = 4 if floats or FORMS[info.kind].is_float else 1 + _SCALES
        size = int(math.prod(info.shape) * wide)
        total += size + 3 * mmap.PAGESIZE if size >= LEAST_ARRAY else 0
    return total if total >= _LEAST_PAGED else 0


def _halves_apart(rows: Array, heads: int) -> Array:
    pairs = rows.reshape(heads, -1, 2, rows.shape[1])
    return np.ascontiguousarray(pairs.transpose(0, 2, 1, 3)).reshape(rows.shape)
