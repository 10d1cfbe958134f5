"""Import of ai.onnx.ml's tree ensembles into `ops.TreeEnsemble`.

Each kind of test becomes x <= t or x == t: x < t is x <= the number before t, and the others swap
their children.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.ops.trees import Join
from edgekit.host.compiler.ir.types import Array, DType, ShapeError, Tensor

LEAF = "LEAF"
_MODES = (
    "BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ",
    "BRANCH_MEMBER",
)  # fmt: skip
_MOST_FEATURES = 1 << 29
_MOST_TARGETS = 1 << 20
_EQUAL, _MISSING = ops.TreeEnsemble.EQUAL, ops.TreeEnsemble.MISSING


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees as in the file. `links` [nodes, 2]: the nodes after a true and a false test, ~leaf for
    leaves; `roots` likewise. Entries: the `targets` and `values` of `leaves`."""

    modes: Sequence[str]
    features: Array
    limits: Array
    missing: Array
    links: Array
    roots: Array
    leaves: Array
    targets: Array
    values: Array
    members: Sequence[Array] = ()  # of each BRANCH_MEMBER node


def forest_of_nodes(call: OnnxCall, entries: str, dtype: np.dtype[Any]) -> Forest:
    """The trees of a classifier or regressor: leaves are nodes, and all refer to one another by
    numbers of trees and nodes. `entries` is the prefix of the leaves' attributes."""
    nodes = {
        name: numbers_of(call, f"nodes_{name}", np.dtype(np.int64))
        for name in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    }
    modes, count = call.texts("nodes_modes"), len(nodes["treeids"])
    limits = numbers_of(call, "nodes_values", dtype)
    missing = numbers_of(call, "nodes_missing_value_tracks_true", np.dtype(np.int64))
    missing = missing if missing.size else np.zeros(count, np.int64)
    sizes = {len(modes), *(len(v) for v in (*nodes.values(), limits, missing))}
    if sizes != {count} or not count:
        raise ShapeError(
            f"expected the same number of all nodes_ attributes, found {sorted(sizes)}"
        )
    number = {
        pair: i for i, pair in enumerate(zip(nodes["treeids"], nodes["nodeids"], strict=True))
    }
    if len(number) != count:
        raise ShapeError("expected each node of a tree once, found one twice")
    is_leaf = np.array([mode == LEAF for mode in modes])
    links = np.full((count, 2), -1)
    for side, name in enumerate(("truenodeids", "falsenodeids")):
        for i in np.flatnonzero(~is_leaf):
            links[i, side] = _find(number, nodes["treeids"][i], nodes[name][i])
    referred = np.zeros(count, bool)
    referred[links[~is_leaf].reshape(-1)] = True
    free = np.flatnonzero(~referred)
    _, first = np.unique(nodes["treeids"][free], return_index=True)
    roots = np.sort(free[first])
    if len(roots) != len(np.unique(nodes["treeids"])):
        raise ShapeError("expected trees with a root each, found a cycle")
    keys = [
        numbers_of(call, f"{entries}_{n}", np.dtype(np.int64))
        for n in ("treeids", "nodeids", "ids")
    ]
    values = numbers_of(call, f"{entries}_weights", np.dtype(np.float32))
    if len(sizes := {len(k) for k in (*keys, values)}) != 1:
        raise ShapeError(
            f"expected the same number of all {entries}_ attributes, found {sorted(sizes)}"
        )
    leaves = [_find(number, *pair) for pair in zip(keys[0], keys[1], strict=True)]
    known = np.where(is_leaf, ~np.arange(count), np.arange(count))
    return Forest(
        modes, nodes["featureids"], limits, missing, known[links], known[roots],
        np.array(leaves, np.int64), keys[2], values,
    )  # fmt: skip


