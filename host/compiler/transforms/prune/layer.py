"""Prunes one layer: chooses the weights to zero and refits the remaining ones.

Inputs are processed in order, in blocks. In each block the weights with the lowest cost are
removed: w² over the diagonal of the inverse moment matrix. The weights after them compensate for
each removal, as in Frantar and Alistarh, SparseGPT (2023), after LeCun's optimal brain surgeon.
Finally the remaining weights of each row are refitted jointly. The target is the sums of the
unpruned float model, so a layer also compensates for losses in earlier layers where its inputs
allow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.transforms.prune.pattern import F64, Mask, Pattern
from edgekit.host.compiler.transforms.quantize.rounding import damping, shares


@dataclass
class Moments:
    """Second moments of layer inputs, with a constant 1 appended for the bias: `own` of the pruned
    model with itself, `cross` of the pruned with the float model. Shape [.., k + 1, k + 1], or
    [c, k + 1, k + 1] for c channels with separate inputs."""

    own: F64
    cross: F64

    @classmethod
    def of(cls, pairs: Iterable[tuple[Array, Array]]) -> Moments:
        """Accumulate pairs (pruned model, float model), one per sample, of input rows
        f32 [.., some, k] for the same outputs."""
        own, cross = np.zeros(()), np.zeros(())
        for pair in pairs:
            ours, theirs = (
                np.concatenate([rows, np.ones((*rows.shape[:-1], 1), rows.dtype)], axis=-1)
                for rows in pair
            )
            own = own + ours.swapaxes(-1, -2) @ ours
            cross = cross + ours.swapaxes(-1, -2) @ theirs
        return cls(own, cross)


@dataclass(frozen=True, eq=False)
class FittedWeights:
    """Weights [.., n, k] and, if the layer has one, the bias [.., n]."""

    weights: F64
    bias: F64 | None


@dataclass(frozen=True, eq=False)
class _Problem:
    """Rows [.., n, k] with the bias as last column, the `damped` moments, `share` (how an error is
    distributed over later columns), `wanted` (targets of the normal equations) and the columns
    that are zero in all samples (`never`)."""

    rows: F64
    damped: F64
    share: F64
    wanted: F64
    never: Mask


def prune_layer(
    weights: Array, bias: Array | None, moments: Moments, pattern: Pattern
) -> FittedWeights | None:
    """Prune `weights` [n, k] and `bias` [n] to `pattern`; None if the samples are too few to invert
    their moments."""
    inputs = weights.shape[1]
    problem = _build_problem(weights, bias, moments)
    if problem is None:
        return None
    kept, _ = _choose_mask(_refit_rows(problem), inputs, problem.share, pattern)
    made = np.zeros_like(problem.rows)
    for row, places, right in zip(made, kept, problem.wanted.T, strict=True):
        at = np.flatnonzero(places)
        row[at] = np.linalg.solve(problem.damped[np.ix_(at, at)], right[at])
    return _split_off_bias(made, inputs)


def refit_layer(weights: Array, bias: Array | None, moments: Moments) -> FittedWeights | None:
    """Refit all of `weights` [.., n, k] and `bias` [.., n] to compensate for losses in earlier
    layers; None if the samples are too few."""
    problem = _build_problem(weights, bias, moments)
    return None if problem is None else _split_off_bias(_refit_rows(problem), weights.shape[-1])


def errors(
    weights: Array, bias: Array | None, moments: Moments, patterns: Sequence[Pattern]
) -> list[float] | None:
    """Total second-order error of all sums for each pattern; None if the samples are too few."""
    problem = _build_problem(weights, bias, moments)
    if problem is None:
        return None
    best, inputs = _refit_rows(problem), weights.shape[1]
    return [_choose_mask(best, inputs, problem.share, each)[1] for each in patterns]


def _build_problem(weights: Array, bias: Array | None, moments: Moments) -> _Problem | None:
    columns = [weights] if bias is None else [weights, bias[..., None]]
    rows = np.concatenate(columns, axis=-1).astype(np.float64)
    size = rows.shape[-1]
    own, cross = (m[..., :size, :size] for m in (moments.own, moments.cross))
    diagonal = damping(own)
    damped = own + diagonal
    share = shares(damped)
    if share is None or not np.isfinite(share).all():
        return None
    wanted = (cross + diagonal) @ rows.swapaxes(-1, -2)  # [.., k or k + 1, n]
    never = np.diagonal(own, axis1=-2, axis2=-1) == 0
    return _Problem(rows, damped, share, wanted, never)


def _refit_rows(problem: _Problem) -> F64:
    """Refit all rows; inputs never seen in a sample get weight 0, so they are pruned first."""
    best = np.linalg.solve(problem.damped, problem.wanted).swapaxes(-1, -2)
    found: F64 = np.where(problem.never[..., None, :], 0, best)
    return found


def _split_off_bias(rows: F64, inputs: int) -> FittedWeights:
    return FittedWeights(rows[..., :inputs], rows[..., inputs] if rows.shape[-1] > inputs else None)


def _choose_mask(rows: F64, inputs: int, share: F64, pattern: Pattern) -> tuple[Mask, float]:
    """Return the mask of weights to keep in rows [n, k] and the error of removing the others. The
    bias column, at index `inputs`, is always kept."""
    left, kept, total = rows.copy(), np.ones(rows.shape, bool), 0.0
    for start in range(0, inputs, pattern.columns):
        end = min(start + pattern.columns, inputs)
        cost = (left[:, start:end] / np.diagonal(share)[start:end]) ** 2
        gone = pattern.dropped(cost)
        for i in range(start, end):
            error = np.where(gone[:, i - start], left[:, i], 0) / share[i, i]
            left[:, i + 1 :] -= error[:, None] * share[i, i + 1 :]
            total += float(error @ error)
        kept[:, start:end] = ~gone
    return kept, total
