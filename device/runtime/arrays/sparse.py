"""Sparse matrices in the 3-D block format of the SpMV patent; docs/smaller-models.md."""

from __future__ import annotations

import math
import numbers
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Optional, Sequence, Tuple, Union

from edgekit.device.runtime.arrays import sampling
from edgekit.device.runtime.arrays.address import address_of
from edgekit.device.runtime.arrays.arguments import checked_threads
from edgekit.device.runtime.arrays.buffers import as_array, dense_array, has_numpy
from edgekit.device.runtime.arrays.calls import SPMV, Call, settings_text, spmv_text
from edgekit.device.runtime.arrays.sampling import CallSampler, TimedCall, Trial
from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.device.runtime.arrays.sparse_buffers import (
    BufferCsr,
    csr_of_buffers,
    refuse_not_finite_buffer,
    vectors_of,
)
from edgekit.device.runtime.arrays.sparse_input import (
    ALONE,
    Csr,
    checked_coo,
    checked_csr,
    checked_operand,
    checked_out,
    library,
    numpy,
    numpy_if_any,
    numpy_type,
    refuse_not_finite,
)
from edgekit.device.runtime.arrays.sparse_library import KINDS, OPERANDS, STORED, SUMS, BlockMatrix
from edgekit.device.runtime.arrays.sparse_trial import compare_settings
from edgekit.device.runtime.arrays.sparse_weights import SparseWeights
from edgekit.device.runtime.errors import InputError

WORTH_THREADS = 65536  # non-zeros: smaller products finish before another thread wakes up


@dataclass(frozen=True)
class BlockForm:
    """The storage of a matrix.

    height: rows of a strip; width: slots of a block; strips of each kind; blocks and slots of all
    strips; column parts; padding: stored values over non-zeros (1 is none); bytes of all arrays;
    streamed: bytes of values and indices.
    """

    height: int
    width: int
    strips: Dict[str, int]
    blocks: int
    slots: int
    parts: int
    padding: float
    bytes: int
    streamed: int