def forest_of_branches(call: OnnxCall, dtype: np.dtype[Any]) -> Forest:
    """The trees of opset 5, which stores leaves separately from nodes."""
    integer = np.dtype(np.int64)
    numbers = numbers_of(call, "nodes_modes", integer)
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < len(_MODES):
        raise ShapeError(
            f"expected modes from 0 to {len(_MODES) - 1}, found {numbers.min()} to {numbers.max()}"
        )
    limits, features = (
        numbers_of(call, f"nodes_{name}", kind)
        for name, kind in (("splits", dtype), ("featureids", integer))
    )
    missing = numbers_of(call, "nodes_missing_value_tracks_true", integer)
    missing = missing if missing.size else np.zeros(len(numbers), np.int64)
    ends = [numbers_of(call, f"nodes_{side}nodeids", integer) for side in ("true", "false")]
    apart = [numbers_of(call, f"nodes_{side}leafs", integer) for side in ("true", "false")]
    sizes = {len(v) for v in (numbers, limits, features, missing, *ends, *apart)}
    if len(sizes) != 1 or not numbers.size:
        raise ShapeError(
            f"expected the same number of all nodes_ attributes, found {sorted(sizes)}"
        )
    targets = numbers_of(call, "leaf_targetids", integer)
    values = numbers_of(call, "leaf_weights", np.dtype(np.float32))
    if len(targets) != len(values):
        raise ShapeError(f"expected {len(targets)} leaf_weights, found {len(values)}")
    roots = numbers_of(call, "tree_roots", integer)
    for leaf, at in ((np.zeros(len(roots)), roots), *zip(apart, ends, strict=True)):
        outside = at[(at < 0) | (at >= np.where(leaf != 0, len(targets), len(numbers)))]
        if outside.size:
            raise ShapeError(f"expected roots and branches that exist, found number {outside[0]}")
    links = [np.where(leaf != 0, ~at, at) for leaf, at in zip(apart, ends, strict=True)]
    return Forest(
        [_MODES[n] for n in numbers], features, limits, missing, np.stack(links, axis=1),
        roots, np.arange(len(targets)), targets, values,
        _member_sets(numbers_of(call, "membership_values", dtype)),
    )  # fmt: skip


def _find(number: dict[tuple[Any, Any], int], tree: int, node: int) -> int:
    found = number.get((tree, node))
    if found is None:
        raise ShapeError(f"expected node {node} of tree {tree}, found none")
    return found


def numbers_of(call: OnnxCall, name: str, dtype: np.dtype[Any]) -> Array:
    """A list or tensor attribute as a vector; empty if absent."""
    found = call.attributes.get(f"{name}_as_tensor", call.attributes.get(name, ()))
    if isinstance(found, tuple) and not found:
        return np.zeros(0, dtype)
    values = np.asarray(found) if isinstance(found, tuple | np.ndarray) else np.array("")
    if values.dtype.kind in ("iu" if dtype.kind == "i" else "iuf"):
        return values.astype(dtype).reshape(-1)
    raise ShapeError(f"expected numbers as attribute {name}, found {found!r:.40}")


def _member_sets(values: Array) -> list[Array]:
    """The sets between NaNs; a NaN after the last set is optional."""
    ends = np.flatnonzero(np.isnan(values))
    sets = [part[~np.isnan(part)] for part in np.split(values, ends)]
    return sets[:-1] if len(ends) and ends[-1] == len(values) - 1 else sets


def emit_forest(
    call: OnnxCall, x: Tensor, forest: Forest, targets: int, join: Join
) -> tuple[Tensor, Tensor | None]:
    """The joined values [rows, targets], 0 without any; and whether a row has a value for a target:
    None if always, a constant if it is the same for all rows."""
    if not 0 < targets <= _MOST_TARGETS:
        raise ShapeError(f"expected 1 to {_MOST_TARGETS} targets, found {targets}")
    order = _Order(forest)
    leaves, starts, entries = order.entries()
    named = forest.targets[entries]
    if named.size and not 0 <= named.min() <= named.max() < targets:
        raise ShapeError(f"expected {targets} targets, found target {named.max()}")
    tables = [
        np.array(order.limits, forest.limits.dtype), np.array(order.nodes, np.int32).reshape(-1, 3),
        np.array(order.roots, np.int32), starts.astype(np.int32), named.astype(np.int32),
        forest.values[entries],
    ]  # fmt: skip
    constants = [call.constant(table) for table in tables]
    y = call.emit(ops.TreeEnsemble(targets, join), x, *constants)
    always = _always_named(order, leaves, named, targets)
    if np.all(always):
        return y, None
    if np.array_equal(np.flatnonzero(always), np.unique(named)):
        has = call.constant(always)
    else:
        ones = call.constant(np.ones(len(entries), np.float32))
        counts = call.emit(ops.TreeEnsemble(targets), x, *constants[:-1], ones)
        has = call.emit(ops.Less(), call.builder.floats(0.0), counts)
    return y if join == "add" else call.emit(ops.Where(), has, y, call.builder.floats(0.0)), has


def _always_named(order: _Order, leaves: Array, named: Array, targets: int) -> Array:
    """Whether for each target there is a tree all of whose leaves name it."""
    tree = np.array(order.tree_of_leaf, np.int64)
    size = np.bincount(tree, minlength=len(order.roots))
    pairs = np.unique(np.stack([leaves, named], axis=1), axis=0)
    of_tree = np.stack([tree[pairs[:, 0]], pairs[:, 1]], axis=1)
    found, counts = np.unique(of_tree, axis=0, return_counts=True)
    always = np.zeros(targets, np.bool_)
    always[found[counts == size[found[:, 0]], 1]] = True
    return always


