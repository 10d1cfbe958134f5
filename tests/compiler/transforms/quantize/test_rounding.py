"""Rounding of weights that compensates errors, in blocks of inputs, once for the same scales."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.transforms.quantize.rounding import (
    MOST,
    WeightRounding,
    damping,
    rounded,
    shares,
)


def layer(inputs: int) -> tuple[Array, Array, Array]:
    """Weights [6, inputs], their scales, and the moments of correlated inputs."""
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((6, inputs))
    weights[:, ::7] = 0
    seen = rng.standard_normal((400, inputs)) + rng.standard_normal((400, 1))
    return weights, np.abs(weights).max(axis=1) / MOST, (seen.T @ seen).astype(np.float32)


def test_blocks_round_as_one_input_after_the_other() -> None:
    weights, scale, moments = layer(75)
    share = shares(moments + damping(moments))
    assert share is not None
    left, expected = weights.copy(), np.zeros(weights.shape, np.int8)
    for i in range(75):
        near = np.clip(np.rint(left[:, i] / scale), -MOST, MOST)
        expected[:, i] = np.where(weights[:, i] != 0, near, 0)
        error = (left[:, i] - expected[:, i] * scale) / share[i, i]
        left[:, i + 1 :] -= error[:, None] * share[i, i + 1 :]
    assert np.array_equal(rounded(weights, scale, moments), expected)


def test_a_layer_is_rounded_once_for_the_same_scales() -> None:
    weights, scale, moments = layer(9)
    made = WeightRounding({"dense": moments})
    assert made.scales("dense", weights) is made.scales("dense", weights)
    first = made.rounded("dense", weights, scale)
    assert made.rounded("dense", weights, scale) is first
    assert np.array_equal(first, rounded(weights, scale, moments))
    assert not np.array_equal(made.rounded("dense", weights, 2 * scale), first)
    assert not np.array_equal(made.rounded("other", weights, scale), first)
