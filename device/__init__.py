"""What runs on a board: standard library only, NumPy where arrays come in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.device.arrays.gemm import gemm
    from edgekit.device.arrays.nna import (
        nna_conv3x3,
        nna_depthwise3x3,
        nna_matmul,
        nna_pointwise,
    )
    from edgekit.device.arrays.outlier import OutlierWeights, outlier_matmul
    from edgekit.device.arrays.sparse import SparseMatrix
    from edgekit.device.arrays.sparse_weights import SparseWeights

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
    "OutlierWeights": "edgekit.device.arrays.outlier",
    "SparseMatrix": "edgekit.device.arrays.sparse",
    "SparseWeights": "edgekit.device.arrays.sparse_weights",
    "gemm": "edgekit.device.arrays.gemm",
    "nna_conv3x3": "edgekit.device.arrays.nna",
    "nna_depthwise3x3": "edgekit.device.arrays.nna",
    "nna_matmul": "edgekit.device.arrays.nna",
    "nna_pointwise": "edgekit.device.arrays.nna",
    "outlier_matmul": "edgekit.device.arrays.outlier",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