class SparseMatrix:
    """A matrix [rows, cols] of float32, float64, float16 or int8, made by one of the `from_`
    methods.

    x and y of a product have the matrix's dtype, except float32 for float16, and int8 x with int32
    y for int8 (sums are exact modulo 2^32). Values must be finite. Duplicates are summed like in
    SciPy, in input order; explicit zeros are kept. Immutable.
    """

    __slots__ = (
        *("_features", "_form", "_operand", "_settings", "_stored", "_sums", "_weights"),
        *("dtype", "nnz", "shape"),
    )
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # an array times a matrix is not one matrix for each of its elements

    def __init__(
        self, csr: Union[Csr, BufferCsr], settings: Optional[BlockSettings] = None
    ) -> None:
        """Stores checked rows; the `from_` methods do the checks. settings: None selects the
        knowledge base's, else the patent's rule."""
        self.shape = csr.shape
        self.dtype = csr.dtype
        self.nnz = len(csr.data)
        np = numpy_if_any()
        kinds = OPERANDS[csr.stored], SUMS[csr.stored]
        self._operand, self._sums = (kind if np is None else numpy_type(kind) for kind in kinds)
        if settings is not None and not isinstance(settings, BlockSettings):
            raise InputError(
                f"sparse matrix: expected settings as BlockSettings, found {settings!r}"
            )
        self._features = library().features(csr.rows())
        self._settings = settings or library().settings_for(self._features).settings
        self._stored: BlockMatrix = library().build(csr.rows(), self._settings)
        self._form: Optional[BlockForm] = None
        self._weights: Optional[SparseWeights] = None

    @staticmethod
    def from_csr(
        indptr: Any, indices: Any, data: Any, shape: Any, settings: Optional[BlockSettings] = None
    ) -> SparseMatrix:
        """Makes a matrix from row offsets [rows + 1], columns and values; columns in any order per
        row.

        On a board without NumPy the three are objects with the buffer protocol, of 64- and 32-bit
        integers and the values, and columns must ascend in each row. InputError for offsets that do
        not ascend, columns out of range, values that are not finite, and mismatched shapes or
        types.
        """
        if numpy_if_any() is None:
            return SparseMatrix(csr_of_buffers(indptr, indices, data, shape), settings)
        return SparseMatrix(checked_csr(indptr, indices, data, shape), settings)

    @staticmethod
    def from_coo(
        rows: Any, cols: Any, values: Any, shape: Any, settings: Optional[BlockSettings] = None
    ) -> SparseMatrix:
        """Makes a matrix from entries in any order. Raises InputError like from_csr."""
        return SparseMatrix(checked_coo(rows, cols, values, shape), settings)

    @staticmethod
    def from_scipy(matrix: Any, settings: Optional[BlockSettings] = None) -> SparseMatrix:
        """Makes a matrix from any SciPy sparse matrix or array."""
        tocsr = getattr(matrix, "tocsr", None)
        if tocsr is None:
            raise InputError(
                f"sparse matrix: expected a SciPy sparse matrix, found {type(matrix).__name__}"
            )
        if getattr(matrix, "format", "") == "coo":  # SciPy sums 8-bit duplicates modulo 2^8
            return SparseMatrix.from_coo(
                matrix.row, matrix.col, matrix.data, matrix.shape, settings
            )
        csr = tocsr()
        return SparseMatrix.from_csr(csr.indptr, csr.indices, csr.data, csr.shape, settings)

    @staticmethod
    def from_dense(array: Any, settings: Optional[BlockSettings] = None) -> SparseMatrix:
        """Makes a matrix from a 2-D array; zeros are left out."""
        np = numpy()
        dense = as_array(np, array, "sparse matrix")
        if dense.ndim != 2:
            raise InputError(f"sparse matrix: expected 2 dimensions, found {list(dense.shape)}")
        rows, cols = np.nonzero(dense)
        return SparseMatrix.from_coo(rows, cols, dense[rows, cols], dense.shape, settings)

    @staticmethod
    def from_matrix_market(
        path: Union[str, Path], dtype: Any = "float32", settings: Optional[BlockSettings] = None
    ) -> SparseMatrix:
        """Reads a Matrix Market file (coordinate; real, integer or pattern; any real symmetry).

        InputError names the line and the field that is wrong.
        """
        from edgekit.device.runtime.arrays.matrix_market import read_matrix_market

        entries = read_matrix_market(Path(path), dtype)
        return SparseMatrix.from_coo(
            entries.rows, entries.cols, entries.values, entries.shape, settings
        )

    @property
    def settings(self) -> BlockSettings:
        """The storage settings."""
        return self._settings

    @property
    def form(self) -> BlockForm:
        """Statistics of the storage."""
        if self._form is None:
            c = self._stored.c
            counts, blocks = dict.fromkeys(KINDS, 0), 0
            for strip in self._stored.strips():
                counts[KINDS[strip.kind]] += 1
                blocks += -(-strip.slots // c.width)
            padding = c.slots * c.height / self.nnz if self.nnz else 1.0
            self._form = BlockForm(
                *(c.height, c.width, counts, blocks, c.slots, c.parts, padding),
                *(self._stored.bytes, self._stored.streamed),
            )
        return self._form

    def to_csr(self) -> Csr:
        """Returns offsets, columns (ascending in each row) and values, without padding."""
        np = numpy()
        start = np.zeros(self.shape[0] + 1, np.int64)
        index, data = np.empty(self.nnz, np.int32), np.empty(self.nnz, self.dtype)
        library().to_rows(self._stored, *(a.ctypes.data for a in (start, index, data)))
        return Csr(self.shape, start, index, data)

    def to_dense(self) -> Any:
        """Returns a 2-D array."""
        np = numpy()
        csr, dense = self.to_csr(), np.zeros(self.shape, self.dtype)
        dense[_row_of_each(np, csr), csr.indices] = csr.data
        return dense

    def matvec(self, x: Any, threads: int = 1, *, out: Optional[Any] = None) -> Any:
        """A · x for x [cols] → [rows]; bit-identical across runs with the same number of threads.

        x is a NumPy array, or another object with the buffer protocol and the result a memoryview.
        Small products use one thread. out: receives the result and is returned. InputError for a
        wrong shape or type, or an x that is not finite.
        """
        np, operand, sums = numpy_if_any(), self._operand, self._sums
        if np is None or (type(x) is not np.ndarray and not has_numpy(x, out)):
            return self._matvec_of_buffers(x, threads, out)
        if type(x) is not np.ndarray or x.dtype != operand or x.shape != (self.shape[1],):
            x = checked_operand("x", x, (self.shape[1],), operand)
        elif not (x.flags.c_contiguous and x.flags.aligned):
            x = dense_array(np, x, "sparse matrix")
        if out is None:
            y = np.empty(self.shape[0], sums)
        else:
            checked_out(out, (self.shape[0],), sums, x)
            y = out
        if not self._multiply(address_of(x), address_of(y), threads):
            refuse_not_finite(x)
        return y

    def _matvec_of_buffers(self, x: Any, threads: int, out: Any) -> Any:
        given, result, y = vectors_of(x, out, self.shape, STORED[self._stored.c.dtype])
        if not self._multiply(given.address, result.address, threads):
            refuse_not_finite_buffer(given)
        return y

    def _multiply(self, x: int, y: int, threads: int) -> bool:
        """Computes y at an address from x; returns whether all of it is finite."""
        if type(threads) is not int or threads != 1:
            threads = checked_threads(threads, "sparse matrix")
            threads = threads if self.nnz >= WORTH_THREADS else 1
        with ALONE:
            sampler = sampling.due(threads)
            if sampler is None:
                return library().spmv(self._stored, x, y, threads)
            return self._multiply_sampled(x, y, threads, sampler)

    def _multiply_sampled(self, x: int, y: int, threads: int, sampler: CallSampler) -> bool:
        start = time.perf_counter_ns()
        finite = library().spmv(self._stored, x, y, threads)
        ns = time.perf_counter_ns() - start
        features, how = self._features, self._settings
        call = Call(SPMV, spmv_text(features), settings_text(how))
        trials: Sequence[Trial] = ()
        began = time.perf_counter_ns()
        if sampler.tries(call):
            trials = compare_settings(library(), self._stored, features, how, x, threads)
        added = time.perf_counter_ns() - began
        sampling.record(sampler, TimedCall(call, ns, 0, trials, added))
        return finite

    def matmul(self, x: Any, threads: int = 1) -> Any:
        """A · X for X [cols, n] → [rows, n]. The first call caches a CSR copy of A.

        InputError for a wrong shape or type, or a result that is not finite because X is not.
        """
        if self._weights is None:
            self._weights = SparseWeights(self.to_csr(), None)
        y, np = self._weights.matmul(x, threads), numpy()
        with np.errstate(over="ignore", invalid="ignore"):
            finite = bool(np.isfinite(y.sum()))  # reads y once, without a copy
        if not finite:
            # Rows stored in pairs multiply each other's columns by 0, and 0 times NaN is NaN.
            refuse_not_finite(x)
        return y

    def __matmul__(self, x: Any) -> Any:
        return self.matmul(x) if getattr(x, "ndim", 1) == 2 else self.matvec(x)

    def __add__(self, other: Any) -> SparseMatrix:
        return self._add_scaled(other, 1) if isinstance(other, SparseMatrix) else NotImplemented

    def __sub__(self, other: Any) -> SparseMatrix:
        return self._add_scaled(other, -1) if isinstance(other, SparseMatrix) else NotImplemented

    def __neg__(self) -> SparseMatrix:
        return self * -1

    def __mul__(self, factor: Any) -> SparseMatrix:
        """Scales every value; int8 requires an integer factor, and products must fit."""
        if not isinstance(factor, numbers.Real):
            return NotImplemented
        np, csr = numpy(), self.to_csr()
        if self.dtype.kind == "i" and not isinstance(factor, numbers.Integral):
            raise InputError(f"sparse matrix: expected an integer factor for int8, found {factor}")
        wide = np.float32 if self.dtype == np.float16 else np.float64
        values = csr.data.astype(wide if self.dtype.itemsize < 4 else self.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            try:
                values *= values.dtype.type(factor)
            except OverflowError:  # an integer beyond the range of floats
                values *= math.inf
        limit = np.finfo(self.dtype).max if self.dtype.kind == "f" else np.iinfo(self.dtype).max
        least = -limit if self.dtype.kind == "f" else -limit - 1
        if not bool(np.all((values <= limit) & (values >= least))):
            raise InputError(
                f"sparse matrix: expected products with {str(factor)[:24]} within {self.dtype}, "
                "found others; use a wider type"
            )
        kept = Csr(self.shape, csr.indptr, csr.indices, values.astype(self.dtype))
        return SparseMatrix(kept, self._settings)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> Any:
        """Whether shape, type and all values are equal; explicit zeros count as zeros."""
        if not isinstance(other, SparseMatrix):
            return NotImplemented
        if self.shape != other.shape or self.dtype != other.dtype:
            return False
        np = numpy()
        mine, theirs = (_without_zeros(np, m.to_csr()) for m in (self, other))
        return all(np.array_equal(a, b) for a, b in zip(mine, theirs))

    @property
    def T(self) -> SparseMatrix:  # noqa: N802 - as everywhere
        """The transpose."""
        np, csr = numpy(), self.to_csr()
        transposed = (csr.indices, _row_of_each(np, csr), csr.data, self.shape[::-1])
        return SparseMatrix.from_coo(*transposed)

    def save(self, path: Union[str, Path]) -> None:
        """Writes an .npz that scipy.sparse.load_npz also reads; it loads on every board. InputError
        if the file cannot be written."""
        from edgekit.device.runtime.arrays.sparse_file import write_sparse_npz

        write_sparse_npz(Path(path), self.to_csr())

    @staticmethod
    def load(path: Union[str, Path], settings: Optional[BlockSettings] = None) -> SparseMatrix:
        """Reads an .npz from `save` or scipy.sparse.save_npz; validates all of it."""
        from edgekit.device.runtime.arrays.sparse_file import read_sparse_npz

        return SparseMatrix.from_csr(*read_sparse_npz(Path(path)), settings)

    def __repr__(self) -> str:
        rows, cols = self.shape
        return f"SparseMatrix({rows} x {cols}, {self.nnz} non-zeros of {self.dtype})"

    def _add_scaled(self, other: SparseMatrix, sign: int) -> SparseMatrix:
        """self + sign · other: the union of both patterns; cancelled entries stay as zeros."""
        if self.shape != other.shape or self.dtype != other.dtype:
            raise InputError(
                f"sparse matrix: expected a second matrix of {self.dtype} {list(self.shape)}, "
                f"found {other.dtype} {list(other.shape)}"
            )
        np = numpy()
        a, b = self.to_csr(), (other if sign > 0 else -other).to_csr()
        parts = ((_row_of_each(np, m), m.indices, m.data) for m in (a, b))
        rows, cols, values = (np.concatenate(pair) for pair in zip(*parts))
        return SparseMatrix.from_coo(rows, cols, values, self.shape, self._settings)


def _row_of_each(np: Any, csr: Csr) -> Any:
    return np.repeat(np.arange(csr.shape[0], dtype=np.int32), np.diff(csr.indptr))


def _without_zeros(np: Any, csr: Csr) -> Tuple[Any, Any, Any]:
    kept = csr.data != 0
    return _row_of_each(np, csr)[kept], csr.indices[kept], csr.data[kept]
