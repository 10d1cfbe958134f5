"""nna_matmul and nna_conv3x3: exact for every shape and equal in both emulators."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgekit.device import nna_conv3x3, nna_matmul
from edgekit.device.runtime.arrays.nna import (
    conv_weights,
    emulate_conv3x3,
    emulate_matmul,
    to_ndhwc32,
)
from edgekit.device.runtime.arrays.nna_program import diagonal
from tests.support.nna_cases import CHIPS, NNA1, NNA2, conv_reference, matmul_reference, operands

chips = st.sampled_from(sorted(CHIPS)).map(CHIPS.__getitem__)
edges = st.sampled_from([1, 2, 8, 9, 10, 17, 18, 19, 27, 28])
lanes = st.one_of(
    st.sampled_from([1, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 160, 255, 256, 257]),
    st.integers(1, 700),
)


def check(m: int, k: int, n: int, chip, seed: int = 0) -> None:
    a, f = operands(m, k, n, seed)
    np.testing.assert_array_equal(nna_matmul(a, f, chip=chip), matmul_reference(a, f))


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 20), st.one_of(edges, st.integers(1, 120)), lanes, chips, st.integers(0, 99))
def test_random_products_are_exact(m, k, n, chip, seed):
    check(m, k, n, chip, seed)


@pytest.mark.long
def test_products_of_ten_thousand_random_shapes_are_exact(record_property):
    random, shapes = np.random.default_rng(2026), set()
    while len(shapes) < 10_000:
        m, k, n = (int(np.exp(random.uniform(0, np.log(top)))) for top in (40, 300, 900))
        chip = (NNA1, NNA2)[len(shapes) % 2]
        if (m, k, n) not in shapes:
            check(m, k, n, chip, len(shapes))
            shapes.add((m, k, n))
    record_property("count", f"NNA: exact products of {len(shapes)} random shapes")


@pytest.mark.long
@pytest.mark.parametrize("name", ["nna1", "nna2"])
def test_all_small_shapes_around_the_edges_are_exact(name):
    for k in range(1, 29):
        for n in (1, 31, 32, 33, 64, 65, 127, 128, 129, 160, 256, 257, 300):
            check(2, k, n, CHIPS[name], k)


@pytest.mark.parametrize("emulator", ["native", "python"])
@pytest.mark.parametrize("low, high", [(-128, -128), (-128, 127), (127, 127)])
def test_extreme_values_do_not_saturate(emulator, low, high):
    for k in (9, 10, 100):
        a, f = np.full((2, k), low, np.int8), np.full((k, 70), high, np.int8)
        found = nna_matmul(a, f, emulator=emulator)
        assert found.dtype == np.int32 and np.all(found == low * high * k)


def test_sums_wrap_around_as_int32_does():
    a, f = np.full((1, 140_000), -128, np.int8), np.full((140_000, 33), -128, np.int8)
    assert np.all(nna_matmul(a, f) == np.int64(128 * 128 * 140_000 - (1 << 32)))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 3), st.integers(1, 30), st.integers(1, 300), chips)
def test_both_emulators_give_the_same_sums_account_and_trace(m, k, n, chip):
    a, f = operands(m, k, n, m + k + n)
    by = [
        emulate_matmul(a, f, chip=chip, emulator=name, trace=10_000)
        for name in ("python", "native")
    ]
    np.testing.assert_array_equal(by[0].sums, matmul_reference(a, f))
    np.testing.assert_array_equal(by[0].sums, by[1].sums)
    assert by[0].account == by[1].account
    assert by[0].events == by[1].events


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(1, 7),
    st.integers(1, 20),
    st.integers(1, 70),
    st.integers(1, 70),
    st.sampled_from([1, 2]),
    st.sampled_from([0, 1]),
    chips,
)
def test_convolutions_are_exact_by_both_emulators(h, w, inputs, outputs, stride, padding, chip):
    h, w = max(h, 3 - 2 * padding), max(w, 3 - 2 * padding)
    x, kernel = operands(h * w, inputs, 9 * outputs, h + w)
    x, kernel = x.reshape(h, w, inputs), kernel.reshape(outputs, 3, 3, inputs)
    by = [
        emulate_conv3x3(
            x, kernel, stride=stride, padding=padding, chip=chip, emulator=name, trace=5000
        )
        for name in ("python", "native")
    ]
    expected = conv_reference(x, kernel, stride, padding)
    for found in by:
        np.testing.assert_array_equal(found.sums, expected)
    assert by[0].account == by[1].account and by[0].events == by[1].events
    np.testing.assert_array_equal(
        nna_conv3x3(x, kernel, stride=stride, padding=padding, chip=chip), expected
    )


def test_extreme_convolutions_are_exact():
    x, w = np.full((5, 20, 64), -128, np.int8), np.full((33, 3, 3, 64), -128, np.int8)
    assert np.all(nna_conv3x3(x, w) == 128 * 128 * 9 * 64)


def test_views_with_any_strides_are_taken():
    a, f = operands(12, 40, 150)
    transposed = np.ascontiguousarray(f.T).T
    for left, right in ((a[::2], f), (a[:, ::-1], transposed), (a, transposed[:, 3:90:2])):
        np.testing.assert_array_equal(nna_matmul(left, right), matmul_reference(left, right))


def test_the_account_comes_only_when_asked_for():
    a, f = operands(2, 9, 64)
    sums, account = nna_matmul(a, f, account=True)
    np.testing.assert_array_equal(sums, nna_matmul(a, f))
    assert account.cycles > 0
    assert emulate_matmul(a, f, account=False).account is None


def test_weights_of_a_matrix_product_are_diagonal():
    values = np.arange(-4, 5, dtype=np.int8)
    weights = diagonal(values)
    assert weights.shape == (9, 32, 32)
    for tap, value in enumerate(values):
        np.testing.assert_array_equal(weights[tap], value * np.eye(32, dtype=np.int8))


def test_layouts_put_groups_of_channels_outermost():
    x = np.arange(2 * 3 * 40, dtype=np.int32).reshape(2, 3, 40)
    split = to_ndhwc32(x)
    assert split.shape == (2, 2, 3, 32) and not split[1, ..., 8:].any()
    np.testing.assert_array_equal(split[1, 1, 2, :8], x[1, 2, 32:])
    w = np.arange(33 * 9 * 34, dtype=np.int32).reshape(33, 3, 3, 34)
    kernel = conv_weights(w)
    assert kernel.shape == (2, 2, 9, 32, 32)
    assert kernel[1, 1, 5, 0, 1] == w[32, 1, 2, 33] and not kernel[1, :, :, 1:].any()
