"""Import of ai.onnx.ml's classifiers and regressors: linear ones and trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgekit.host.compiler.frontends.onnx import scores
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.scores import best_class, is_above, label
from edgekit.host.compiler.frontends.onnx.trees import (
    LEAF,
    Forest,
    dtype_of_tests,
    emit_forest,
    forest_of_branches,
    forest_of_nodes,
    numbers_of,
)
from edgekit.host.compiler.frontends.onnx.types import Value
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.ops.trees import Join
from edgekit.host.compiler.ir.types import Array, DType, ShapeError, Tensor

_JOINS: dict[str, Join] = {"AVERAGE": "add", "SUM": "add", "MIN": "min", "MAX": "max"}
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")  # of TreeEnsemble


def linear_regressor(call: OnnxCall) -> Tensor:
    targets, offsets = call.integer("targets", 1), call.floats("intercepts")
    weights = scores.constant_rows(call, "coefficients", targets)
    x = scores.rows_of(call)
    y = scores.product(call, x, weights, offsets if len(offsets) == targets else ())
    return scores.transformed(call, y, call.text("post_transform", "NONE"))


def linear_classifier(call: OnnxCall) -> list[Value | None]:
    offsets, labels = call.floats("intercepts"), scores.labels_of(call, "classlabels_ints")
    count = len(offsets) or len(labels)
    weights = scores.constant_rows(call, "coefficients", count)
    y = scores.product(call, scores.rows_of(call), weights, offsets)
    kind = call.text("post_transform", "NONE")
    if count > 1:
        if len(labels) < count:
            raise ShapeError(f"expected at least {count} class labels, found {len(labels)}")
        return [label(call, best_class(call, y), labels[:count]), scores.transformed(call, y, kind)]
    named = labels if len(labels) == 2 else ("0", "1") if _are_texts(labels) else (0, 1)
    place = is_above(call, y, 0.0)
    if kind == "PROBIT" and len(labels) == 2:  # ONNX Runtime mixes up the rows
        raise ShapeError(
            "expected scores of both labels for post_transform PROBIT, found scores of one; "
            "export the model with another post_transform"
        )
    if len(labels) != 2:
        return [label(call, place, named), scores.transformed(call, y, kind)]
    return [label(call, place, named), scores.both_classes(call, y, kind, True)]


def _are_texts(labels: Sequence[str] | Sequence[int]) -> bool:
    return bool(labels) and isinstance(labels[0], str)


def _features(call: OnnxCall) -> Tensor:
    """Rows for trees: f64 as it is, everything else in f32."""
    x = scores.rows_of(call, dtype=None)
    return x if x.dtype is DType.F64 else call.convert(x, DType.F32)


def tree_regressor(call: OnnxCall) -> Tensor:
    x = _features(call)
    forest = forest_of_nodes(call, "target", dtype_of_tests(x))
    offsets = numbers_of(call, "base_values", np.dtype(np.float32))
    targets = call.integer("n_targets", 1)
    y, has = _joined(call, x, forest, targets, call.text("aggregate_function", "SUM"))
    if len(offsets) == targets:
        y = call.emit(ops.Add(), y, call.constant(offsets))
        if has is not None and targets > 1:  # as in ONNX Runtime: without a value not even these
            y = call.emit(ops.Where(), has, y, call.builder.floats(0.0))
    return scores.transformed(call, y, call.text("post_transform", "NONE"))


def tree_ensemble(call: OnnxCall) -> Tensor:
    """Opset 5: scores only, in the type of x."""
    kind = call.x(0).dtype
    x = _features(call)
    join, after = call.integer("aggregate_function", 1), call.integer("post_transform", 0)
    if join not in range(len(_JOINS)) or after not in range(len(_TRANSFORMS)):
        raise ShapeError(f"expected known functions, found {join} and {after}")
    forest = forest_of_branches(call, dtype_of_tests(x))
    y, _ = _joined(call, x, forest, call.integer("n_targets", 1), list(_JOINS)[join])
    return call.convert(scores.transformed(call, y, _TRANSFORMS[after]), kind)


def _joined(
    call: OnnxCall, x: Tensor, forest: Forest, targets: int, function: str
) -> tuple[Tensor, Tensor | None]:
    """Like `emit_forest`."""
    if function not in _JOINS:
        raise ShapeError(f"expected aggregate_function {', '.join(_JOINS)}, found {function:.40}")
    if targets == 1 and _JOINS[function] != "add":
        forest = _with_zeros(forest)
    y, has = emit_forest(call, x, forest, targets, _JOINS[function])
    if function == "AVERAGE":
        y = call.emit(ops.Mul(), y, call.builder.floats(1 / len(forest.roots)))
    return y, has


def _with_zeros(forest: Forest) -> Forest:
    """To ONNX Runtime, leaves without a value have the value 0 if there is one target only."""
    leaves = np.flatnonzero([mode == LEAF for mode in forest.modes])
    empty = np.setdiff1d(leaves, forest.leaves)
    return replace(
        forest,
        leaves=np.concatenate([forest.leaves, empty]),
        targets=np.concatenate([forest.targets, np.zeros_like(empty)]),
        values=np.concatenate([forest.values, np.zeros(len(empty), np.float32)]),
    )


def tree_classifier(call: OnnxCall) -> list[Value | None]:
    x, labels = _features(call), scores.labels_of(call, "classlabels_int64s")
    kind = call.text("post_transform", "NONE")
    forest = forest_of_nodes(call, "class", dtype_of_tests(x))
    offsets = numbers_of(call, "base_values", np.dtype(np.float32))
    count = len(labels)
    if not count or len(offsets) not in (0, 1, count):
        raise ShapeError(
            f"expected class labels and as many base_values or none, found {count} labels and "
            f"{len(offsets)} base_values"
        )
    y, has = emit_forest(call, x, forest, count, "add")
    if count <= 2:
        return _two_classes(call, y, has, forest, offsets, labels, kind)
    known = y
    if len(offsets):
        known = y = call.emit(ops.Add(), y, call.constant(offsets))
    elif has is not None:
        known = call.emit(ops.Where(), has, y, call.builder.floats(-np.inf))
    return [label(call, best_class(call, known), labels), scores.transformed(call, y, kind)]


def _two_classes(
    call: OnnxCall, y: Tensor, has: Tensor | None, forest: Forest, offsets: Array,
    labels: Sequence[str] | Sequence[int], kind: str,
) -> list[Value | None]:  # fmt: skip
    """Trees may score one class or both. Where they give a row no score of the second class, ONNX
    Runtime takes the first one's for it."""
    ids = set(forest.targets.tolist())
    positive = bool(np.all(forest.values >= 0))
    if len(labels) == 1:
        y = call.emit(ops.Add(), y, call.constant(offsets)) if len(offsets) else y
        return [is_above(call, y, 0.0), scores.transformed(call, y, kind)]
    limit = 0.5 if len(ids) == 1 and positive else 0.0
    low, high = call.split(y, 1, (1, 1))
    base = [call.builder.floats(float(v)) for v in offsets]

    none = call.constant(np.zeros(low.shape, np.float32))

    def with_second() -> tuple[Tensor, Tensor]:
        first, second = low, high
        if len(base) == 2:
            second = call.emit(ops.Add(), low, base[1])
            first = call.emit(ops.Neg(), second)
        elif base:
            first = call.emit(ops.Add(), low, base[0])
        if has is not None:
            first = call.emit(ops.Where(), call.part(has, len(has.shape) - 1, 0, 1), first, none)
        pair = call.emit(ops.Concat(1), first, second)
        return is_above(call, second, limit), scores.transformed(call, pair, kind)

    def without_second() -> tuple[Tensor, Tensor]:
        first = call.emit(ops.Add(), low, base[0]) if base else low
        place = is_above(call, first, limit)
        if len(base) == 2:
            pair = call.emit(ops.Concat(1), first, none)
            return place, scores.transformed(call, pair, kind)
        return place, scores.both_classes(call, first, kind, len(ids) == 1 and positive)

    if has is None or (has.data is not None and has.data[1]):
        place, z = with_second()
    elif has.data is not None:
        place, z = without_second()
    else:
        second = call.part(has, 1, 1, 1)
        rows = call.reshape(second, (y.shape[0],))
        (place, z), (other, w) = with_second(), without_second()
        place = call.emit(ops.Where(), rows, place, other)
        z = call.emit(ops.Where(), second, z, w)
    return [label(call, place, labels if len(ids) == 1 else _places(labels)), z]


def _places(labels: Sequence[str] | Sequence[int]) -> Sequence[str] | Sequence[int]:
    """The labels ONNX Runtime gives to two classes that trees score both: integers are 0 and 1."""
    return labels if _are_texts(labels) else (0, 1)
