"""KNNImputer as skl2onnx writes it: functions of the file that collect incomplete rows.

The number of these rows depends on the data; here all rows are imputed and complete ones stay as
they are, so that every shape is fixed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.file import OnnxFile
from edgekit.host.compiler.frontends.onnx.scores import rows_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, ShapeError, Tensor

KNN_COLUMN = "edgekit:KnnImputerColumn"  # internal: (column, x so far, x, fitted rows, k)
_COLUMN, _DISTANCES, _PLACES = (
    f"local_domain:{name}" for name in ("knn_imputer_column", "dist_nan_euclidean", "dict_idx_map")
)
_OPERANDS = 10  # of _COLUMN
_FAR = float(np.finfo(np.float32).max)  # the distance of rows without a common feature


def fuse_imputers(model: OnnxFile) -> OnnxFile:
    """The model with each imputed column as one operator that reads all rows."""
    if not {_COLUMN, _DISTANCES, _PLACES} <= {*model.functions}:
        return model
    makers = {name: n for n in model.nodes for name in n.outputs}
    nodes = []
    for node in model.nodes:
        if node.op == _COLUMN and len(node.inputs) == _OPERANDS:
            column, x, distances, *_, fitted, k = node.inputs
            rows = makers[makers[distances].inputs[0]] if distances in makers else node
            inputs = (column, x, rows.inputs[0], fitted, k)
            nodes.append(replace(node, op=KNN_COLUMN, inputs=inputs))
        elif node.op not in (_DISTANCES, _PLACES):
            nodes.append(node)
    return replace(model, nodes=tuple(nodes))


def knn_column(call: OnnxCall) -> Tensor:
    """`x so far` with a column's missing values replaced by the mean of the nearest donors: fitted
    rows that have this column."""
    column, k = call.single(0, "column"), call.single(4, "n_neighbors")
    so_far, x = rows_of(call, 1), rows_of(call, 2)
    fitted = call.value(3, "fitted rows").astype(np.float32)
    if fitted.ndim != 2 or fitted.shape[1] != x.shape[1] or not 0 <= column < x.shape[1]:
        raise ShapeError(f"expected fitted rows of {x.shape[1]} features, found {fitted.shape}")
    values = fitted[:, column]
    donors = ~np.isnan(values)
    k = min(max(k, 1), int(donors.sum()))
    if not k:
        raise ShapeError(f"expected fitted rows with a value in column {column}, found none")
    known = call.emit(ops.Equal(), x, x)
    far = call.builder.floats(_FAR)
    distances = _distances(call, x, known, fitted)
    near = call.emit(ops.Where(), call.constant(donors[None]), distances, far)
    shortest, places = call.builder.emit_all(ops.TopK(k, smallest=True), [near])
    chosen = call.constant(np.where(donors, values, 0).astype(np.float32))
    weights = _floats(call, call.emit(ops.Less(), shortest, far))
    count = call.emit(ops.ReduceSum((1,), True), weights)
    taken = call.emit(ops.Mul(), call.emit(ops.Gather(), chosen, places), weights)
    total = call.emit(ops.ReduceSum((1,), True), taken)
    none = call.emit(ops.Equal(), count, call.builder.floats(0.0))
    mean = call.builder.floats(float(values[donors].mean(dtype=np.float32)))
    found = call.emit(ops.Where(), none, mean, call.emit(ops.Div(), total, count))
    here = call.constant(np.arange(x.shape[1])[None] == column)
    missing = call.emit(ops.And(), call.emit(ops.Not(), known), here)
    return call.emit(ops.Where(), missing, found, so_far)


def _distances(call: OnnxCall, x: Tensor, known: Tensor, fitted: Array) -> Tensor:
    """Euclidean distances [rows, fitted] over common features, scaled to all of them."""
    has = ~np.isnan(fitted)
    y, there = np.where(has, fitted, 0), has.astype(np.float32)
    zero = call.builder.floats(0.0)
    filled = call.emit(ops.Where(), known, x, zero)
    square = call.emit(ops.Mul(), filled, filled)
    present = _floats(call, known)

    def product(a: Tensor, b: Array) -> Tensor:
        return call.emit(ops.FullyConnected(), a, call.constant(b.astype(np.float32)), None)

    sums = call.emit(ops.Add(), product(filled, -2 * y), product(square, there))
    sums = call.emit(ops.Add(), sums, product(present, y * y))
    sums = call.emit(ops.Maximum(), sums, zero)
    count = product(present, there)
    mean = call.emit(ops.Div(), sums, call.emit(ops.Maximum(), count, call.builder.floats(1.0)))
    scaled = call.emit(ops.Mul(), mean, call.builder.floats(float(x.shape[1])))
    none = call.emit(ops.Equal(), count, zero)
    return call.emit(ops.Where(), none, call.builder.floats(_FAR), call.emit(ops.Sqrt(), scaled))


def _floats(call: OnnxCall, truth: Tensor) -> Tensor:
    one, zero = call.builder.floats(1.0), call.builder.floats(0.0)
    return call.emit(ops.Where(), truth, one, zero)
