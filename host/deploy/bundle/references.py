"""The products that the health check of a release of kernels computes, with their exact results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.ir.types import Array

_M, _K, _N = 13, 70, 45  # multiples of no tile
_LIMIT = 64  # of integers as floats
_STEPS = 127
_HALF_LIMIT = 4  # for exact sums in f16
_GEMMS = (("gemm_f32", "f", "f", "f"), ("gemm_s8", "b", "b", "i"), ("gemm_u8", "B", "b", "i"))


@dataclass(frozen=True, eq=False)
class Reference:
    """A product: its operands by name, its result, and by how much a kernel may differ."""

    kind: str
    operands: dict[str, Array]
    result: Array
    tolerance: float = 0.0


def reference_products(of_half: bool) -> Iterator[Reference]:
    """A product of each kind, `of_half` also of f16. Values are integers and small fractions of
    powers of two, so that sums are exact in any order."""
    rng = np.random.default_rng(0)
    for kind, left, right, result in _GEMMS:
        yield Reference(kind, *_product(rng, left, right, result))
    operands, sums = _product(rng, "b", "b", "i")
    yield Reference("nna", dict(zip("af", operands.values(), strict=True)), sums)
    yield _sparse(rng)
    yield _outlier(rng)
    if of_half:
        yield Reference("gemm_f16", *_product(rng, "e", "e", "e"))


def _product(
    rng: np.random.Generator, left: str, right: str, result: str
) -> tuple[dict[str, Array], Array]:
    """Operands of a dense product, and their product."""
    a, b = _integers(rng, (_M, _K), left), _integers(rng, (_K, _N), right)
    return {"a": a, "b": b}, (a.astype(np.int64) @ b.astype(np.int64)).astype(result)


def _sparse(rng: np.random.Generator) -> Reference:
    """A matrix in rows of very different lengths, one of them empty, times a vector."""
    filled = rng.random((_N, _K)) < np.linspace(0, 0.9, _N)[:, None] ** 3
    matrix, x = _integers(rng, (_N, _K), "f") * filled, _integers(rng, (_K,), "f")
    kept = matrix != 0
    operands = {
        "indptr": np.concatenate(([0], np.cumsum(kept.sum(1)))).astype(np.int64),
        "indices": np.nonzero(kept)[1].astype(np.int32),
        "values": matrix[kept],
        "x": x,
    }
    return Reference("spmv", operands, matrix @ x)


def _outlier(rng: np.random.Generator) -> Reference:
    """Activations of which some channels are beyond the usual threshold, times 8-bit weights. The
    largest inlier of each row is 127 steps, so that it is quantized exactly."""
    x = rng.integers(-_STEPS, _STEPS, (_M, _K), endpoint=True).astype(np.float32) / 32
    x[:, 0] = _STEPS / 32
    x[:, 3::20] = _integers(rng, x[:, 3::20].shape, "f") / 2
    w, scale = _integers(rng, (_K, _N), "b"), np.full(_N, 1 / 64, np.float32)
    exact = x.astype(np.float64) @ (w * scale.astype(np.float64))
    return Reference("outlier", {"x": x, "w": w, "scale": scale}, exact.astype(np.float32))


def _integers(rng: np.random.Generator, shape: tuple[int, ...], code: str) -> Array:
    """All values of a byte, or small integers as floats."""
    limit = {"f": _LIMIT, "e": _HALF_LIMIT}.get(code)
    if limit is not None:
        return rng.integers(-limit, limit, shape, endpoint=True).astype(code)
    limits = np.iinfo(code)
    return rng.integers(limits.min, limits.max, shape, np.dtype(code), endpoint=True)
