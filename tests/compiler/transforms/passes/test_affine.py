"""Channel factors and offsets are folded into weights; all forms of hard-swish are recognized."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from tests.support.onnx_models import model, node, save, value

_RNG = np.random.default_rng(7)


def _weights(*shape):
    return _RNG.standard_normal(shape).astype(np.float32)


def _kinds(nodes, constants, folder, shape=(1, 4, 5, 6)):
    """Operator kinds after all passes, which must preserve the result."""
    graph = import_model(save(model(nodes, [value("x", shape)], ["y"], constants), folder))
    after = run_passes(graph)[0]
    x = {"x": 3 * _weights(*shape)}
    want, got = (evaluate(g, x).outputs["y"] for g in (graph, after))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    return [type(n.op) for n in after.nodes]


_NORM = {"g": _weights(8), "b": _weights(8), "m": _weights(8), "v": np.abs(_weights(8)) + 0.1}


@pytest.mark.parametrize(
    ("weights", "groups", "kind"),
    [((8, 4, 3, 3), 1, ops.Conv2D), ((8, 1, 3, 3), 4, ops.DepthwiseConv2D)],
)
def test_a_batch_normalization_disappears(weights, groups, kind, tmp_path):
    nodes = [
        node("Conv", ["x", "w"], ["c"], group=groups),
        node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"]),
        node("Relu", ["n"], ["y"]),
    ]
    kinds = _kinds(nodes, {"w": _weights(*weights), **_NORM}, tmp_path)
    assert kind in kinds and ops.Mul not in kinds and ops.Add not in kinds


def test_a_factor_of_each_pixel_stays(tmp_path):
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Mul", ["c", "p"], ["y"])]
    constants = {"w": _weights(8, 4, 1, 1), "p": _weights(1, 1, 5, 6)}
    assert ops.Mul in _kinds(nodes, constants, tmp_path)


def test_a_convolution_with_two_readers_stays(tmp_path):
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Mul", ["c", "two"], ["d"]),
        node("Mul", ["d", "c"], ["y"]),
    ]
    constants = {"w": _weights(4, 4, 1, 1), "two": np.array(2, np.float32)}
    assert _kinds(nodes, constants, tmp_path).count(ops.Mul) == 2


_NUMBERS = {
    "three": np.array(3, np.float32), "six": np.array(6, np.float32),
    "zero": np.array(0, np.float32), "sixth": np.array(1 / 6, np.float32),
}  # fmt: skip
_GATE = [node("Add", ["x", "three"], ["a"]), node("Clip", ["a", "zero", "six"], ["k"])]


@pytest.mark.parametrize(
    "nodes",
    [
        [*_GATE, node("Mul", ["x", "k"], ["m"]), node("Div", ["m", "six"], ["y"])],
        [*_GATE, node("Mul", ["k", "x"], ["m"]), node("Mul", ["m", "sixth"], ["y"])],
        [node("HardSigmoid", ["x"], ["h"], alpha=1 / 6), node("Mul", ["x", "h"], ["y"])],
        [node("HardSwish", ["x"], ["y"])],
    ],
)
def test_hard_swish_is_found(nodes, tmp_path):
    assert ops.HardSwish in _kinds(nodes, _NUMBERS, tmp_path)


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Sigmoid", ["x"], ["s"]), node("Mul", ["x", "s"], ["y"])],
        [
            node("Mul", ["three", "x"], ["t"]), node("Sigmoid", ["t"], ["s"]),
            node("Mul", ["s", "x"], ["y"]),
        ],
    ],
)  # fmt: skip
def test_silu_is_found(nodes, tmp_path):
    kinds = _kinds(nodes, _NUMBERS, tmp_path)
    assert ops.Silu in kinds and not {ops.Mul, ops.Logistic} & {*kinds}


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Sigmoid", ["three"], ["s"]), node("Mul", ["x", "s"], ["y"])],
        [
            node("Sigmoid", ["x"], ["s"]), node("Mul", ["x", "s"], ["m"]),
            node("Add", ["m", "s"], ["y"]),
        ],
        [
            node("Mul", ["x", "x"], ["t"]), node("Sigmoid", ["t"], ["s"]),
            node("Mul", ["s", "x"], ["y"]),
        ],
    ],
)  # fmt: skip
def test_other_gates_are_no_silu(nodes, tmp_path):
    assert ops.Silu not in _kinds(nodes, _NUMBERS, tmp_path)


def test_another_slope_is_no_hard_swish(tmp_path):
    nodes = [node("HardSigmoid", ["x"], ["h"], alpha=0.2), node("Mul", ["x", "h"], ["y"])]
    assert ops.HardSwish not in _kinds(nodes, {}, tmp_path)
