"""Convolutions of rows (1-D) are followed by what can be fused, without reshapes in between."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Activation, Padding
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from tests.support.onnx_models import model, node, save, value

_RNG = np.random.default_rng(34)
_C, _T = 6, 20


def _case(steps, tmp_path, outputs=()):
    """A network of x [2, 6, 20] from (operator, more inputs, attributes) in a row, as imported and
    as the passes leave it; arrays among the inputs are constants, numbers earlier results."""
    nodes, constants, made = [], {}, ["x"]
    for op, more, attributes in steps:
        names = [made[-1]]
        for each in more:
            if isinstance(each, int):
                names.append(made[each])
            else:
                names.append(f"c{len(constants)}")
                constants[names[-1]] = each
        made.append(f"t{len(made)}")
        nodes.append(node(op, names, [made[-1]], **attributes))
    ends = [*(made[i] for i in outputs), made[-1]]
    proto = model(nodes, [value("x", (2, _C, _T))], ends, constants)
    graph = import_model(save(proto, tmp_path))
    after = run_passes(graph)[0]
    x = {"x": _RNG.standard_normal((2, _C, _T)).astype(np.float32)}
    found = evaluate(after, x).outputs
    for name, want in evaluate(graph, x).outputs.items():
        np.testing.assert_allclose(found[name], want, rtol=1e-5, atol=1e-5)
    return after


def _weights(out=_C, ins=_C, taps=3):
    return _RNG.normal(0, 0.3, (out, ins, taps)).astype(np.float32)


def _kinds(graph):
    """Operators that compute or copy."""
    return [n.op.kind for n in graph.nodes if n.op.kind not in ("reshape", "transpose")]


_CONV = ("Conv", [_weights()], {"dilations": [2], "pads": [2, 2]})
_AXIS = np.array([2])


def test_activations_and_factors_are_fused_into_convolutions(tmp_path):
    factors = [_RNG.uniform(0.5, 2, _C).astype(np.float32) for _ in range(4)]
    graph = _case([_CONV, ("BatchNormalization", factors, {}), ("Relu", [], {}), _CONV], tmp_path)
    assert _kinds(graph) == ["conv2d", "conv2d"]
    assert graph.nodes[-1].op.kind == "transpose"
    first = next(n.op for n in graph.nodes if n.op.kind == "conv2d")
    assert first.activation is Activation.RELU


@pytest.mark.parametrize(
    "form",
    [
        [("Pad", [np.array([0, 0, 4, 0, 0, 0])], {}), ("Conv", _CONV[1], {"dilations": [2]})],
        [
            ("Conv", _CONV[1], {"dilations": [2], "pads": [4, 4]}),
            ("Slice", [np.array([0]), np.array([-4]), _AXIS], {}),
        ],
    ],
    ids=["padded before", "cut afterwards"],
)
def test_causal_convolutions_only_compute_what_is_kept(form, tmp_path):
    graph = _case([_CONV, ("Relu", [], {}), *form, ("Relu", [], {}), _CONV], tmp_path)
    assert _kinds(graph) == ["conv2d"] * 3
    middle = [n.op for n in graph.nodes if n.op.kind == "conv2d"][1]
    assert (middle.padding, middle.activation) == (Padding(0, 0, 4, 0), Activation.RELU)


def test_residuals_are_fused_into_convolutions(tmp_path):
    graph = _case([_CONV, ("Relu", [], {}), _CONV, ("Add", [2], {}), _CONV], tmp_path)
    assert _kinds(graph) == ["conv2d"] * 3


@pytest.mark.parametrize(
    "steps",
    [
        [("Add", [_RNG.normal(0, 1, (_C, 1)).astype(np.float32)], {})],
        [("Mul", [_RNG.normal(0, 1, (1, 1, _T)).astype(np.float32)], {})],
        [("Concat", [1], {"axis": 2}), ("Slice", [np.array([3]), np.array([-20]), _AXIS], {})],
        [("Slice", [np.array([15]), np.array([3]), _AXIS, np.array([-2])], {})],
        [("Pad", [np.array([0, 1, 0, 0, 2, 0])], {}), ("Tanh", [], {})],
        [("GlobalAveragePool", [], {}), ("Mul", [1], {})],
        [("Sub", [0], {})],
    ],
    ids=lambda steps: steps[0][0],
)
def test_what_is_not_fused_gives_the_same(steps, tmp_path):
    _case([_CONV, *steps, ("Relu", [], {})], tmp_path, outputs=(1,))


def test_slices_that_windows_reach_beyond_stay(tmp_path):
    """The end that is kept would need less than no padding."""
    conv = ("Conv", _CONV[1], {"pads": [1, 1]})
    graph = _case([conv, ("Slice", [np.array([2]), np.array([_T]), _AXIS], {})], tmp_path)
    assert _kinds(graph) == ["conv2d", "strided_slice"]
