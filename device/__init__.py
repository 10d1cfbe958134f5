"""Code that runs on a board: standard library only, and NumPy where callers pass arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.device.runtime.arrays.gemm import gemm
    from edgekit.device.runtime.arrays.nna import (
        nna_conv3x3,
        nna_depthwise3x3,
        nna_matmul,
        nna_pointwise,
    )
    from edgekit.device.runtime.arrays.outlier import OutlierWeights, outlier_matmul
    from edgekit.device.runtime.arrays.sparse import SparseMatrix
    from edgekit.device.runtime.arrays.sparse_weights import SparseWeights

__all__ = [
    "OutlierWeights",
    "SparseMatrix",
    "SparseWeights",
    "gemm",
    "nna_conv3x3",
    "nna_depthwise3x3",
    "nna_matmul",
    "nna_pointwise",
    "outlier_matmul",
]

_HOMES = {
    "OutlierWeights": "edgekit.device.runtime.arrays.outlier",
    "SparseMatrix": "edgekit.device.runtime.arrays.sparse",
    "SparseWeights": "edgekit.device.runtime.arrays.sparse_weights",
    "gemm": "edgekit.device.runtime.arrays.gemm",
    "nna_conv3x3": "edgekit.device.runtime.arrays.nna",
    "nna_depthwise3x3": "edgekit.device.runtime.arrays.nna",
    "nna_matmul": "edgekit.device.runtime.arrays.nna",
    "nna_pointwise": "edgekit.device.runtime.arrays.nna",
    "outlier_matmul": "edgekit.device.runtime.arrays.outlier",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
