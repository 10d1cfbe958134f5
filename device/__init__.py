"""What runs on a board: standard library only, NumPy where arrays come in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.device.arrays import gemm
    from edgekit.device.nna import nna_conv3x3, nna_matmul
    from edgekit.device.outlier import OutlierWeights, outlier_matmul
    from edgekit.device.sparse import SparseMatrix
    from edgekit.device.sparse_weights import SparseWeights

__all__ = [
    "OutlierWeights",
    "SparseMatrix",
    "SparseWeights",
    "gemm",
    "nna_conv3x3",
    "nna_matmul",
    "outlier_matmul",
]

_HOMES = {
    "OutlierWeights": "edgekit.device.outlier",
    "SparseMatrix": "edgekit.device.sparse",
    "SparseWeights": "edgekit.device.sparse_weights",
    "gemm": "edgekit.device.arrays",
    "nna_conv3x3": "edgekit.device.nna",
    "nna_matmul": "edgekit.device.nna",
    "outlier_matmul": "edgekit.device.outlier",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
