"""What runs on a board: standard library only, NumPy where arrays come in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.device.arrays import gemm
    from edgekit.device.nna import nna_conv3x3, nna_matmul

__all__ = ["gemm", "nna_conv3x3", "nna_matmul"]

_HOMES = {
    "gemm": "edgekit.device.arrays",
    "nna_conv3x3": "edgekit.device.nna",
    "nna_matmul": "edgekit.device.nna",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
