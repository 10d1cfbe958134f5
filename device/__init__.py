"""What runs on a board: standard library only, NumPy where arrays come in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.device.arrays import gemm

__all__ = ["gemm"]


def __getattr__(name: str) -> Any:
    if name != "gemm":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from edgekit.device.arrays import gemm

    return gemm
