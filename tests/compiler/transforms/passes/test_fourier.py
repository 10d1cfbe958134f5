"""Convolutions with windowed sines become Fourier transforms; others stay."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Padding
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of


def _basis(points, length=None, window=None):
    """Real and imaginary parts [2, frequencies, samples], as torchlibrosa and Silero store them."""
    length = length or points
    waves = np.fft.fft(np.eye(points))[: points // 2 + 1, :length]
    made = np.stack([waves.real, waves.imag])
    return made * (np.hanning(length) if window is None else window)


def _kinds(weights, vertical=False, op=None, bias=None):
    """Operators after all passes, of which results are compared with those before."""
    oc, length = weights.shape
    op = op or ops.Conv2D((1, 7))
    shape, image = (oc, 1, length, 1), (2, 1, 150, 1)
    if vertical:
        shape, image = (oc, length, 1, 1), (2, 150, 1, 1)
    ins = (tensor(image), constant(weights.reshape(shape).astype(np.float32)), bias)
    graph = graph_of([Case(op, ins)])
    made, _ = run_passes(graph)
    (name,) = graph.inputs
    x = {name: np.random.default_rng(3).standard_normal(image).astype(np.float32)}
    want, found = (evaluate(g, x).outputs[graph.outputs[0]] for g in (graph, made))
    np.testing.assert_allclose(found, want, atol=2e-5 * np.abs(want).max())
    return [node.op.kind for node in made.nodes]


@pytest.mark.parametrize("length", [64, 50])
@pytest.mark.parametrize("vertical", [False, True])
def test_real_and_imaginary_parts(length, vertical):
    op = ops.Conv2D((7, 1) if vertical else (1, 7))
    weights = _basis(64, length).reshape(-1, length)
    assert "fourier" in _kinds(weights, vertical, op)


@pytest.mark.parametrize("part", [0, 1])
def test_parts_in_convolutions_of_their_own(part):
    weights = _basis(64)[part]
    assert "fourier" in _kinds(weights) and "fourier" in _kinds(-weights)


def test_imaginary_parts_of_the_other_sign():
    weights = _basis(48) * [[[1]], [[-1]]]
    assert "mul" in _kinds(weights.reshape(-1, 48))


def test_padding_and_a_bias_of_zeros():
    op = ops.Conv2D((1, 3), padding=Padding(left=32, right=31))
    kinds = _kinds(_basis(64).reshape(-1, 64), op=op, bias=constant(np.zeros(66)))
    assert {"fourier", "pad"} <= set(kinds)


@pytest.mark.parametrize("change", ["weight", "bias", "points", "dilation"])
def test_other_convolutions_stay(change):
    weights, op, bias = _basis(64).reshape(-1, 64).copy(), None, None
    if change == "weight":
        weights[40, 3] += 1e-4
    elif change == "bias":
        bias = constant(np.eye(66)[5])
    elif change == "points":
        weights = weights[:, ::2]
    else:
        op = ops.Conv2D((1, 7), dilation=(1, 2))
    assert "fourier" not in _kinds(weights, op=op, bias=bias)
