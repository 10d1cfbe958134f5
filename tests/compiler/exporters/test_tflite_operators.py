"""Operators of odd sizes, exported and run by LiteRT, against their references."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.exporters import write_tflite
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import DType, Padding
from edgekit.host.errors import InputError
from tests.support.export_cases import CASES, floats, name_of, shown, unary
from tests.support.op_cases import Case, tensor
from tests.support.op_graphs import graph_of, inputs_of

_FAST_ONLY = (ops.Ceil, ops.RoundEven, ops.Elu)  # no reference kernel, nor one for s8 sums
# On quantized tensors these are composed of several operators, or use an f32 error function; the
# result may be the other of the two nearest values.
_BY_OTHERS = (
    ops.Clip, ops.Concat, ops.Div, ops.Elu, ops.Gelu, ops.HardSigmoid,
    ops.Reciprocal, ops.Silu, ops.Softplus,
)  # fmt: skip
# Exported as a float mean, since LiteRT pads quantized tensors only as SAME or VALID; ties round
# either way.
(_POOLED_IN_FLOATS,) = [
    case for case in CASES
    if isinstance(case.op, ops.AveragePool2D) and case.op.padding == Padding(1, 1, 1, 0)
]  # fmt: skip

_REFUSED = [
    (unary(ops.Erf()), "an operator that TensorFlow Lite has, found one"),
    (unary(ops.TopK(2, smallest=True)), "the largest values, found the smallest"),
    (Case(ops.Conv2D(), (tensor((1, 3, 3, 2)), floats(2, 1, 1, 2), None, tensor((1, 3, 3, 2)))),
     "one with a fused operator"),
    (Case(ops.MatMul(), (tensor((2, 3), DType.I32), tensor((3, 2), DType.I32))), "found s32"),
    (Case(ops.Div(), (tensor((3,), DType.I64), tensor((3,), DType.I64))), "found s64"),
]  # fmt: skip


_WHOLE = tensor((2, 3, 5), DType.I32), tensor((3, 1), DType.I32)
_MORE = [  # of one operator that ONNX lacks, or has for other types
    Case(ops.Atan2(), (tensor((3, 5)), tensor((5,)))), Case(ops.BitwiseXor(), _WHOLE),
    Case(ops.RightShift(), _WHOLE),
]  # fmt: skip


def test_every_operator_with_a_name_has_a_case():
    left = {c for c in ops.every() if c.tflite} - shown([*CASES, *_MORE])
    assert not left, "add cases of these to tests/support/export_cases.py"


@pytest.mark.parametrize(("case", "message"), _REFUSED, ids=["erf", "top_k", "fused", "s32", "s64"])
def test_what_the_format_lacks_is_refused_by_name(case, message):
    with pytest.raises(InputError, match=f"node n0 \\({case.op.kind}\\) cannot.*{message}"):
        write_tflite(graph_of([case]))


@pytest.mark.peers
@pytest.mark.parametrize("case", [*CASES, *_MORE], ids=name_of)
def test_litert_computes_the_reference(case, litert):
    graph = graph_of([case])
    inputs = inputs_of(graph, 3)
    fast = isinstance(case.op, _FAST_ONLY) or name_of(case) == "reduce_sum-s8"
    expected, found = evaluate(graph, inputs).outputs, litert(write_tflite(graph), inputs, fast)
    assert set(found) == set(graph.outputs)
    for name, value in expected.items():
        assert found[name].shape == value.shape and found[name].dtype == value.dtype
        if value.dtype == np.float32:
            limit = 1e-5 * max(np.abs(value).max(), 1)
            np.testing.assert_allclose(found[name], value, rtol=0, atol=limit)
        elif isinstance(case.op, _BY_OTHERS) or case is _POOLED_IN_FLOATS:
            np.testing.assert_allclose(found[name].astype(int), value.astype(int), rtol=0, atol=1)
        else:
            np.testing.assert_array_equal(found[name], value)
