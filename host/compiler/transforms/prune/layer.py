"""Weights of one layer: which become 0, and what the others take on for them.

Weights are left out one input after the other, in blocks: those go whose loss costs least, w² over
the diagonal of the inverse of the moments' matrix, and those after it make up for each, as
Frantar and Alistarh, SparseGPT (2023), do after LeCun's optimal brain surgeon. At last what stays
of each row is fitted once more, all together. Sums are fitted to those of the whole float model:
what the layers before have lost is made up for where this layer's inputs allow.
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
    """Sums over what outputs see, with a 1 behind it for the bias: `own` [.., k + 1, k + 1] of the
    pruned model by itself, `cross` by the float model; [c, k + 1, k + 1] where each of c channels
    sees its own."""

    own: F64
    cross: F64

    @classmethod
    def of(cls, pairs: Iterable[tuple[Array, Array]]) -> Moments:
        """Of rows f32 [.., some, k] that the same outputs see in the pruned and the float model, a
        pair for each sample."""
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
class Fitted:
    """Weights [.., n, k], and the bias [.., n] beside them if there is one."""

    weights: F64
    bias: F64 | None


@dataclass(frozen=True, eq=False)
class _Problem:
    """Rows [.., n, k], with the bias as one more column, and how their errors meet: moments
    `damped`, the `share` of those to come in an error, and what the sums should be by `wanted`."""

    rows: F64
    damped: F64
    share: F64
    wanted: F64
    never: Mask  # seen


def prune_layer(
    weights: Array, bias: Array | None, moments: Moments, pattern: Pattern
) -> Fitted | None:
    """`weights` [n, k] and `bias` [n] with the zeros of `pattern`; None where samples say too
    little to invert their moments."""
    inputs = weights.shape[1]
    problem = _problem(weights, bias, moments)
    if problem is None:
        return None
    kept, _ = _kept(_best(problem), inputs, problem.share, pattern)
    made = np.zeros_like(problem.rows)
    for row, places, right in zip(made, kept, problem.wanted.T, strict=True):
        at = np.flatnonzero(places)
        row[at] = np.linalg.solve(problem.damped[np.ix_(at, at)], right[at])
    return _fitted(made, inputs)


def refit_layer(weights: Array, bias: Array | None, moments: Moments) -> Fitted | None:
    """All of `weights` [.., n, k] and `bias` [.., n], fitted such that they make up for
    what layers before have lost; None where samples say too little."""
    problem = _problem(weights, bias, moments)
    return None if problem is None else _fitted(_best(problem), weights.shape[-1])


def errors(
    weights: Array, bias: Array | None, moments: Moments, patterns: Sequence[Pattern]
) -> list[float] | None:
    """The second-order error of all sums together with the zeros of each pattern; None where
    samples say too little."""
    problem = _problem(weights, bias, moments)
    if problem is None:
        return None
    best, inputs = _best(problem), weights.shape[1]
    return [_kept(best, inputs, problem.share, each)[1] for each in patterns]


def _problem(weights: Array, bias: Array | None, moments: Moments) -> _Problem | None:
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


def _best(problem: _Problem) -> F64:
    """All rows fitted, none with a weight for what is never seen: that goes first."""
    best = np.linalg.solve(problem.damped, problem.wanted).swapaxes(-1, -2)
    found: F64 = np.where(problem.never[..., None, :], 0, best)
    return found


def _fitted(rows: F64, inputs: int) -> Fitted:
    return Fitted(rows[..., :inputs], rows[..., inputs] if rows.shape[-1] > inputs else None)


def _kept(rows: F64, inputs: int, share: F64, pattern: Pattern) -> tuple[Mask, float]:
    """Which weights of rows [n, k] stay, and the error that leaving out the others makes; behind so
    many `inputs` a bias always stays."""
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
