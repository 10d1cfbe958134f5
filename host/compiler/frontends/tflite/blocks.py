"""Weights with a scale per block: as many values as `size` along the last axis share one.

BlockwiseQuantization of the schema names two other tensors: scales of one value per block, and
zero points, which files may leave out. LiteRT's kernels take f16 scales and no zero points; here
both are as the schema defines them.
"""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir.types import Array, Shape
from edgekit.host.errors import InputError


def decoded(codes: Array, shape: Shape, size: int, scales: Array, zeros: Array | None) -> Array:
    """(codes − zero) · scale in f32; codes of `shape`, scales and zeros in the order of blocks."""
    if not shape or size < 1 or shape[-1] % size:
        raise InputError(f"expected blocks that divide the rows of {list(shape)}, found {size}")
    blocks = codes.size // size
    if scales.size != blocks:
        raise InputError(f"expected {blocks} scales of blocks, found {scales.size}")
    scales = scales.astype(np.float32)
    if not (np.isfinite(scales).all() and (scales >= 0).all()):
        raise InputError("expected finite scales of blocks from 0, found others")
    values = codes.reshape(blocks, size).astype(np.float32)
    if zeros is not None:
        if zeros.size not in (1, blocks):
            raise InputError(f"expected {blocks} zero points of blocks, found {zeros.size}")
        values -= zeros.reshape(-1, 1).astype(np.float32)
    with np.errstate(over="ignore"):
        values *= scales.reshape(-1, 1)
    found: Array = values.reshape(shape)
    return found
