"""Import of ai.onnx.ml's support vector machines, as ONNX Runtime computes them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from edgekit.host.compiler.frontends.onnx import scores
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.loop import LoopOperand, emit_rolled_loop
from edgekit.host.compiler.frontends.onnx.scores import best_class, label, product
from edgekit.host.compiler.frontends.onnx.types import Value
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor

_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
_MOST_CLASSES = 256  # pairs of classes are operands
_MOST_WEIGHTS = 1 << 26
_ROUNDS = 100  # of the search for probabilities of classes
_CLOSE = 0.005  # its error, times the number of classes


def svm_regressor(call: OnnxCall) -> Tensor:
    count, x = call.integer("n_supports", 0), scores.rows_of(call)
    offset = call.floats("rho")[:1]
    if count:
        vectors = scores.constant_rows(call, "support_vectors", count)
        x = _kernel(call, x, vectors, call.text("kernel_type", "LINEAR"))
    y = product(call, x, scores.constant_rows(call, "coefficients", 1), offset)
    if call.integer("one_class", 0):
        above = call.emit(ops.Less(), call.builder.floats(0.0), y)
        y = call.emit(ops.Where(), above, call.builder.floats(1.0), call.builder.floats(-1.0))
    return y


def _kernel(call: OnnxCall, x: Tensor, vectors: Tensor, kind: str) -> Tensor:
    """The kernel function of each row and each support vector, [rows, vectors]."""
    if kind not in _KERNELS:
        raise ShapeError(f"expected kernel_type {', '.join(_KERNELS)}, found {kind:.40}")
    gamma, coef0, degree = (*call.floats("kernel_params"), 0.0, 0.0, 0.0)[:3]
    assert vectors.data is not None
    count, features = vectors.shape
    if kind == "LINEAR":
        return product(call, x, vectors, ())
    if kind == "RBF":
        if x.shape[1] != features:
            raise ShapeError(f"expected {features} features, found {x.shape[1]}")
        apart = call.emit(
            ops.Sub(), call.reshape(x, (x.shape[0], 1, features)),
            call.reshape(vectors, (1, count, features)),
        )  # fmt: skip
        squares = call.emit(ops.ReduceSum((2,), False), call.emit(ops.Mul(), apart, apart))
        return call.emit(ops.Exp(), call.emit(ops.Mul(), squares, call.builder.floats(-gamma)))
    scaled = call.constant(vectors.data * np.float32(gamma))
    y = product(call, x, scaled, [coef0] * count)
    if kind == "SIGMOID":
        return call.emit(ops.Tanh(), y)
    if degree in (2, 3):
        square = call.emit(ops.Mul(), y, y)
        return square if degree == 2 else call.emit(ops.Mul(), square, y)
    return call.emit(ops.Pow(), y, call.builder.floats(degree))


def svm_classifier(call: OnnxCall) -> list[Value | None]:
    labels, per_class = (
        scores.labels_of(call, "classlabels_ints"),
        call.list("vectors_per_class", ()),
    )
    count, kind = len(labels), call.text("post_transform", "NONE")
    if not 1 < count <= _MOST_CLASSES:
        raise ShapeError(f"expected 2 to {_MOST_CLASSES} class labels, found {count}")
    if sum(per_class) == 0:
        weights = scores.constant_rows(call, "coefficients", count)
        rho = call.floats("rho")[:1]
        y = product(call, scores.rows_of(call), weights, [*rho] * count)
        return [label(call, _linear_place(call, y), labels), scores.transformed(call, y, kind)]
    if len(per_class) != count or min(per_class) < 0:
        raise ShapeError(f"expected vectors_per_class of {count} classes, found {per_class!r:.40}")
    vectors = scores.constant_rows(call, "support_vectors", sum(per_class))
    kernels = _kernel(call, scores.rows_of(call), vectors, call.text("kernel_type", "LINEAR"))
    y = _pair_scores(call, kernels, per_class)
    votes = _votes(call, y, count)
    place = best_class(call, votes)
    if call.floats("prob_a"):
        chances = _pair_chances(call, y)
        z = _class_chances(call, chances, count)
        return [label(call, place, labels), scores.transformed(call, z, kind)]
    if count > 2:
        return [label(call, place, labels), scores.transformed(call, y, kind)]
    if kind == "PROBIT":
        raise ShapeError(
            "expected a post_transform other than PROBIT for two classes, found PROBIT"
        )
    return [label(call, place, labels), scores.both_classes(call, y, kind, kind != "NONE")]


def _linear_place(call: OnnxCall, y: Tensor) -> Tensor:
    """The class of the highest score; of two classes, the second one if that score is positive."""
    place = best_class(call, y)
    if y.shape[1] != 2 or call.floats("prob_a"):
        return place
    positive = min(call.floats("coefficients")) >= 0
    largest = call.emit(ops.ReduceMax((1,), False), y)
    limit = call.builder.floats(0.5 if positive else 0.0)
    below = (
        call.emit(ops.Less(), largest, limit)
        if positive
        else call.emit(ops.LessOrEqual(), largest, limit)
    )
    return call.emit(ops.Where(), below, place, call.scalar(1, place))


def _pair_scores(call: OnnxCall, kernels: Tensor, per_class: Sequence[int]) -> Tensor:
    """The score of each pair of classes, [rows, pairs]: one product with the coefficients of both
    classes' vectors."""
    count, total = len(per_class), sum(per_class)
    given = np.array(call.floats("coefficients"), np.float32)
    pairs = list(itertools.combinations(range(count), 2))
    rho = call.floats("rho")
    if given.size < (count - 1) * total or len(rho) < len(pairs):
        raise ShapeError(
            f"expected {(count - 1) * total} coefficients and rho of {len(pairs)} pairs, "
            f"found {given.size} and {len(rho)}"
        )
    if len(pairs) * total > _MOST_WEIGHTS:
        raise ShapeError(f"expected at most {_MOST_WEIGHTS} weights of pairs, found more")
    given = given[: (count - 1) * total].reshape(count - 1, total)
    ends = np.concatenate([[0], np.cumsum(per_class)])
    weights = np.zeros((len(pairs), total), np.float32)
    for row, (i, j) in enumerate(pairs):
        weights[row, ends[i] : ends[i + 1]] = given[j - 1, ends[i] : ends[i + 1]]
        weights[row, ends[j] : ends[j + 1]] = given[i, ends[j] : ends[j + 1]]
    return product(call, kernels, call.constant(weights), rho[: len(pairs)])


