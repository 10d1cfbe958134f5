"""Requantization by lines through the sums: equal to TFLite for every sum, or not offered."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir.quantization import Multiplier, multiplier_of
from edgekit.host.compiler.ir.types import DType
from edgekit.host.compiler.lowering.gemm.float_requant import Lines, lines_of, outputs_of
from tests.support.op_cases import quant, tensor


def _requantized_in_float(lines: Lines, sums, channel: int):
    """Like the f32 kernel. A product of 24-bit floats is exact in f64, and the longer mantissa here
    means that each step is rounded only once."""
    x = (sums + lines.start[channel]).astype(np.int32).view(np.float32)
    for slope, offset in ((lines.slope, lines.offset), *([lines.second] if lines.second else [])):
        line = x.astype(np.longdouble) * np.longdouble(slope[channel])
        x = (line + np.longdouble(offset[channel])).astype(np.float32)
    return x.view(np.int32).astype(np.int16).astype(np.int64)


def _expected(factor: Multiplier, sums, y):
    info = np.iinfo(y.dtype.numpy)
    return np.clip(factor.apply(sums) + y.quant.zero_point[0], info.min, info.max)


@pytest.mark.parametrize("dtype", [DType.I8, DType.U8])
@pytest.mark.parametrize("real", [0.3, 0.0471, 0.00631, 0.0019])
@pytest.mark.parametrize(("zero", "counts"), [(0, {1}), (117, {1, 2})])
def test_all_sums_get_tflites_quantized_values(dtype, real, zero, counts):
    info = np.iinfo(dtype.numpy)
    y = tensor((1, 1, 1, 1), dtype, quant(0.1, info.min + zero))
    found = 0
    for seed in range(5):
        factor = multiplier_of(real * np.random.default_rng(seed).uniform(0.7, 1, 1))
        ends = np.array([-int(150 / real) - seed]), np.array([int(270 / real) + seed])
        lines = lines_of(factor, *ends, y)
        if lines is None:
            continue
        found += 1
        assert (2 if lines.second else 1) in counts
        sums = np.arange(ends[0][0], ends[1][0] + 1)
        expected = _expected(factor, sums, y)
        info = np.iinfo(dtype.numpy)
        exact = outputs_of(lines, sums[:, None])
        assert exact is not None
        assert np.array_equal(np.clip(exact[:, 0], info.min, info.max), expected)
        by_floats = np.clip(_requantized_in_float(lines, sums, 0), info.min, info.max)
        assert np.array_equal(by_floats, expected)
    assert found >= 3


def test_an_equal_layer_of_another_plan_is_not_searched_again():
    y = tensor((1, 1, 1, 2), DType.I8, quant(0.1, -128))
    first, again = (
        lines_of(multiplier_of(np.array([0.4, 0.01])), np.array([-9, 0]), np.array([9, 900]), y)
        for _ in range(2)
    )
    assert first is not None and again is first


def test_each_channel_has_a_line_of_its_own():
    y = tensor((1, 1, 1, 5), DType.I8, quant(0.1, -128))
    factor = multiplier_of(np.array([0.4, 0.01, 0.002, 0.03, 0.11]))
    least, most = np.array([-900, 0, -70000, 5, -3]), np.array([900, 90000, 200000, 5, 8])
    lines = lines_of(factor, least, most, y)
    assert lines is not None
    for c in range(5):
        sums = np.arange(least[c], most[c] + 1)
        of_channel = Multiplier(factor.multiplier[c : c + 1], factor.shift[c : c + 1])
        found = np.clip(_requantized_in_float(lines, sums, c), -128, 127)
        assert np.array_equal(found, _expected(of_channel, sums, y))


def test_steps_of_both_signs_lie_on_two_lines():
    y = tensor((1, 1, 1, 1), DType.I8, quant(0.1, 4))
    factor, ends = multiplier_of(0.0007), (np.array([-(10**6)]), np.array([10**6]))
    assert lines_of(factor, *ends, y, count=1) is None
    lines = lines_of(factor, *ends, y)
    assert lines is not None and lines.second is not None


def test_a_factor_without_a_shift_needs_one_line():
    y = tensor((1, 1, 1, 1), DType.I8, quant(0.1, 4))
    factor = multiplier_of([0.0007, 0.021]).unshifted
    least, most = np.array([-(10**6), -(10**4)]), np.array([10**6, 10**4])
    lines = lines_of(factor, least, most, y, count=1)
    assert lines is not None
    for c in range(2):
        sums = np.arange(least[c], most[c] + 1)
        found = np.clip(_requantized_in_float(lines, sums, c), -128, 127)
        one = Multiplier(factor.multiplier[c : c + 1], factor.shift[c : c + 1])
        assert np.array_equal(found, _expected(one, sums, y))
        real = sums * (0.0007, 0.021)[c]
        sure = np.abs(real - np.rint(real)) < 0.499
        assert np.array_equal(found[sure], np.clip(np.rint(real) + 4, -128, 127)[sure])


def test_one_factor_serves_all_channels():
    y = tensor((1, 1, 1, 3), DType.I8, quant(0.1, -128))
    lines = lines_of(multiplier_of(0.02), np.array([-9, 0, 4]), np.array([9999, 8000, 7]), y)
    assert lines is not None
    assert lines.slope.shape == lines.offset.shape == lines.start.shape == (3,)


@pytest.mark.parametrize(
    ("real", "least", "most", "zero"),
    [
        (0.01, 0, 1 << 24, -128),  # more sums than floats in 2^23..2^24 can represent
        (0.01, -(1 << 22), 1 << 22, -128),  # results exceed 16 bits
        (1.7, -500, 500, -128),  # no shift
        (0.0, -500, 500, -128),
    ],
)
def test_none_is_offered_where_none_is_exact(real, least, most, zero):
    y = tensor((1, 1, 1, 1), DType.I8, quant(0.1, zero))
    assert lines_of(multiplier_of(real), np.array([least]), np.array([most]), y) is None


@pytest.mark.parametrize("shift", range(1, 15))
def test_halves_go_away_from_zero_on_two_lines(shift):
    """The factor is slightly below 2^-shift, so that ties are frequent."""
    y = tensor((1, 1, 1, 1), DType.I8, quant(0.1, 1))
    factor = multiplier_of(2.0**-shift * (1 - 2**-20))
    ends = np.array([-129 << shift]), np.array([129 << shift])
    lines = lines_of(factor, *ends, y)
    assert lines is not None or shift > 9
    if lines is not None:
        sums = np.arange(ends[0][0], ends[1][0] + 1)
        found = np.clip(_requantized_in_float(lines, sums, 0), -128, 127)
        assert np.array_equal(found, _expected(factor, sums, y))
