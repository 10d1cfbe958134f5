"""What products_on_board.py and the C program products.c must print."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

_M, _K, _N = 5, 70, 40


def check_products(found: dict[str, Any]) -> None:
    """Compares products with NumPy's, and looks for one line of an error for each bad input."""
    a, b = operands()
    assert found["gemm_f32"] == found["gemm_s8"] == (a @ b).tolist()
    assert found["gemm_nan"] == "nan"
    columns, rows = np.arange(_K), np.arange(_M)[:, None]
    sparse = ((columns >= rows) & ((columns - rows) % 3 == 0)) * (columns % 5 + 1)
    assert found["spmv"] == (sparse @ (columns % 7 - 3)).tolist()
    outliers = (np.abs(a) > 40).any(0)
    assert found["outliers"] == outliers.sum()
    split, exact = np.array(found["outlier"]), a @ b / 64
    assert np.linalg.norm(split - exact) < 0.01 * np.linalg.norm(exact)
    for what, said in found["refused"].items():
        assert re.fullmatch(r"(\w*Error|error [1-4]): .*expected .*found .*", said), what


def check_half(found: dict[str, Any], computes: bool) -> None:
    """Compares the product of f16, which only cores have that compute in half precision."""
    assert (found["gemm_f16"] is not None) == computes
    if computes:
        a, b = (np.arange(_M * _K) % 7 % 3 - 1), (np.arange(_K * _N) % 11 % 3 - 1)
        made = np.array(found["gemm_f16"], np.uint16).view(np.float16)
        assert made.tolist() == (a.reshape(_M, _K) @ b.reshape(_K, _N)).ravel().tolist()
        assert found["half_rule"] == "analytic"


def check_nna(found: dict[str, Any]) -> None:
    """Compares the product of the NNA, which programs in C do not have, with NumPy's."""
    a, b = operands()
    assert found["nna"] == (a @ b).tolist()
    assert found["cycles"] > 0


def operands() -> tuple[NDArray[Any], NDArray[Any]]:
    """The operands of all products, as whole numbers."""
    return _matrix(_M, _K, 37), _matrix(_K, _N, 29)


def _matrix(rows: int, columns: int, step: int) -> NDArray[Any]:
    return (np.arange(rows * columns) * step % 101 - 50).reshape(rows, columns)
