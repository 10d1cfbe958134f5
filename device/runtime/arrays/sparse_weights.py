"""Pruned weights, for products with many vectors: 1x1 convolutions and fully connected layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Optional

from edgekit.device.runtime.arrays import sampling
from edgekit.device.runtime.arrays.arguments import checked_threads
from edgekit.device.runtime.arrays.buffers import as_array, empty_array
from edgekit.device.runtime.arrays.calls import SPMM, Call, spmm_text
from edgekit.device.runtime.arrays.sampling import TimedCall
from edgekit.device.runtime.arrays.sparse_input import (
    ALONE,
    DTYPES,
    Csr,
    checked_coo,
    checked_operand,
    checked_out,
    library,
    numpy,
    numpy_type,
)
from edgekit.device.runtime.arrays.sparse_library import OPERANDS, SUMS, SparseProduct, SpmmPlan
from edgekit.device.runtime.arrays.sparse_pairs import Pairs, pack_pairs, pack_rows
from edgekit.device.runtime.errors import InputError

_STORAGE = ("f32", "f16", "s8")
_MOST = {"f16": 65504.0}
_INT8 = 127
_PLANNED = ("f32", "f16", "s8", "s8f")
_PLANNED_COLS = (1 << 16) - 1


@dataclass(frozen=True)
class WeightArrays:
    """The arrays of ek_spmm_weights and of its plan; `scale` is None without scales."""

    start: Any
    index: Any
    values: Any
    scale: Optional[Any]
    pairs: Pairs


class SparseWeights:
    """CSR weights: W [outputs, inputs], mostly zeros.

    Y = W · X with X [inputs, pixels], channels-first. float32, float64, float16 (computed in
    float32), int8 · int8 → int32, or float32 weights stored as int8 with a scale per output.
    """

    def __init__(self, csr: Csr, scale: Optional[Any]) -> None:
        """Makes weights from checked rows; scale [outputs] dequantizes int8 weights."""
        np = numpy()
        self.shape = csr.shape
        self.nnz = len(csr.data)
        self.stored = "s8f" if scale is not None else DTYPES[csr.data.dtype.name]
        cols = csr.shape[1]
        index = np.uint8 if cols <= 1 << 8 else np.uint16 if cols <= 1 << 16 else np.uint32
        self._start, self._values, self._scale = csr.indptr, csr.data, scale
        self._index = csr.indices.astype(index)
        self._csr = csr
        self._pairs: Optional[Pairs] = None

    @staticmethod
    def from_dense(weights: Any, storage: str = "f32") -> SparseWeights:
        """Makes weights from W [outputs, inputs]; zeros are left out.

        float32 weights are stored as f32, rounded to f16, or quantized to s8 with a scale per
        output; float64 and int8 weights are stored unchanged. InputError for NaN or infinite
        weights (naming output and input), or values too large for f16.
        """
        np = numpy()
        dense = as_array(np, weights, "sparse weights")
        if dense.ndim != 2:
            raise InputError(
                f"sparse weights: expected [outputs, inputs], found {list(dense.shape)}"
            )
        rows, cols = np.nonzero(dense)
        csr = checked_coo(rows, cols, dense[rows, cols], dense.shape)
        if storage not in _STORAGE or (storage != "f32" and dense.dtype != np.float32):
            raise InputError(
                f"sparse weights: expected storage of {', '.join(_STORAGE)}, other than f32 for "
                f"float32 weights, found {storage!r} for {dense.dtype}"
            )
        if storage == "f16":
            return SparseWeights(_as_half(np, csr), None)
        return _quantize_int8(np, csr) if storage == "s8" else SparseWeights(csr, None)

    @property
    def bytes(self) -> int:
        """Memory of all arrays in bytes; the first product that needs paired rows adds theirs."""
        arrays = [self._start, self._index, self._values, self._scale]
        if self._pairs:
            arrays += [self._pairs.pair, self._pairs.columns, self._pairs.values]
        return sum(int(a.nbytes) for a in arrays if a is not None)

    @property
    def density(self) -> float:
        """Fraction of weights that are stored."""
        return self.nnz / max(self.shape[0] * self.shape[1], 1)

    def matmul(
        self,
        x: Any,
        threads: int = 1,
        *,
        bias: Optional[Any] = None,
        low: float = float("-inf"),
        high: float = float("inf"),
        vectors: int = 0,
        out: Optional[Any] = None,
    ) -> Any:
        """W · X (+ bias per output, clamped to low .. high for floats) for X [inputs, pixels].

        vectors: vectors of pixels at a time, 1, 2, 4 or 8; 0 chooses automatically. out: receives
        the result and is returned. NaN and infinities of X propagate to outputs with a weight on
        them, and may spoil outputs that are stored in pairs with those. InputError for a wrong
        shape or type.
        """
        np = numpy()
        if getattr(x, "ndim", 0) != 2:
            raise InputError(
                f"sparse matrix: expected X [{self.shape[1]}, pixels], "
                f"found {list(getattr(x, 'shape', []))}"
            )
        operand, sums = (numpy_type(types[self.stored]) for types in (OPERANDS, SUMS))
        given = checked_operand("X", x, (self.shape[1], x.shape[1]), operand)
        if bias is not None:
            bias = checked_operand("bias", bias, (self.shape[0],), sums)
        if vectors not in (0, 1, 2, 4, 8):
            raise InputError(f"sparse matrix: expected 0, 1, 2, 4 or 8 vectors, found {vectors!r}")
        shape = (self.shape[0], x.shape[1])
        y = empty_array(np, shape, sums, "sparse matrix") if out is None else out
        if out is not None:
            checked_out(out, shape, sums, given)
        product = self._build_product(given, y, bias, low, high, vectors)
        threads = checked_threads(threads, "sparse matrix")
        with ALONE:
            sampler = sampling.due(threads)
            if sampler is None:
                library().spmm(product, threads)
            else:
                ns = sampling.nanoseconds(lambda: library().spmm(product, threads))
                name = spmm_text(self.stored, *self.shape, self.nnz, shape[1])
                call = Call(SPMM, name, "pairs" if product.plan else "rows")
                sampling.record(sampler, TimedCall(call, ns))
        return y

    def timer(self, x: Any, y: Any, threads: int = 1) -> Callable[[int], int]:
        """Returns a function of a count: nanoseconds of that many consecutive products of checked
        arrays."""
        product = self._build_product(x, y, None, float("-inf"), float("inf"), 0)
        timed = library().spmm_timer(product, threads)

        def keeping(count: int, _arrays: Any = (x, y, self)) -> int:
            return timed(count)

        return keeping

    def _build_product(
        self, x: Any, y: Any, bias: Any, low: float, high: float, vectors: int
    ) -> SparseProduct:
        given = (self._start, self._index, self._values, self._scale, x, y, bias)
        start, index, values, scale, at_x, at_y, at_bias = (
            0 if a is None else int(a.ctypes.data) for a in given
        )
        rows, cols, pixels = (*self.shape, x.shape[1])
        where = (start, index, values, scale, at_x, at_y)
        strides = (pixels, pixels, pixels)
        return SparseProduct(
            self.stored,
            rows,
            cols,
            self._index.itemsize,
            *where,
            *strides,
            bias=at_bias,
            low=low,
            high=high,
            vectors=vectors,
            plan=self._build_plan() if pixels > 1 else None,
        )

    def arrays(self, panel: int) -> WeightArrays:
        """The arrays of a product on a core whose panels have this many columns; InputError for
        more columns than pairs can address."""
        if not self._can_pair():
            raise InputError(
                f"sparse weights: expected at most {_PLANNED_COLS} inputs, found {self.shape[1]}; "
                "cut the weights into parts"
            )
        return WeightArrays(self._start, self._index, self._values, self._scale, self._pack(panel))

    def _can_pair(self) -> bool:
        return self.stored in _PLANNED and self.shape[1] <= _PLANNED_COLS

    def _pack(self, panel: int) -> Pairs:
        return pack_rows(self._csr) if self.stored == "s8" else pack_pairs(self._csr, panel)

    def _build_plan(self) -> Optional[SpmmPlan]:
        if not self._can_pair():
            return None
        if not self._pairs:
            self._pairs = self._pack(library().panel())
        p = self._pairs
        arrays = (p.pair, p.columns, p.values)
        return SpmmPlan(p.panels, p.pairs, *(int(a.ctypes.data) for a in arrays))


def _as_half(np: Any, csr: Csr) -> Csr:
    large = np.flatnonzero(np.abs(csr.data) > _MOST["f16"])
    if len(large):
        row = int(np.searchsorted(csr.indptr, large[0], side="right")) - 1
        raise InputError(
            f"sparse weights: expected values up to {_MOST['f16']:g} for f16, found "
            f"{csr.data[large[0]]:g} at output {row}, input {csr.indices[large[0]]}"
        )
    return Csr(csr.shape, csr.indptr, csr.indices, csr.data.astype(np.float16))


def _quantize_int8(np: Any, csr: Csr) -> SparseWeights:
    """Maps each output's largest weight to 127; an output without weights has the scale 1."""
    largest = np.zeros(csr.shape[0], np.float32)
    rows = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
    np.maximum.at(largest, rows, np.abs(csr.data))
    scale = np.where(largest > 0, largest / _INT8, 1).astype(np.float32)
    values = np.rint(csr.data / scale[rows]).astype(np.int8)
    return SparseWeights(Csr(csr.shape, csr.indptr, csr.indices, values), scale)
