"""Sparsity patterns: unstructured, blocks of two neighboring outputs, or n:m."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgekit.host.errors import InputError

F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]

SPARSITY = 0.8
_COLUMNS = 128  # inputs per selection block
_BLOCK = 2  # outputs: device/kernels/sparse stores rows in pairs
_N_OF_M = re.compile(r"(\d+):(\d+)")
_NEAR = 0.005  # tolerance for sparsities written with two decimals


@dataclass(frozen=True)
class Pattern:
    """`sparsity`: fraction of a layer's weights to zero. `outputs`: number of neighboring outputs
    that lose the same inputs. If `of` is not 0, each row keeps `kept` of every `of` inputs."""

    sparsity: float
    outputs: int = 1
    kept: int = 0
    of: int = 0

    @property
    def columns(self) -> int:
        """Number of inputs per selection block."""
        return self.of or _COLUMNS

    def fits(self, inputs: int) -> bool:
        """Whether the number of inputs is a multiple of the group size."""
        return not self.of or inputs % self.of == 0

    def dropped(self, scores: F64) -> Mask:
        """Mask the weights of a block [n, columns] to zero: those with the lowest scores."""
        if self.of:
            order = scores.argsort(axis=1, kind="stable")
            mask = np.zeros(scores.shape, bool)
            np.put_along_axis(mask, order[:, : self.of - self.kept], True, axis=1)
            return mask
        starts = np.arange(0, len(scores), self.outputs)
        heights = np.diff([*starts, len(scores)])
        blocks = np.add.reduceat(scores, starts, axis=0) / heights[:, None]
        count = min(round(self.sparsity * blocks.size), blocks.size - 1)
        gone = np.zeros(blocks.size, bool)
        gone[blocks.reshape(-1).argsort(kind="stable")[:count]] = True
        return np.repeat(gone.reshape(blocks.shape), heights, axis=0)


def pattern_of(text: str, sparsity: float | None) -> Pattern:
    """Parse `free`, `block` or `n:m`; n:m implies its sparsity.

    Raises InputError for another name, for a sparsity not between 0 and 1, and for one that
    contradicts n:m.
    """
    if sparsity is not None and not 0 < sparsity < 1:
        raise InputError(
            f"--sparsity: expected a share of weights between 0 and 1, such as 0.8, found "
            f"{sparsity:g}"
        )
    if text in ("free", "block"):
        return Pattern(sparsity or SPARSITY, _BLOCK if text == "block" else 1)
    found = _N_OF_M.fullmatch(text)
    kept, of = (int(part) for part in found.groups()) if found else (0, 0)
    if not 0 < kept < of <= _COLUMNS:
        raise InputError(
            f"--pattern: expected free, block or n:m with 0 < n < m <= {_COLUMNS}, such as 2:4, "
            f"found {text}"
        )
    own = 1 - kept / of
    if sparsity is not None and not math.isclose(sparsity, own, abs_tol=_NEAR):
        raise InputError(
            f"--sparsity: expected {own:g}, the share that {text} removes, found {sparsity:g}; "
            "leave it out"
        )
    return Pattern(own, 1, kept, of)
