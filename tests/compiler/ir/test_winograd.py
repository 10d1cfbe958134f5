"""Winograd's transform in f16, as the reference computes it, and of bytes."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir.winograd import half_convolution, is_exact


def _direct(x, weights):
    """Exact sums of a 3x3 convolution without padding."""
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (1, 2))
    return np.einsum("nyxcij,oijc->nyxo", windows, weights.astype(np.float64))


@pytest.mark.parametrize("channels", [16, 256])
@pytest.mark.parametrize("kind", ["normal", "large", "small", "outliers"])
def test_sums_are_within_a_few_units_of_the_largest(channels, kind):
    rng = np.random.default_rng(channels)
    x = rng.standard_normal((2, 9, 7, channels))
    x *= {"large": 3000, "small": 0.01}.get(kind, 1)
    if kind == "outliers":
        x[..., ::16] *= 30
    weights = (rng.standard_normal((8, 3, 3, channels)) / (9 * channels) ** 0.5).astype(np.float16)
    x = x.astype(np.float16)
    want, made = _direct(x, weights), half_convolution(x, weights)
    assert made.shape == want.shape == (2, 7, 5, 8)
    assert np.sqrt(np.mean((made - want) ** 2)) <= 0.007 * np.sqrt(np.mean(want**2))


@pytest.mark.parametrize("channels", [1, 40])
def test_nothing_overflows_where_no_direct_sum_can(channels):
    """Random signs, with the largest products whose sum is a half."""
    rng = np.random.default_rng(0)
    for _ in range(8):
        signs = rng.choice([-1, 1], (1, 6, 6, channels))
        weights = rng.choice([-1, 1], (4, 3, 3, channels)).astype(np.float16)
        x = (signs * (65000 / (9 * channels))).astype(np.float16)
        assert np.all(np.isfinite(half_convolution(x, weights).astype(np.float16)))


@pytest.mark.parametrize(
    ("weight", "channels", "exact"),
    [(127, 229, True), (127, 230, False), (-227, 1, True), (-228, 1, False)],
)
def test_bytes_are_transformed_where_sums_and_weights_fit(weight, channels, exact):
    """Sums of less than 2^25, weights times 144 of 16 bits."""
    weights = np.full((65, 9 * channels), 1)
    weights[64] = weight
    assert is_exact(weights) is exact
