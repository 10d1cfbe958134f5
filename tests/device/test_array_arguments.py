"""Arrays whose values cannot be taken as they are: with a mask, ragged, or larger than memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgekit.device import (
    OutlierWeights,
    SparseMatrix,
    SparseWeights,
    gemm,
    nna_conv3x3,
    nna_matmul,
    outlier_matmul,
)
from edgekit.device.runtime.arrays.buffers import dense_array
from edgekit.device.runtime.arrays.nna_matmul import nna_matmul as nna_matmul_on_board
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.features import memory_bytes

_X = np.ones((3, 3), np.float32)
_S8 = np.ones((3, 3), np.int8)
_HUGE = 1 << 46  # elements, beyond any address space; their views take one element

Call = Callable[[Any], Any]


def _masked(of: Any) -> Any:
    return np.ma.masked_array(
        of, mask=np.eye(*of.shape) if of.ndim == 2 else np.arange(of.size) < 1
    )


_FLOATS: dict[str, Call] = {
    "gemm: a": lambda x: gemm(x, _X),
    "gemm: b": lambda x: gemm(_X, x),
    "gemm: out": lambda x: gemm(_X, _X, out=x),
    "gemm: bias": lambda x: gemm(_X, _X, bias=x[0]),
    "sparse matrix": SparseMatrix.from_dense,
    "sparse matrix: values": lambda x: SparseMatrix.from_coo([0, 1, 2], [0, 1, 2], x[0], (3, 3)),
    "sparse matrix: x": lambda x: SparseMatrix.from_dense(_X).matvec(x[0]),
    "sparse matrix: out": lambda x: SparseMatrix.from_dense(_X).matvec(_X[0], out=x[0]),
    "sparse matrix: X": lambda x: SparseMatrix.from_dense(_X) @ x,
    "sparse weights": SparseWeights.from_dense,
    "outlier weights: w": OutlierWeights.from_float,
    "outlier weights: scale": lambda x: OutlierWeights.from_int8(_S8, x[0]),
    "outlier_matmul: x": lambda x: outlier_matmul(x, OutlierWeights.from_float(_X)),
}
_INTEGERS: dict[str, Call] = {
    "sparse matrix: rows": lambda x: SparseMatrix.from_coo(x[0], [0, 1, 2], _X[0], (3, 3)),
    "sparse matrix: indptr": lambda x: SparseMatrix.from_csr(x[0], [], [], (2, 2)),
    "outlier weights: channels": lambda x: OutlierWeights.from_float(_X).dequantized(x[0]),
    "nna: a": lambda x: nna_matmul(x, _S8),
    "nna: f": lambda x: nna_matmul(_S8, x),
    "nna: x": lambda x: nna_conv3x3(x[None], np.ones((1, 3, 3, 3), np.int8)),
}


@pytest.mark.parametrize("what", [*_FLOATS, *_INTEGERS])
def test_masked_elements_do_not_count_as_values(what: str) -> None:
    call = _FLOATS[what] if what in _FLOATS else _INTEGERS[what]
    with pytest.raises(InputError, match=f"^{what}: expected an array without a mask, found"):
        call(_masked(_X.copy() if what in _FLOATS else _S8))


def _broadcast(rows: int, columns: int, dtype: Any = np.float32) -> Any:
    return np.broadcast_to(dtype(1), (rows, columns))


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: gemm(_broadcast(_HUGE, 3), _X), "gemm"),
        (lambda: SparseMatrix.from_dense(_X) @ _broadcast(3, _HUGE), "sparse matrix"),
        (lambda: outlier_matmul(_broadcast(_HUGE, 3), OutlierWeights.from_float(_X)), "outlier_m"),
        (lambda: OutlierWeights.from_float(_broadcast(3, _HUGE)), "outlier weights"),
        (
            lambda: OutlierWeights.from_int8(_broadcast(3, _HUGE, np.int8), _X[0]),
            "outlier weights",
        ),
        (
            lambda: OutlierWeights.from_int4(
                _broadcast(3, _HUGE, np.uint8), _broadcast(1, _HUGE, np.float64)
            ),
            "outlier weights: scale",
        ),
        (lambda: gemm(memoryview(_broadcast(_HUGE, 3)), memoryview(_X)), "gemm: a"),
        (
            lambda: SparseMatrix.from_coo([0], [0], _broadcast(1, _HUGE)[0], (3, 3)),
            "sparse matrix: values",
        ),
        (
            lambda: SparseMatrix.from_csr(_S8[0], _broadcast(1, _HUGE, np.int8)[0], _X[0], (2, 3)),
            "sparse matrix: indices",
        ),
    ],
)
def test_a_product_beyond_memory_names_its_extents(call: Callable[[], Any], found: str) -> None:
    with pytest.raises(InputError, match=f"^{found}.*expected memory for .*{_HUGE}.*too little"):
        call()


_ROWS = (memory_bytes().total or 0) // 4096 - 16  # of 1024 floats: as much as the system grants
_TALL, _WIDE = _broadcast(_ROWS, 1, np.int8), np.ones((1, 1024), np.int8)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: gemm(_TALL, _WIDE), "gemm"),
        (lambda: gemm(memoryview(_TALL), memoryview(_WIDE)), "gemm"),
        (lambda: nna_matmul_on_board(_TALL, _WIDE), "nna"),
    ],
)
def test_memory_that_is_granted_but_not_free_kills_no_program(
    call: Callable[[], Any], what: str
) -> None:
    with pytest.raises(InputError, match=rf"^{what}: expected memory for .*\[{_ROWS}, 1024\]"):
        call()


@pytest.mark.parametrize("make", [SparseMatrix.from_dense, SparseWeights.from_dense])
def test_rows_of_different_lengths_are_no_matrix(make: Call) -> None:
    with pytest.raises(InputError, match="expected an array of numbers, found list"):
        make([[1.0, 2.0], [3.0]])


def test_an_infinite_extent_is_no_size() -> None:
    with pytest.raises(InputError, match="expected a shape of two sizes"):
        SparseMatrix.from_coo([0], [0], _X[0, :1], (np.inf, 2))


def test_a_released_memoryview_has_no_elements() -> None:
    view = memoryview(bytearray(4)).cast("b", [2, 2])
    view.release()
    with pytest.raises(InputError, match="a: expected an array of numbers, found a released"):
        gemm(view, view)


def test_dates_are_no_numbers() -> None:
    dates = np.zeros((2, 2), "M8[s]")
    with pytest.raises(InputError, match="a: expected an array of numbers, found cannot include"):
        nna_matmul_on_board(dates, dates)


@pytest.mark.parametrize("shape", [(5,), (3, 4)])
def test_copies_are_aligned_too(shape: tuple[int, ...]) -> None:
    odd = np.ndarray(shape, np.float32, bytearray(64), 1)
    dense = dense_array(np, odd, "gemm")
    assert dense.flags.aligned and not odd.flags.aligned and not np.shares_memory(dense, odd)