class _Order:
    """Nodes and leaves in the order of walks, true children first. A node that is reached twice is
    an error, so walks end."""

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        self.nodes: list[list[int]] = []
        self.limits: list[Any] = []
        self.roots: list[int] = []
        self.leaf_number: dict[int, int] = {}
        self.tree_of_leaf: list[int] = []
        self._sets = dict(
            zip(
                (i for i, mode in enumerate(forest.modes) if mode == "BRANCH_MEMBER"),
                forest.members,
                strict=False,
            )
        )
        self._seen = np.zeros(len(forest.modes), bool)
        for tree, root in enumerate(forest.roots):
            self.roots.append(0)
            self._walk(tree, int(root))
        if not np.array_equal(self._seen, [mode != LEAF for mode in forest.modes]):
            raise ShapeError(
                "expected nodes that each follow from a root once, found a cycle or a node apart"
            )

    def entries(self) -> tuple[Array, Array, Array]:
        """The leaf of each entry, where the entries of each leaf start, and the entries' places in
        the file."""
        number = np.array([self.leaf_number.get(int(i), -1) for i in self._forest.leaves], np.int64)
        at = np.argsort(number, kind="stable")
        at = at[number[at] >= 0]
        counts = np.bincount(number[at], minlength=len(self.tree_of_leaf))
        return number[at], np.concatenate([[0], np.cumsum(counts)]), at

    def _walk(self, tree: int, root: int) -> None:
        left: list[tuple[int, list[tuple[int, int]]]] = [(root, [])]
        while left:
            link, parents = left.pop()
            if link < 0:
                if ~link not in self.leaf_number:
                    self.leaf_number[~link] = len(self.tree_of_leaf)
                    self.tree_of_leaf.append(tree)
                found = ~self.leaf_number[~link]
            else:
                found = len(self.nodes)
                left += self._add(link)
            for parent, side in parents:
                self.nodes[parent][side] = found
            if not parents:
                self.roots[tree] = found

    def _add(self, node: int) -> list[tuple[int, list[tuple[int, int]]]]:
        """Adds a node, or several for a set; returns its children and who refers to them."""
        forest = self._forest
        if node >= len(forest.modes) or self._seen[node]:
            raise ShapeError("expected trees of nodes that exist, found a cycle or none")
        self._seen[node] = True
        feature = int(forest.features[node])
        if not 0 <= feature < _MOST_FEATURES:
            raise ShapeError(f"expected a feature of at least 0, found {feature}")
        tests, swapped = _tests(
            forest.modes[node], forest.limits[node], bool(forest.missing[node]),
            self._sets.get(node, ()),
        )  # fmt: skip
        first = len(self.nodes)
        for i, (limit, flags) in enumerate(tests):
            self.nodes.append([feature << 2 | flags, 0, first + i + 1])
            self.limits.append(limit)
        true, false = (int(link) for link in forest.links[node])
        ends = [(first + i, 1) for i in range(len(tests))]
        after, other = (false, true) if swapped else (true, false)
        return [(other, [(first + len(tests) - 1, 2)]), (after, ends)]


def _tests(
    mode: str, limit: Any, missing: bool, members: Iterable[Any]
) -> tuple[list[tuple[Any, int]], bool]:
    """Thresholds and flags of tests, of which one must hold, and whether that swaps the children.
    A comparison with NaN holds only for `BRANCH_NEQ`."""
    flag = _MISSING if missing else 0
    if mode == "BRANCH_MEMBER":
        sets = [(m, _EQUAL | (0 if i else flag)) for i, m in enumerate(members)]
        return sets or [(limit * np.nan, flag)], False
    if mode in ("BRANCH_EQ", "BRANCH_NEQ"):
        return [(limit, _EQUAL | (flag if mode == "BRANCH_EQ" else 0))], mode == "BRANCH_NEQ"
    if mode not in _MODES:
        raise ShapeError(f"expected a mode of {', '.join((*_MODES, LEAF))}, found {mode:.40}")
    if np.isnan(limit):
        return [(limit, flag)], False  # holds for nothing
    if mode in ("BRANCH_LT", "BRANCH_GTE"):
        lower = np.nextafter(limit, np.array(-np.inf, limit.dtype))
        limit = lower if limit > -np.inf else limit * 0
    if mode in ("BRANCH_LEQ", "BRANCH_LT"):
        return [(limit, flag)], False
    return [(limit, 0 if missing else _MISSING)], True


def dtype_of_tests(x: Tensor) -> np.dtype[Any]:
    return np.dtype(np.float64 if x.dtype is DType.F64 else np.float32)
