"""Ensembles of decision trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from edgekit.host.compiler.ir.checks import need_dtype, need_positive, need_rank, operand
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["TreeEnsemble"]

Join = Literal["add", "min", "max"]
_WALKS = 1 << 18  # trees of rows that the reference walks at a time
_START = {"add": 0.0, "min": np.inf, "max": -np.inf}


@dataclass(frozen=True)
class TreeEnsemble(Operator):
    """For each row of x [rows, features] (f32, f64), joins the values of the leaves that it
    reaches: [rows, targets] f32, in order of the trees. A target that no leaf names is 0, or for
    `min` and `max` the infinity that changes nothing.

    Constants after x: thresholds [nodes] of x's type; nodes [nodes, 3] s32: test, first child,
    second child; roots [trees] s32; starts [leaves + 1] s32: of each leaf's entries; targets
    [entries] s32; values [entries] f32. A child or root is a node after its parent, or ~leaf.

    A test is feature << 2 | flags. The first child follows if x[feature] <= threshold, or with
    `EQUAL` if they are equal, and with `MISSING` also for NaN.
    """

    kind: ClassVar[str] = "tree_ensemble"
    EQUAL: ClassVar[int] = 1
    MISSING: ClassVar[int] = 2
    elementwise = False
    arithmetic = Arithmetic.EXACT
    cost_kind = "function"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    reads_parts = True
    targets: int = 1
    join: Join = "add"

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, thresholds = operand(ins, 0, "input"), operand(ins, 1, "thresholds")
        need_rank(x, 2, "input")
        need_dtype(x, (DType.F32, DType.F64), "input")
        need_dtype(thresholds, (x.dtype,), "thresholds")
        need_positive((*x.shape, self.targets), "rows, features and targets")
        names = ("nodes", "roots", "starts", "targets", "values")
        tables = [operand(ins, i, name) for i, name in enumerate(names, 2)]
        if all(t.data is not None for t in tables):
            self._check(x.shape[1], [t.data for t in tables if t.data is not None])
        return [((x.shape[0], self.targets), DType.F32)]

    def _check(self, features: int, tables: Sequence[Array]) -> None:
        """Every walk ends, and reads only what exists."""
        nodes, roots, starts, targets, _ = tables
        leaves, at = len(starts) - 1, np.arange(len(nodes))
        links = np.concatenate([nodes[:, 1:].reshape(-1), roots])
        after = nodes[:, 1:] > at[:, None]
        if not np.all(after | (nodes[:, 1:] < 0)):
            raise ShapeError("expected children behind their parents, found a cycle")
        if not np.all((links < len(nodes)) & (~links < leaves)):
            raise ShapeError("expected children that exist, found others")
        tested = nodes[:, 0] >> 2
        if len(nodes) and not 0 <= tested.min() <= tested.max() < features:
            raise ShapeError(f"expected tests of {features} features, found feature {tested.max()}")
        if np.any(np.diff(starts) < 0) or starts[0] != 0 or starts[-1] != len(targets):
            raise ShapeError("expected ranges of entries, found others")
        if len(targets) and not 0 <= targets.min() <= targets.max() < self.targets:
            raise ShapeError(f"expected {self.targets} targets, found target {targets.max()}")

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        rows, *tables = (required(x, i) for i in range(7))
        step = max(1, _WALKS // max(len(tables[2]), 1))
        parts = [self._rows(rows[i : i + step], *tables) for i in range(0, max(len(rows), 1), step)]
        return [np.concatenate(parts)]

    def _rows(
        self, x: Array, thresholds: Array, nodes: Array, roots: Array, starts: Array,
        targets: Array, values: Array,
    ) -> Array:  # fmt: skip
        leaf = self._leaves(x, thresholds, nodes, roots).reshape(-1)
        counts = starts[leaf + 1] - starts[leaf]
        first = np.repeat(starts[leaf] - (np.cumsum(counts) - counts), counts)
        entry = first + np.arange(int(counts.sum()))
        row = np.repeat(np.repeat(np.arange(len(x)), len(roots)), counts)
        y = np.full((len(x), self.targets), _START[self.join], np.float32)
        joins = {"add": np.add, "min": np.minimum, "max": np.maximum}
        joins[self.join].at(y, (row, targets[entry]), values[entry])
        return y

    def _leaves(self, x: Array, thresholds: Array, nodes: Array, roots: Array) -> Array:
        """The leaf of each row in each tree."""
        at = np.repeat(roots[None], len(x), axis=0)
        while True:
            row, tree = np.nonzero(at >= 0)
            if not row.size:
                return ~at
            node = at[row, tree]
            test, limit = nodes[node, 0], thresholds[node]
            value = x[row, test >> 2]
            equal = (value >= limit) | (test & self.EQUAL == 0)
            missing = (test & self.MISSING != 0) & np.isnan(value)
            first = ((value <= limit) & equal) | missing
            at[row, tree] = np.where(first, nodes[node, 1], nodes[node, 2])
