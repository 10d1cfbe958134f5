"""nna_pointwise and nna_depthwise3x3, the operations that model layers map to."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgekit.device import nna_conv3x3, nna_depthwise3x3, nna_pointwise
from edgekit.device.runtime.arrays.nna import emulate_depthwise3x3, emulate_pointwise
from edgekit.device.runtime.errors import InputError
from tests.support.nna_cases import CHIPS, NNA1, NNA2, depthwise_reference, operands

chips = st.sampled_from(sorted(CHIPS)).map(CHIPS.__getitem__)
inputs = st.one_of(
    st.sampled_from([1, 31, 32, 33, 64, 65, 96, 97, 256, 257, 288, 289, 320, 577, 640]),
    st.integers(1, 400),
)


def pointwise_operands(points: int, ic: int, oc: int, seed: int = 0):
    x, w = operands(points, ic, oc, seed)
    return x, np.ascontiguousarray(w.T)


def product(x, w):
    return x.astype(np.int64) @ w.astype(np.int64).T


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 20), inputs, st.integers(1, 70), chips)
def test_pointwise_layers_are_exact_by_both_emulators(points, ic, oc, chip):
    x, w = pointwise_operands(points, ic, oc, points + ic)
    by = [
        emulate_pointwise(x, w, chip=chip, emulator=name, trace=3000)
        for name in ("python", "native")
    ]
    for found in by:
        np.testing.assert_array_equal(found.sums, product(x, w))
    assert by[0].account == by[1].account and by[0].events == by[1].events
    np.testing.assert_array_equal(nna_pointwise(x, w, chip=chip), product(x, w))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(1, 7),
    st.integers(1, 20),
    st.integers(1, 100),
    st.sampled_from([1, 2]),
    st.sampled_from([0, 1]),
    chips,
)
def test_depthwise_layers_are_exact_by_both_emulators(h, w, channels, stride, padding, chip):
    h, w = max(h, 3 - 2 * padding), max(w, 3 - 2 * padding)
    x, kernel = operands(h * w, channels, 9 * channels, h + w)
    x, kernel = x.reshape(h, w, channels), kernel[0].reshape(3, 3, channels)
    by = [
        emulate_depthwise3x3(
            x, kernel, stride=stride, padding=padding, chip=chip, emulator=name, trace=3000
        )
        for name in ("python", "native")
    ]
    expected = depthwise_reference(x, kernel, stride, padding)
    for found in by:
        np.testing.assert_array_equal(found.sums, expected)
    assert by[0].account == by[1].account and by[0].events == by[1].events


@pytest.mark.parametrize("emulator", ["native", "python"])
def test_extreme_values_do_not_saturate(emulator):
    x, w = np.full((9, 640), -128, np.int8), np.full((33, 640), -128, np.int8)
    assert np.all(nna_pointwise(x, w, emulator=emulator) == 128 * 128 * 640)
    image, kernel = np.full((5, 20, 64), -128, np.int8), np.full((3, 3, 64), -128, np.int8)
    assert np.all(nna_depthwise3x3(image, kernel, emulator=emulator) == 128 * 128 * 9)


def test_nine_groups_of_inputs_are_one_weight_load_and_one_sum():
    """288 inputs fit one period: sums are stored once, without accumulation in memory."""
    x, w = pointwise_operands(64, 288, 32)
    found = emulate_pointwise(x, w).account
    assert found and found.weight_loads == 1 and found.instructions["add"] == 0
    assert found.instructions["nnmacg"] == 64 // NNA2.groups
    assert found.instructions["nndww"] == 9 * 16
    assert found.macs_done == 2 * found.macs_useful  # every other point lies between two patches
    more = emulate_pointwise(*pointwise_operands(64, 289, 32)).account
    assert more and more.weight_loads == 2 and more.instructions["add"] == 64 * 2


@pytest.mark.parametrize(("ic", "points"), [(32, 8), (64, 8), (65, 4), (96, 4), (288, 4)])
def test_points_of_a_mac(ic, points):
    found = emulate_pointwise(*pointwise_operands(64, ic, 32)).account
    assert found and found.instructions["nnmacg"] == 64 // points
    half = emulate_pointwise(*pointwise_operands(64, ic, 32), chip=NNA1).account
    assert half and half.instructions["nnmacg"] == 2 * 64 // points


def test_taps_take_less_than_a_ninth_of_the_weights_of_a_corner():
    """Compares with the same layer as a 3x3 convolution with a single nonzero tap."""
    x, w = pointwise_operands(16 * 16, 256, 64)
    corner = np.zeros((64, 3, 3, 256), np.int8)
    corner[:, 0, 0] = w
    image = np.pad(x.reshape(16, 16, 256), ((0, 2), (0, 2), (0, 0)))
    sums, wide = nna_conv3x3(image, corner, True)
    found, taps = nna_pointwise(x, w, True)
    np.testing.assert_array_equal(sums.reshape(found.shape), found)
    assert taps.wram_bytes * 9 == wide.wram_bytes and 3 * taps.cycles < wide.cycles


def test_the_diagonal_makes_one_product_in_32_useful():
    x, w = operands(10 * 18, 64, 9 * 64)
    found = emulate_depthwise3x3(x.reshape(10, 18, 64), w[0].reshape(3, 3, 64)).account
    assert found and found.macs_done == 32 * found.macs_useful
    assert found.weight_loads == 2 and found.instructions["add"] == 0


@pytest.mark.parametrize("name", ["nna1", "nna2", "slow array"])
def test_overlap_takes_no_more_than_the_longer_stream_and_fill_and_drain(name):
    chip = CHIPS[name]
    for points, ic, oc in itertools.product((1, 8, 9, 64), (1, 33, 65, 288, 320), (1, 70)):
        found = emulate_pointwise(*pointwise_operands(points, ic, oc), chip=chip).account
        assert found and found.cycles <= found.bound, (points, ic, oc)
    for height, width, c, stride in itertools.product((3, 20), (3, 8, 65), (1, 70), (1, 2)):
        x, w = operands(height * width, c, 9 * c)
        x, w = x.reshape(height, width, c), w[0].reshape(3, 3, c)
        done = emulate_depthwise3x3(x, w, stride=stride, padding=1, chip=chip).account
        assert done and done.cycles <= done.bound, (height, width, c, stride)


X, W = np.ones((5, 6, 7), np.int8), np.ones((3, 3, 7), np.int8)


@pytest.mark.parametrize(
    ("call", "x", "w", "options", "said"),
    [
        (nna_pointwise, X[0], W[0, :, :6], {}, "w [OC, 7] for x [6, 7], found [3, 6]"),
        (nna_pointwise, X, W[0], {}, "x with 2 dimensions of at least 1, found [5, 6, 7]"),
        (nna_pointwise, X[0].astype(np.int16), W[0], {}, "x as an int8 NumPy array, found int16"),
        (nna_pointwise, X[0], W[0], {"emulator": "c"}, "emulator native or python, found 'c'"),
        (nna_depthwise3x3, X, W[:2], {}, "w [3, 3, 7] for x [5, 6, 7], found [2, 3, 7]"),
        (nna_depthwise3x3, X, W[..., :6], {}, "found [3, 3, 6]"),
        (nna_depthwise3x3, X[:2], W, {}, "at least one 3 x 3 window, found [2, 6, 7]"),
        (nna_depthwise3x3, X, W, {"stride": 3}, "stride 1 or 2 and padding 0 or 1, found 3"),
    ],
)
def test_operands_that_do_not_fit_are_named(call, x, w, options, said):
    with pytest.raises(InputError) as error:
        call(x, w, **options)
    text = str(error.value)
    assert text.startswith("nna: expected ") and said in text and "\n" not in text
