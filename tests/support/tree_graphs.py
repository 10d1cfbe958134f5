"""Random ensembles of decision trees, for `op_graphs`."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType
from tests.support.op_cases import Case, Rng, constant, pick, tensor


def _nodes(rng: Rng, trees: int, features: int, flags: int) -> tuple[Array, Array, int]:
    """[nodes, 3] and the roots of trees that split leaves at random; the number of leaves."""
    nodes: list[list[int]] = []
    roots, leaves = [], 0
    for _ in range(trees):
        open_links: list[tuple[int, int]] = [(-1, 0)]
        roots.append(len(nodes))
        for _ in range(int(rng.integers(0, 40))):
            parent, side = open_links.pop(int(rng.integers(len(open_links))))
            if parent >= 0:
                nodes[parent][side] = len(nodes)
            test = int(rng.integers(features)) << 2 | (int(rng.integers(4)) & flags)
            open_links += [(len(nodes), 1), (len(nodes), 2)]
            nodes.append([test, 0, 0])
        for parent, side in open_links:
            if parent < 0:
                roots[-1] = ~leaves
            else:
                nodes[parent][side] = ~leaves
            leaves += 1
    return np.array(nodes, np.int32).reshape(-1, 3), np.array(roots, np.int32), leaves


def tree_ensemble(rng: Rng, dtype: DType) -> Case:
    """Thresholds and constant rows are small integers, so many are equal; some rows have NaN."""
    rows, features, targets = pick(rng, (1, 3, 16, 35)), pick(rng, (1, 4, 30)), pick(rng, (1, 3))
    nodes, roots, leaves = _nodes(rng, pick(rng, (1, 7, 20)), features, pick(rng, (0, 1, 3)))
    each = rng.integers(0, 3, leaves) if rng.random() < 0.5 else np.full(leaves, targets)
    starts = np.concatenate([[0], np.cumsum(each)])
    join = ("add", "min", "max")[int(rng.integers(3))]
    x = rng.integers(-3, 4, (rows, features)).astype(dtype.numpy)
    x[rng.random(x.shape) < 0.1] = np.nan
    thresholds = rng.integers(-3, 4, len(nodes))
    return Case(
        ops.TreeEnsemble(targets, "add" if join == "add" else "min" if join == "min" else "max"),
        (
            tensor(x.shape, dtype) if rng.random() < 0.3 else constant(x, dtype),
            constant(thresholds, dtype), constant(nodes, DType.I32), constant(roots, DType.I32),
            constant(starts, DType.I32), constant(rng.integers(0, targets, starts[-1]), DType.I32),
            constant(rng.standard_normal(starts[-1])),
        ),
    )  # fmt: skip


FAMILIES = {"tree_ensemble": (tree_ensemble, (DType.F32, DType.F64))}
