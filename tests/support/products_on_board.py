"""Runs on a board without NumPy: a product of each kind, and what bad input is answered with.

    python3 products_on_board.py RUNTIME.pyz

Prints one JSON document: products as lists, and the message of each error.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from array import array

sys.path.insert(0, os.path.realpath(sys.argv[1]))

import edgekit_runtime
from edgekit_runtime import OutlierWeights, SparseMatrix, gemm, nna_matmul, outlier_matmul

M, K, N = 5, 70, 40


def matrix(code: str, rows: int, columns: int, step: int) -> memoryview:
    values = [i * step % 101 - 50 for i in range(rows * columns)]
    return memoryview(array(code, values)).cast("B").cast(code, [rows, columns])


a, b = matrix("f", M, K, 37), matrix("f", K, N, 29)
a8, b8 = matrix("b", M, K, 37), matrix("b", K, N, 29)
scale = array("f", [1 / 64] * N)
weights = OutlierWeights.from_int8(b8, scale)
x = array("f", [i % 7 - 3.0 for i in range(K)])
# Every row of the sparse matrix has its number and the next of every third column.
columns = [c for row in range(M) for c in range(row, K, 3)]
starts = [sum(len(range(r, K, 3)) for r in range(row)) for row in range(M + 1)]
csr = (array("q", starts), array("i", columns), array("f", [c % 5 + 1.0 for c in columns]))
sparse = SparseMatrix.from_csr(*csr, (M, K))
starts_of_32_bits = (ctypes.c_int32 * len(starts))(*starts)
same = SparseMatrix.from_csr(starts_of_32_bits, *csr[1:], (M, K))
assert same.matvec(x).tolist() == sparse.matvec(x).tolist()
split, why = outlier_matmul(a, weights, 40.0, path="split", explain=True)
nan = memoryview(array("f", [float("nan")] * K)).cast("B").cast("f", [1, K])
huge = (array("q", [0, 1]), array("q", [2**31]), array("f", [1.0]))

REFUSED = {
    "other shapes": lambda: gemm(a, a),
    "other types": lambda: gemm(a, b8),
    "no matrix": lambda: gemm(a, x),
    "no array": lambda: gemm(a, 3),
    "out of another shape": lambda: gemm(a, b, out=matrix("f", M, K, 1)),
    "out that is an operand": lambda: gemm(a, matrix("f", K, K, 1), out=a),
    "a read-only out": lambda: gemm(a, b, out=matrix("f", M, N, 1).toreadonly()),
    "too few offsets": lambda: SparseMatrix.from_csr(*csr, (M + 1, K)),
    "columns beyond the matrix": lambda: SparseMatrix.from_csr(*csr, (M, K - 5)),
    "columns beyond 31 bits": lambda: SparseMatrix.from_csr(*huge, (1, K)),
    "columns that descend": lambda: SparseMatrix.from_csr(
        array("q", [0, 2]), array("i", [1, 0]), array("f", [1, 1]), (1, 2)
    ),
    "values that are not finite": lambda: SparseMatrix.from_csr(
        array("q", [0, 1]), array("i", [0]), array("f", [float("inf")]), (1, 1)
    ),
    "a vector of another length": lambda: sparse.matvec(array("f", [1.0])),
    "a vector that is not finite": lambda: sparse.matvec(nan[0:1].cast("B").cast("f")),
    "what needs NumPy": lambda: sparse.to_csr(),
    "a multiple, which needs NumPy": lambda: sparse * 2,
    "scales of 0": lambda: OutlierWeights.from_int8(b8, array("f", [0.0] * N)),
    "weights of floats": lambda: OutlierWeights.from_int8(b, scale),
    "channels of another number": lambda: outlier_matmul(matrix("f", 2, K + 1, 1), weights),
    "activations that are not finite": lambda: outlier_matmul(nan, weights),
    "bytes without a sign": lambda: nna_matmul(a8, b8.cast("B").cast("B", [K, N])),
    "an inner dimension of another size": lambda: nna_matmul(a8, a8),
}


def refused(call) -> str:
    try:
        call()
    except edgekit_runtime.DeviceError as error:
        return f"{type(error).__name__}: {error}"
    return "computed"


sums, account = nna_matmul(a8, b8, True)
print(
    json.dumps(
        {
            "gemm_f32": gemm(a, b).tolist(),
            "gemm_s8": gemm(a8, b8).tolist(),
            "gemm_nan": str(gemm(nan, b)[0, 0]),
            "spmv": sparse.matvec(x).tolist(),
            "outlier": split.tolist(),
            "outliers": why.outliers,
            "nna": sums.tolist(),
            "cycles": account.cycles,
            "refused": {name: refused(call) for name, call in REFUSED.items()},
        }
    )
)
