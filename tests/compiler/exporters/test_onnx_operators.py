"""Operators of odd sizes, exported and run by ONNX Runtime, against their references."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from edgekit.host.compiler.exporters import write_onnx
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import DType
from edgekit.host.errors import InputError
from tests.support import onnx_models
from tests.support.export_cases import CASES, floats, name_of, shown, unary
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of, inputs_of
from tests.support.plain_graphs import functions

_REFUSED = [
    (unary(ops.FakeQuantize(), 3, 5), "an operator that ONNX has, found one"),
    (Case(ops.Conv2D(), (tensor((1, 3, 3, 2)), floats(2, 1, 1, 2), None, tensor((1, 3, 3, 2)))),
     "one with a fused operator"),
    (Case(ops.FloorDiv(), (tensor((2, 3), DType.I32), tensor((3,), DType.I32))), "found s32"),
]  # fmt: skip
_MORE = [
    unary(ops.ArgExtreme(1, last=True)),
    unary(ops.TopK(2, smallest=True, index=DType.I32)),
    Case(ops.Modulo(truncated=True), (tensor((3, 5)), floats(5))),
    Case(ops.Quantize(DType.I16), (tensor((3, 5)),), quant(0.001), Case(ops.Cast(), ())),
]  # fmt: skip


# Other functions that the format has by name, also where they give NaN.
_NAMED = [
    Case(op, (constant(np.linspace(-3, 3, 68)),)) for op in functions(DType.F32)
    if op.onnx and type(op) not in shown([*CASES, *_MORE])
]  # fmt: skip


def test_every_operator_with_a_name_has_a_case():
    named = {c for c in ops.every() if c.onnx}
    left = named - shown([*CASES, *_MORE, *_NAMED])
    assert not left, "add cases of these to tests/support/export_cases.py"


@pytest.mark.parametrize(("case", "message"), _REFUSED, ids=["none", "fused", "s32"])
def test_what_the_format_lacks_is_refused_by_name(case, message):
    with pytest.raises(InputError, match=f"node n0 \\({case.op.kind}\\) cannot.*{message}"):
        write_onnx(graph_of([case]))


def test_what_neither_format_holds_is_to_be_compiled(tmp_path):
    """A loop: the LSTM's activations are not supported by any recurrent layer of edgekit."""
    rng = np.random.default_rng(4)
    weights = {
        n: rng.standard_normal((1, 24, k)).astype(np.float32) for n, k in (("w", 3), ("r", 6))
    }
    more = {"hidden_size": 6, "activations": ["Sigmoid", "Softsign", "Tanh"]}
    nodes = [onnx_models.node("LSTM", ["x", "w", "r"], ["y"], **more)]
    inputs = [onnx_models.value("x", [20, 1, 3])]
    made = onnx_models.model(nodes, inputs, ["y"], weights)
    graph = import_model(onnx_models.save(made, tmp_path))
    with pytest.raises(
        InputError, match=r"\(loop\).*found one that it lacks; compile the model without"
    ):
        write_onnx(graph)


def _need_close(found, value):
    assert found.shape == value.shape and found.dtype == value.dtype
    if value.dtype == np.float32:
        limit = 1e-5 * max(np.nanmax(np.abs(value)), 1)
        np.testing.assert_allclose(found, value, rtol=0, atol=limit)
    elif value.dtype in (np.int8, np.uint8):  # sums are rounded in floats there
        np.testing.assert_allclose(found.astype(int), value.astype(int), rtol=0, atol=1)
    else:
        np.testing.assert_array_equal(found, value)


@pytest.mark.peers
@pytest.mark.parametrize("case", [*CASES, *_MORE, *_NAMED], ids=name_of)
def test_onnx_runtime_computes_the_reference(case, onnx_runtime):
    graph = graph_of([case])
    inputs, content = inputs_of(graph, 3), write_onnx(graph)
    onnx.checker.check_model(content, full_check=True)
    expected, found = evaluate(graph, inputs).outputs, onnx_runtime(content, inputs)
    assert tuple(found) == graph.outputs
    for name, value in expected.items():
        _need_close(found[name], value)
