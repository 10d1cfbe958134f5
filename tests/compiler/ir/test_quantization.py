"""The shared integer arithmetic against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.host.compiler.ir.fixed_point import exp_negative, one_over_one_plus
from edgekit.host.compiler.ir.ops import Clamp, Logistic
from edgekit.host.compiler.ir.quantization import (
    activation_range,
    doubling_high_multiply,
    lookup_table,
    multiplier_of,
    quantize_multiplier,
    round_half_away,
    rounding_shift,
    scale_of,
)
from edgekit.host.compiler.ir.types import Activation, DType, Quant, ShapeError, Tensor

S32 = st.integers(-(2**31), 2**31 - 1)


def away(value: Fraction) -> int:
    """Nearest integer, halves away from zero."""
    return int(abs(value) + Fraction(1, 2)) * (1 if value >= 0 else -1)


def tensor(dtype, scale, zero):
    return Tensor("t", (1,), dtype, Quant(np.float32([scale]), np.array([zero], np.int64)))


@given(st.floats(1e-9, 2**30 - 1))
def test_a_multiplier_is_the_factor_to_31_bits(real):
    multiplier, shift = quantize_multiplier(real)
    assert 2**30 <= multiplier < 2**31
    assert abs(Fraction(multiplier) * Fraction(2) ** (shift - 31) / Fraction(real) - 1) <= Fraction(
        1, 2**31
    )


def test_factors_beyond_31_bits_saturate():
    assert quantize_multiplier(0.0) == (0, 0)
    assert quantize_multiplier(2.0**-40) == (0, 0)
    assert quantize_multiplier(np.inf) == quantize_multiplier(2.0**40) == (2**31 - 1, 31)
    assert quantize_multiplier(2.0**40) == (2**31 - 1, 31)
    assert quantize_multiplier(float("inf")) == quantize_multiplier(2.0**31) == (2**31 - 1, 31)
    assert quantize_multiplier(1 - 2.0**-40) == (2**30, 1)


def test_multipliers_of_a_vector_are_those_of_its_values() -> None:
    reals = np.exp2(np.random.default_rng(2).uniform(-45, 45, 500))
    made = multiplier_of(reals)
    pairs = zip(made.multiplier.tolist(), made.shift.tolist(), strict=True)
    assert list(pairs) == [quantize_multiplier(float(real)) for real in reals]


@given(S32, S32)
def test_doubling_high_multiply(a, b):
    found = int(doubling_high_multiply(np.array([a]), b)[0])
    exact = Fraction(a * b, 2**31)
    assert abs(found - exact) <= Fraction(1, 2) or (a == b == -(2**31) and found == 2**31 - 1)


@given(S32, st.integers(0, 31))
def test_rounding_shift(x, bits):
    assert int(rounding_shift(np.array([x]), bits)[0]) == away(Fraction(x, 2**bits))


@given(st.integers(-(2**24), 2**24), st.floats(1e-6, 1.0))
def test_applying_a_multiplier_is_near_the_product(x, real):
    factor, exact = multiplier_of(real), x * Fraction(real)
    assert abs(int(factor.apply(np.array([x]))[0]) - exact) <= 1
    assert abs(int(factor.apply_rounding_once(np.array([x]))[0]) - exact) <= Fraction(51, 100)


def test_round_half_away():
    x = np.float32([0.5, 1.5, -0.5, -2.5, 0.49999997, 8388609.0])
    np.testing.assert_array_equal(round_half_away(x), [1, 2, -1, -3, 0, 8388609])


@pytest.mark.parametrize(
    ("activation", "bounds"),
    [
        (Activation.NONE, (-128, 127)),
        (Activation.RELU, (-20, 127)),
        (Activation.RELU6, (-20, 100)),
        (Activation.RELU_N1_TO_1, (-40, 0)),
    ],
)
def test_activation_range(activation, bounds):
    assert activation_range(activation, tensor(DType.I8, 0.05, -20)) == bounds


def test_a_bound_beyond_all_quantized_values_is_none():
    assert activation_range(Activation.RELU6, tensor(DType.I8, 1e-40, -20)) == (-20, 127)


def test_a_lookup_table_is_indexed_by_the_stored_byte():
    x, y = tensor(DType.I8, 0.1, 0), tensor(DType.I8, 0.1, 0)
    table = lookup_table(Clamp(Activation.RELU), x, y)
    assert [table[np.uint8(v & 255)] for v in (-5, 0, 9)] == [0, 0, 9]
    unit = tensor(DType.I8, 1 / 256, -128)
    table = lookup_table(Logistic(), x, unit)
    assert (table.dtype, table.size, table[0]) == (np.int8, 256, 0)


def test_fixed_point_exponential_and_reciprocal():
    a = -np.linspace(0, 15.9, 200)
    found = exp_negative(np.round(a * 2**27).astype(np.int64), 4) / 2**31
    np.testing.assert_allclose(found, np.exp(a), atol=1e-6)
    b = np.linspace(0, 0.999, 100)
    found = one_over_one_plus(np.round(b * 2**31).astype(np.int64)) / 2**31
    np.testing.assert_allclose(found, 1 / (1 + b), atol=1e-6)


def test_plain_values_have_no_scale():
    with pytest.raises(ShapeError, match="s8 values with a scale, found plain ones"):
        scale_of(Tensor("t", (1,), DType.I8))
