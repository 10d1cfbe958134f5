"""Weights of one layer: which become 0, and what the others take on for them.

Weights are left out one input after the other, in blocks: those go whose loss costs least, w² over
the diagonal of the inverse of the moments' matrix, and those after it make up for each, as
Frantar and Alistarh, SparseGPT (2023), do after LeCun's optimal brain surgeon. At last what stays
of each row is fitted once more, all together. Sums are fitted to those of the whole float model:
what the layers before have lost is made up for where this layer's inputs allow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgekit.host.graph.types import Array
from edgekit.host.prune.pattern import F64, Mask, Pattern
from edgekit.host.quantize.rounding import damping, shares


@dataclass
class Moments:
    """Sums over what outputs see, with a 1 behind it for the bias: `own` [k + 1, k + 1] of the
    pruned model by itself, `cross` by the float model."""

    own: F64
    cross: F64

    @classmethod
    def none(cls, inputs: int) -> Moments:
        size = (inputs + 1, inputs + 1)
        return cls(np.zeros(size), np.zeros(size))

    def add(self, pruned: Array, exact: Array) -> None:
        """Rows f32 [some, k] that the same outputs see in either model."""
        ours, theirs = (
            np.pad(rows, ((0, 0), (0, 1)), constant_values=1) for rows in (pruned, exact)
        )
        self.own += ours.T @ ours
        self.cross += ours.T @ theirs


@dataclass(frozen=True, eq=False)
class Fitted:
    """Weights [n, k] with zeros, and the bias [n] beside them if there is one."""

    weights: F64
    bias: F64 | None


def prune_layer(
    weights: Array, bias: Array | None, moments: Moments, pattern: Pattern
) -> Fitted | None:
    """`weights` [n, k] and `bias` [n] with the zeros of `pattern`; None where samples say too
    little to invert their moments."""
    inputs = weights.shape[1]
    columns = [weights] if bias is None else [weights, bias[:, None]]
    rows = np.concatenate(columns, axis=1).astype(np.float64)
    own, cross = (m[: rows.shape[1], : rows.shape[1]] for m in (moments.own, moments.cross))
    diagonal = damping(own)
    damped = own + diagonal
    share = shares(damped)
    if share is None or not np.isfinite(share).all():
        return None
    wanted = (cross + diagonal) @ rows.T  # [k or k + 1, n]
    best = np.linalg.solve(damped, wanted).T.astype(np.float64)
    best[:, np.diagonal(own) == 0] = 0  # what is never seen goes first
    kept = _kept(best, inputs, share, pattern)
    made = np.zeros_like(rows)
    for row, places, right in zip(made, kept, wanted.T, strict=True):
        at = np.flatnonzero(places)
        row[at] = np.linalg.solve(damped[np.ix_(at, at)], right[at])
    return Fitted(made[:, :inputs], None if bias is None else made[:, inputs])


def _kept(rows: F64, inputs: int, share: F64, pattern: Pattern) -> Mask:
    """Which weights of rows [n, k] stay; behind so many `inputs` a bias always does."""
    left, kept = rows.copy(), np.ones(rows.shape, bool)
    for start in range(0, inputs, pattern.columns):
        end = min(start + pattern.columns, inputs)
        cost = (left[:, start:end] / np.diagonal(share)[start:end]) ** 2
        gone = pattern.dropped(cost)
        for i in range(start, end):
            error = np.where(gone[:, i - start], left[:, i], 0) / share[i, i]
            left[:, i + 1 :] -= error[:, None] * share[i, i + 1 :]
        kept[:, start:end] = ~gone
    return kept