def _votes(call: OnnxCall, y: Tensor, count: int) -> Tensor:
    """How many pairs each class wins, [rows, classes]: the first of a pair by a positive score."""
    first = call.convert(call.emit(ops.Less(), call.builder.floats(0.0), y), DType.F32)
    pairs = list(itertools.combinations(range(count), 2))
    call.builder.need_room((count, len(pairs)), np.float32)
    weights, offsets = np.zeros((count, len(pairs)), np.float32), np.zeros(count, np.float32)
    for column, (i, j) in enumerate(pairs):
        weights[i, column] = 1
        weights[j, column], offsets[j] = -1, offsets[j] + 1
    return product(call, first, call.constant(weights), offsets.tolist())


def _pair_chances(call: OnnxCall, y: Tensor) -> Tensor:
    """The probability of the first class of each pair, [rows, pairs]."""
    a, b = (np.array(call.floats(name), np.float32) for name in ("prob_a", "prob_b"))
    if len(a) < y.shape[1] or len(b) < y.shape[1]:
        raise ShapeError(f"expected prob_a and prob_b of {y.shape[1]} pairs, found {len(a)}")
    slope, offset = (call.constant(-v[: y.shape[1]]) for v in (a, b))
    value = call.emit(ops.Add(), call.emit(ops.Mul(), y, slope), offset)
    return call.emit(ops.Clip(1e-7, 1 - 1e-7), call.emit(ops.Logistic(), value))


