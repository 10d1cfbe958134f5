"""Random operators that compute a row from a row, for `op_graphs`."""

from __future__ import annotations

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType
from tests.support.op_cases import Case, Rng, constant, pick, tensor


def layer_norm(rng: Rng, dtype: DType) -> Case:
    axes = pick(rng, (1, 1, 2))
    shape = [pick(rng, (1, 3, 7)), pick(rng, (1, 2, 5)), pick(rng, (1, 5, 16, 33, 64, 100, 300))]
    row = shape[3 - axes :]
    made = [(None, constant(v), tensor(row, dtype)) for v in rng.standard_normal((2, *row))]
    terms = [choices[pick(rng, (0, 1, 1, 2))] for choices in made]
    return Case(ops.LayerNorm(axes, 10.0 ** -pick(rng, (1, 3, 5))), (tensor(shape, dtype), *terms))


def softmax_mean(rng: Rng, dtype: DType) -> Case:
    """Rows shorter and longer than a vector, and than the vectors in flight."""
    n = pick(rng, (1, 3, 8, 16, 17, 33, 100))
    values = tuple(float(v) for v in rng.uniform(-9, 30, n))
    op = ops.SoftmaxMean(values, float(rng.choice([1.0, 0.5])), bool(rng.random() < 0.5))
    return Case(op, (tensor((pick(rng, (1, 5)), pick(rng, (1, 3)), n), dtype),))


FAMILIES = {
    "layer_norm": (layer_norm, (DType.F32,)),
    "softmax_mean": (softmax_mean, (DType.F32,)),
}
