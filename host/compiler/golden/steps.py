"""Noise at discontinuities: rounding, casts, comparisons and choices.

If a value is so close to a threshold that correct kernels may fall on either side, the result
changes by the height of the step. Such values are rare, and random noise may miss them. One noisy
run therefore moves the operands of a step as far as allowed, and another as far in the opposite
direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, Node, Operator, Tensor

_REACH = 2.0  # times the largest movement in noisy runs, as in tolerances
_HASH = np.uint64(0x9E3779B97F4A7C15)  # multiplicative, whose highest bit looks random


@dataclass(frozen=True, eq=False)
class Runs:
    """Values of a tensor without noise and in noisy runs; none if these are all the same."""

    exact: Array
    noisy: tuple[Array, ...] = ()

    @classmethod
    def of(cls, exact: Array, noisy: Sequence[Array]) -> Runs:
        same = all(np.array_equal(exact, y, equal_nan=True) for y in noisy)
        return cls(exact) if same else cls(exact, tuple(noisy))

    def of_run(self, index: int) -> Array:
        return self.noisy[index] if self.noisy else self.exact


def operands_of_runs(
    node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Runs], count: int
) -> list[dict[str, Array]]:
    """Operands of `node` in each of `count` noisy runs; the first two are moved if it has steps."""
    found = [{name: runs.of_run(i) for name, runs in values.items()} for i in range(count)]
    is_step = node.op.jumps or any(not tensors[name].dtype.is_float for name in node.outputs)
    moving = [n for n, runs in values.items() if runs.noisy and tensors[n].dtype.is_float]
    if not is_step or count < 2:
        return found
    for index, name in enumerate(moving):
        x, noisy = values[name].exact, values[name].noisy
        with np.errstate(all="ignore"):
            reach = _REACH * _movement(x, noisy) * _directions(node.op, x, moving, index)
            found[0][name] = (x + reach).astype(x.dtype)
            found[1][name] = (x - reach).astype(x.dtype)
    return found


def _movement(x: Array, noisy: Sequence[Array]) -> Array:
    """How far values may move: as far as in a noisy run, or as most others for their size."""
    found = np.max([np.abs(y - x) for y in noisy], axis=0)
    found = np.where(np.isfinite(found), found, 0)
    size = np.abs(x)
    fractions = np.isfinite(x) & (x != np.rint(x))  # integers are often exact
    usual = np.median(found[fractions] / size[fractions]) if fractions.any() else 0.0
    return np.where(fractions, np.maximum(found, usual * size), found)


def _directions(op: Operator, x: Array, moving: Sequence[str], index: int) -> Array:
    """1 or -1 for each value of an operand: neighbors in order move toward each other, compared
    operands too, others at random, but equal ones alike: a flat part of an image may cross a
    threshold as one, which no mean behind it cancels."""
    if isinstance(op, ops.TopK | ops.ArgExtreme):
        axis = op.axis if isinstance(op, ops.ArgExtreme) else -1
        rank = np.argsort(np.argsort(x, axis=axis, kind="stable"), axis=axis, kind="stable")
        return (1 - 2 * (rank % 2)).astype(x.dtype)
    if op.elementwise and len(moving) > 1:
        return np.full(x.shape, 1 - 2 * (index % 2), x.dtype)
    hashed = x.astype(np.float32).view(np.uint32).astype(np.uint64) * _HASH >> np.uint64(63)
    return np.where(hashed, 1, -1).astype(x.dtype)