def _class_chances(call: OnnxCall, chances: Tensor, count: int) -> Tensor:
    """Probabilities p of classes that fit those r of pairs best, [rows, classes]: the least p'Qp
    (Wu, Lin, Weng: Probability estimates for multi-class classification by pairwise coupling,
    2004), searched for class by class until it is close."""
    rows, number = chances.shape[0], call.builder.floats
    q = _coupled(call, chances, count)
    sure = call.constant(np.array(True))
    even = call.filled((rows, count), 1 / count, np.float32)
    found = call.filled((rows, 1), 0, np.bool_)

    def step(given: Sequence[Value | None]) -> list[Value | None]:
        p, done = (v for v in given if isinstance(v, Tensor))
        column = call.reshape(p, (rows, 1, count))
        qp = call.emit(ops.ReduceSum((2,), False), call.emit(ops.Mul(), q, column))
        pqp = call.emit(ops.ReduceSum((1,), True), call.emit(ops.Mul(), p, qp))
        error = call.emit(ops.Abs(), call.emit(ops.Sub(), qp, pqp))
        close = call.emit(
            ops.Less(), call.emit(ops.ReduceMax((1,), True), error), number(_CLOSE / count)
        )
        done = call.emit(ops.Or(), done, close)
        after = p
        for i in range(count):
            after, qp, pqp = _improve(call, q, i, after, qp, pqp)
        left = call.convert(call.emit(ops.Not(), done), DType.I32)
        most = call.emit(ops.ReduceMax((0, 1), False), left)
        again = call.emit(ops.Less(), call.scalar(0, most), most)
        return [again, call.emit(ops.Where(), done, p, after), done]

    operands = [LoopOperand("state", even), LoopOperand("state", found)]
    made = emit_rolled_loop(call, step, operands, _ROUNDS, (1, 2), 3, sure)
    return made.states[0]


def _coupled(call: OnnxCall, chances: Tensor, count: int) -> Tensor:
    """Q [rows, classes, classes]: the sum over j of r[j, i]^2 at (i, i), and -r[j, i] r[i, j]."""
    pairs = list(itertools.combinations(range(count), 2))
    both = call.emit(
        ops.Concat(1), chances, call.emit(ops.Sub(), call.builder.floats(1.0), chances)
    )
    place = np.zeros((count, count), np.int64)  # of r[i, j] in `both`
    for at, (i, j) in enumerate(pairs):
        place[i, j], place[j, i] = at, len(pairs) + at
    apart = call.constant(1 - np.eye(count, dtype=np.float32))
    of_first, of_second = (
        call.emit(ops.Mul(), call.emit(ops.Gather(1), both, call.constant(at)), apart)
        for at in (place, place.T)
    )
    own = call.emit(ops.ReduceSum((2,), True), call.emit(ops.Mul(), of_second, of_second))
    own = call.emit(ops.Mul(), own, call.constant(np.eye(count, dtype=np.float32)))
    return call.emit(ops.Sub(), own, call.emit(ops.Mul(), of_second, of_first))


def _improve(
    call: OnnxCall, q: Tensor, i: int, p: Tensor, qp: Tensor, pqp: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The best p[i], and what follows from it for p, Qp and p'Qp."""
    rows, count = p.shape
    row = call.reshape(call.part(q, 1, i, 1), (rows, count))
    own, product_ = call.part(row, 1, i, 1), call.part(qp, 1, i, 1)
    more = call.emit(ops.Div(), call.emit(ops.Sub(), pqp, product_), own)
    whole = call.emit(ops.Add(), more, call.builder.floats(1.0))
    twice = call.emit(ops.Add(), product_, product_)
    gain = call.emit(ops.Add(), call.emit(ops.Mul(), more, own), twice)
    total = call.emit(ops.Add(), pqp, call.emit(ops.Mul(), more, gain))
    pqp = call.emit(ops.Div(), total, call.emit(ops.Mul(), whole, whole))
    changed = call.emit(ops.Add(), qp, call.emit(ops.Mul(), row, more))
    one = call.constant(np.eye(count, dtype=np.float32)[i])
    p = call.emit(ops.Add(), p, call.emit(ops.Mul(), more, one))
    return call.emit(ops.Div(), p, whole), call.emit(ops.Div(), changed, whole), pqp
