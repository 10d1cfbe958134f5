"""Which weights may go together: any, those of two neighboring outputs, or some of each m."""

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
_COLUMNS = 128  # inputs whose weights are chosen at a time
_BLOCK = 2  # outputs: rows stand in pairs in device/kernels/sparse
_N_OF_M = re.compile(r"(\d+):(\d+)")
_NEAR = 0.005  # of sparsities: what is written with two decimals


@dataclass(frozen=True)
class Pattern:
    """`sparsity`: the share of a layer's weights that become 0. `outputs`: how many neighboring
    ones lose the same inputs. `kept` of each `of` inputs stay in each row, if `of` is not 0."""

    sparsity: float
    outputs: int = 1
    kept: int = 0
    of: int = 0

    @property
    def columns(self) -> int:
        """How many inputs are chosen from at a time."""
        return self.of or _COLUMNS

    def fits(self, inputs: int) -> bool:
        """Whether rows of so many inputs divide into groups."""
        return not self.of or inputs % self.of == 0

    def dropped(self, scores: F64) -> Mask:
        """Which weights of some `columns` [n, k] become 0: those with the least scores."""
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
    """The pattern that `free`, `block` or `n:m` names; n:m says its own sparsity.

    Raises InputError for another name, a share that is not between 0 and 1, and one that is not
    that of n:m.
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
            f"--sparsity: expected {own:g}, the share that {text} leaves out, found {sparsity:g}; "
            "leave it out"
        )
    return Pattern(own, 1, kept, of)
