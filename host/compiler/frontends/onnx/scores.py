"""Scores and labels of ai.onnx.ml's classifiers and regressors, as ONNX Runtime computes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.types import Texts
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor

_SHAPE = 0.147  # of Winitzki's approximation of the error function
_PI = 3.14159  # as in ONNX Runtime
_ZERO = 1e-7  # SOFTMAX_ZERO keeps smaller scores


def rows_of(call: OnnxCall, index: int = 0, dtype: DType | None = DType.F32) -> Tensor:
    """An input as [rows, features]; a vector is a row. `dtype` None keeps the type."""
    x = call.x(index)
    if len(x.shape) not in (1, 2):
        raise ShapeError(f"expected rows of features, found shape {list(x.shape)}")
    x = call.reshape(x, (1, *x.shape)) if len(x.shape) == 1 else x
    return x if dtype is None else call.convert(x, dtype)


def constant_rows(call: OnnxCall, name: str, rows: int) -> Tensor:
    """A list attribute as an f32 constant [rows, n]."""
    values = np.array(call.floats(name), np.float32)
    if not rows or not values.size or values.size % rows:
        raise ShapeError(f"expected {name} for {rows} rows, found {values.size} values")
    return call.constant(values.reshape(rows, -1))


def product(call: OnnxCall, x: Tensor, weights: Tensor, bias: Sequence[float]) -> Tensor:
    """x · weights' + bias, which may be empty."""
    n, k = weights.shape
    if x.shape[1] != k or len(bias) not in (0, n):
        raise ShapeError(
            f"expected {k} features and {n} offsets, found {x.shape[1]} and {len(bias)}"
        )
    offset = call.constant(np.array(bias, np.float32)) if len(bias) else None
    return call.emit(ops.FullyConnected(), x, weights, offset)


def transformed(call: OnnxCall, x: Tensor, kind: str) -> Tensor:
    """The attribute post_transform on scores [rows, n]; a single score only takes PROBIT."""
    known: dict[str, Callable[[OnnxCall, Tensor], Tensor]] = {
        "NONE": lambda _, x: x,
        "LOGISTIC": lambda call, x: call.emit(ops.Logistic(), x),
        "SOFTMAX": lambda call, x: call.emit(ops.Softmax(), x),
        "SOFTMAX_ZERO": _softmax_zero,
        "PROBIT": _probit,
    }
    if kind not in known:
        raise ShapeError(f"expected post_transform {', '.join(known)}, found {kind:.40}")
    return x if x.shape[1] < 2 and kind != "PROBIT" else known[kind](call, x)


def _softmax_zero(call: OnnxCall, x: Tensor) -> Tensor:
    """Softmax in which scores of about 0 do not count."""
    largest = call.emit(ops.ReduceMax((1,), True), x)
    counts = call.emit(ops.Less(), call.builder.floats(_ZERO), call.emit(ops.Abs(), x))
    power = call.emit(ops.Exp(), call.emit(ops.Sub(), x, largest))
    total = call.emit(
        ops.ReduceSum((1,), True), call.emit(ops.Where(), counts, power, call.builder.floats(0.0))
    )
    scale = call.emit(ops.Exp(), call.emit(ops.Neg(), largest))
    return call.emit(
        ops.Div(), call.emit(ops.Where(), counts, power, call.emit(ops.Mul(), x, scale)), total
    )


def _probit(call: OnnxCall, x: Tensor) -> Tensor:
    """√2 · erf⁻¹(2x - 1)."""
    number = call.builder.floats
    y = call.emit(ops.Add(), call.emit(ops.Mul(), x, number(2.0)), number(-1.0))
    inner = call.emit(ops.Sub(), number(1.0), call.emit(ops.Mul(), y, y))
    log = call.emit(ops.Log(), inner)
    half = call.emit(ops.Mul(), log, number(0.5))
    half = call.emit(ops.Add(), half, number(2 / (_PI * _SHAPE)))
    square = call.emit(
        ops.Sub(), call.emit(ops.Mul(), half, half), call.emit(ops.Mul(), log, number(1 / _SHAPE))
    )
    root = call.emit(ops.Sqrt(), call.emit(ops.Sub(), call.emit(ops.Sqrt(), square), half))
    sign = call.emit(ops.Where(), call.emit(ops.Less(), y, number(0.0)), number(-1.0), number(1.0))
    return call.emit(ops.Mul(), call.emit(ops.Mul(), sign, root), number(math.sqrt(2)))


def both_classes(call: OnnxCall, score: Tensor, kind: str, positive: bool) -> Tensor:
    """[rows, 2] scores of a negative and a positive class from that of the positive one.
    `positive`: scores are probabilities, unless they become that by LOGISTIC."""
    if positive and kind != "LOGISTIC":
        other = call.emit(ops.Sub(), call.builder.floats(1.0), score)
    else:
        other = call.emit(ops.Neg(), score)
    pair = call.emit(ops.Concat(1), other, score)
    return call.emit(ops.Logistic(), pair) if kind == "LOGISTIC" else pair


def labels_of(call: OnnxCall, numbers: str) -> tuple[str, ...] | tuple[int, ...]:
    """The labels of the classes: strings, or the integers of attribute `numbers`."""
    texts = call.texts("classlabels_strings")
    return texts or tuple(int(v) for v in _whole_numbers(call, numbers))


def _whole_numbers(call: OnnxCall, name: str) -> tuple[int, ...]:
    found = call.attributes.get(name, ())
    if not isinstance(found, tuple) or not all(isinstance(v, int) for v in found):
        raise ShapeError(f"expected integers as attribute {name}, found {found!r:.40}")
    return found


def best_class(call: OnnxCall, scores: Tensor) -> Tensor:
    """The first class of the highest score, [rows] s64."""
    return call.reshape(call.emit(ops.ArgExtreme(1), scores), (scores.shape[0],))


def is_above(call: OnnxCall, score: Tensor, limit: float) -> Tensor:
    """1 where score [rows, 1] is greater, [rows] s64."""
    above = call.emit(ops.Less(), call.builder.floats(limit), score)
    return call.reshape(call.convert(above, DType.I64), (score.shape[0],))


def label(call: OnnxCall, place: Tensor, labels: Sequence[str] | Sequence[int]) -> Tensor | Texts:
    """labels[place], as strings or integers."""
    if labels and isinstance(labels[0], str):
        return Texts(place, tuple(str(v) for v in labels))
    numbers = [int(v) for v in labels]
    if numbers == list(range(len(numbers))):
        return place
    return call.emit(ops.Gather(0), call.constant(np.array(numbers, np.int64)), place)
