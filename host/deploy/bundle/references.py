"""The products that the health check of a release of kernels computes, with their exact results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.ir.types import Array

_M, _K, _N = 13, 70, 45  # multiples of no tile
_LIMIT = 64
_GEMMS = (("gemm_f32", "f", "f", "f"), ("gemm_s8", "b", "b", "i"), ("gemm_u8", "B", "b", "i"))


@dataclass(frozen=True, eq=False)
class Reference:
    """A product: its operands by name, its result, and by how much a kernel may differ."""

    kind: str
    operands: dict[str, Array]
    result: Array
    tolerance: float = 0.0


def reference_products() -> Iterator[Reference]:
    """One product of each kind. Floats are small integers, so that sums are exact in any order."""
    rng = np.random.default_rng(0)
    for kind, left, right, result in _GEMMS:
        a, b = _integers(rng, (_M, _K), left), _integers(rng, (_K, _N), right)
        exact = a.astype(np.int64) @ b.astype(np.int64)
        yield Reference(kind, {"a": a, "b": b}, exact.astype(result))


def _integers(rng: np.random.Generator, shape: tuple[int, ...], code: str) -> Array:
    """All values of a byte, or small integers as floats."""
    if code == "f":
        return rng.integers(-_LIMIT, _LIMIT, shape, endpoint=True).astype(np.float32)
    limits = np.iinfo(code)
    return rng.integers(limits.min, limits.max, shape, np.dtype(code), endpoint=True)
