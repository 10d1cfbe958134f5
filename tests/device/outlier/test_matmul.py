"""outlier_matmul: edge cases of the split, options, memory use, and rejected input."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgekit.device import OutlierWeights, outlier_matmul
from edgekit.device.runtime.arrays.outlier import outlier_marks
from edgekit.device.runtime.errors import InputError
from edgekit.host.compiler.ir.types import Array
from tests.support.outlier_cases import activations, marked, quantized, reference

_SIZE = st.one_of(st.integers(0, 4), st.integers(0, 80))


def weights(rng: np.random.Generator, k: int, n: int) -> tuple[Array, Array]:
    """int8 [k, n] and a scale per column."""
    values = rng.integers(-127, 128, (k, n)).astype(np.int8)
    return values, (rng.random(n) * 0.01 + 1e-3).astype(np.float32)


def agree(found: Array, wanted: Array) -> None:
    limit = 2e-6 * (np.abs(wanted).max(initial=0) + 1) * 30
    np.testing.assert_allclose(found, wanted, rtol=0, atol=limit)


def bits(marks: Array, k: int) -> Array:
    return np.unpackbits(marks, count=k, bitorder="little").astype(bool)


@given(
    _SIZE, _SIZE, _SIZE, st.integers(0, 80), st.booleans(), st.integers(1, 90), st.integers(1, 2)
)
@example(0, 7, 5, 0, False, 1, 1)  # no rows, no channels, no outputs
@example(5, 0, 7, 0, False, 1, 1)
@example(5, 7, 0, 2, False, 1, 1)
@settings(max_examples=150)
def test_products_are_numpys(m, k, n, outliers, absmax_row, rows_per_scale, threads):
    rng = np.random.default_rng(m * 7 + k * 5 + n)
    x = activations(rng, m, k, outliers)
    values, scale = weights(rng, k, n)
    w = OutlierWeights.from_int8(values, scale)
    for path in ("split", "int8", "float"):
        y = outlier_matmul(
            *(x, w),
            absmax="row" if absmax_row else "inlier",
            rows_per_scale=rows_per_scale,
            threads=threads,
            path=path,
        )
        assert (y.shape, y.dtype) == ((m, n), np.float32)
        stacked = scale[None][: 1 if k else 0]
        agree(y, reference(x, values, stacked, 6.0, path, absmax_row, rows_per_scale))


def test_a_value_on_the_threshold_is_no_outlier() -> None:
    above = np.nextafter(np.float32(6), np.float32(7))
    x = np.array([[6, -6, above, -above, 0]], np.float32)
    assert bits(outlier_marks(x, 6.0), 5).tolist() == [False, False, True, True, False]


def test_an_outlier_of_a_late_row_is_zero_in_all_rows_before() -> None:
    """Otherwise the channel's small values in earlier rows would be counted twice."""
    rng = np.random.default_rng(1)
    x = activations(rng, 8, 64, 0)
    x[7, 5] = 40
    x[:7, 5] = 0.5
    values, scale = weights(rng, 64, 48)
    w = OutlierWeights.from_int8(values, scale)
    y, about = outlier_matmul(x, w, path="split", explain=True)
    assert about.outliers == 1 and bits(about.marks, 64).nonzero()[0].tolist() == [5]
    exact = x.astype(np.float64) @ w.dequantized()
    assert np.linalg.norm(y - exact) < 0.02 * np.linalg.norm(exact)
    agree(y, reference(x, values, scale[None]))


def test_without_outliers_the_split_is_plain_int8_bit_for_bit() -> None:
    rng = np.random.default_rng(2)
    x = activations(rng, 37, 131, 0)
    w = OutlierWeights.from_float(rng.standard_normal((131, 70)))
    plain = outlier_matmul(x, w, path="int8")
    chosen, about = outlier_matmul(x, w, explain=True)
    np.testing.assert_array_equal(outlier_matmul(x, w, path="split"), plain)
    np.testing.assert_array_equal(chosen, plain)
    assert about.path == "int8" and "0 of 131 channels" in about.reason


def test_all_channels_may_be_outliers() -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(7, 20, (9, 33)).astype(np.float32)
    w = OutlierWeights.from_float(rng.standard_normal((33, 17)))
    exact = x.astype(np.float64) @ w.dequantized()
    y, about = outlier_matmul(x, w, path="split", explain=True)
    assert about.outliers == 33
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-3)


def test_marks_are_one_bit_per_channel() -> None:
    """k = 16384 takes 2048 bytes for any number of rows and outliers."""
    rng = np.random.default_rng(4)
    for m, outliers in ((1, 0), (3, 20), (200, 500)):
        x = activations(rng, m, 16384, outliers)
        marks = outlier_marks(x)
        assert marks.nbytes == 2048
        np.testing.assert_array_equal(bits(marks, 16384), marked(x, 6.0))
    assert outlier_marks(np.ones((2, 9), np.float32), 0.5).tolist() == [255, 1]


def test_the_patents_maximum_is_that_of_the_whole_row() -> None:
    rng = np.random.default_rng(5)
    x = activations(rng, 20, 90, 4)
    values, scale = weights(rng, 90, 33)
    w = OutlierWeights.from_int8(values, scale)
    row = outlier_matmul(x, w, absmax="row", path="split")
    agree(row, reference(x, values, scale[None], absmax_row=True))
    exact = x.astype(np.float64) @ w.dequantized()
    inlier = outlier_matmul(x, w, path="split")
    assert np.linalg.norm(inlier - exact) < np.linalg.norm(row - exact)
    shared = outlier_matmul(x, w, rows_per_scale=7, path="split")
    agree(shared, reference(x, values, scale[None], rows_per_scale=7))
    assert len(set(quantized(x, marked(x, 6.0), False, 7).scale)) == 3


def test_half_precision_is_taken_as_it_is() -> None:
    rng = np.random.default_rng(6)
    x = activations(rng, 13, 77, 3).astype(np.float16)
    x[0, :4] = [6e-8, -6e-8, 65504, 0]  # the smallest and largest magnitudes
    w = OutlierWeights.from_float(rng.standard_normal((77, 20)))
    for path in ("split", "int8", "float"):
        wide = outlier_matmul(x.astype(np.float32), w, path=path)
        np.testing.assert_array_equal(outlier_matmul(x, w, path=path), wide)


def test_views_with_any_strides() -> None:
    rng = np.random.default_rng(7)
    x = activations(rng, 30, 60, 2)
    w = OutlierWeights.from_float(rng.standard_normal((60, 20)))
    wanted = outlier_matmul(x, w)
    wide = np.full((30, 80), np.nan, np.float32)
    wide[:, 7:67] = x
    np.testing.assert_array_equal(outlier_matmul(wide[:, 7:67], w), wanted)
    np.testing.assert_array_equal(outlier_matmul(np.asfortranarray(x), w), wanted)
    np.testing.assert_array_equal(outlier_matmul(x[::-1], w), wanted[::-1])


@pytest.mark.parametrize("group", [2, 8, 32, 96])
def test_int4_has_a_scale_per_group(group):
    rng = np.random.default_rng(group)
    x = activations(rng, 21, 96, 3)
    values = rng.integers(-8, 8, (96, 40)).astype(np.int8)
    scale = (rng.random((96 // group, 40)) * 0.1 + 0.01).astype(np.float32)
    two = ((values[::2] & 15) | (values[1::2] << 4)).astype(np.uint8)
    w = OutlierWeights.from_int4(two, scale)
    assert (w.shape, w.group, w.bits) == ((96, 40), group, 4)
    whole = np.repeat(scale, group, axis=0) * values
    np.testing.assert_array_equal(w.dequantized(), whole)
    np.testing.assert_array_equal(w.dequantized([5, 90, 5]), whole[[5, 90, 5]])
    for path in ("split", "int8", "float"):
        agree(outlier_matmul(x, w, path=path), reference(x, values, scale, path=path))


def four_bits(rng: np.random.Generator, k: int, n: int, group: int) -> OutlierWeights:
    """Random 4-bit weights."""
    scale = (rng.random((k // group, n)) * 0.1 + 0.01).astype(np.float32)
    return OutlierWeights.from_int4(rng.integers(0, 256, (k // 2, n)).astype(np.uint8), scale)


@pytest.mark.parametrize("group", [128, 512])
def test_int4_is_kept_two_per_byte(group):
    """Plus a 4-byte scale and a 4-byte correction per group and column."""
    rng = np.random.default_rng(group)
    k, n = 1024, 768
    assert four_bits(rng, k, n, group).bytes <= 1.01 * (k * n / 2 + 8 * k // group * n)


@pytest.mark.parametrize("path", ["split", "int8", "float"])
@pytest.mark.parametrize(("m", "outliers"), [(1, 0), (130, 5), (3, 256)])
def test_int4_is_the_same_for_any_number_of_threads(m, outliers, path):
    rng = np.random.default_rng(m)
    x, w = activations(rng, m, 256, outliers), four_bits(rng, 256, 520, 64)
    one = outlier_matmul(x, w, path=path)
    np.testing.assert_array_equal(outlier_matmul(x, w, path=path, threads=3), one)
    exact = x.astype(np.float64) @ w.dequantized()
    assert np.linalg.norm(one - exact) < (0.02 if path != "int8" else 0.3) * np.linalg.norm(exact)


def test_int4_is_never_whole_in_working_memory() -> None:
    """Each thread unpacks one tile: a few panels of one group, or at most one panel's columns."""
    rng = np.random.default_rng(11)
    m, k, n = 16, 1024, 2048
    x = activations(rng, m, k, 4)
    for group, tile in ((128, 24576), (1024, 1024 * 128)):
        w = four_bits(rng, k, n, group)
        for threads in (1, 2):
            _, about = outlier_matmul(x, w, path="split", threads=threads, explain=True)
            packed_rows = m * k * 2  # if rows of X1 are packed instead of read in place
            assert about.report.tile <= threads * (tile + packed_rows) + 4 * (m + 4) + 1024


def test_from_float_keeps_a_zero_column_and_the_largest_value() -> None:
    w = np.array([[0.0, -2.54, 1e-39], [0.0, 1.27, 0.0]])
    rows = OutlierWeights.from_float(w).dequantized()
    np.testing.assert_allclose(rows[:, :2], [[0, -2.54], [0, 1.28]], rtol=1e-6)
    assert np.isfinite(rows).all()


def test_from_float_takes_buffers_of_floats() -> None:
    w = np.random.default_rng(5).standard_normal((40, 7)).astype(np.float32)
    w[:, 1], w[:, 2], w[3, 3] = 0, 1e-39, 12.7
    made = OutlierWeights.from_float(memoryview(w))
    np.testing.assert_array_equal(made.dequantized(), OutlierWeights.from_float(w).dequantized())
    columns = OutlierWeights.from_float(memoryview(w.T.copy().T))  # strides as they come
    np.testing.assert_array_equal(made.dequantized(), columns.dequantized())
    w[2, 4] = np.nan
    with pytest.raises(InputError, match="found nan at channel 2, output 4"):
        OutlierWeights.from_float(memoryview(w))
    with pytest.raises(InputError, match=r"expected w \[k, n\] of f32 .*, found f64 \[40, 7\]"):
        OutlierWeights.from_float(memoryview(w.astype(float)))


def test_the_first_value_that_is_not_finite_is_named() -> None:
    x = np.ones((5, 40), np.float32)
    w = OutlierWeights.from_float(np.ones((40, 3)))
    x[4, 2], x[3, 39], x[3, 7] = np.nan, np.inf, -np.inf
    for path in ("auto", "split", "int8", "float"):
        with pytest.raises(InputError, match="found -inf at row 3, channel 7"):
            outlier_matmul(x, w, path=path)
    with pytest.raises(InputError, match="at row 3, channel 7"):
        outlier_marks(x)
    y, about = outlier_matmul(x, w, check_finite=False, path="split", explain=True)
    assert about.outliers == 3
    np.testing.assert_allclose(y[:3], 40, rtol=1e-5)
    assert not np.isfinite(y[3:]).any()


def test_the_choice_and_its_reason() -> None:
    rng = np.random.default_rng(8)
    w = OutlierWeights.from_float(rng.standard_normal((256, 256)))
    few, about = outlier_matmul(activations(rng, 64, 256, 3), w, explain=True)
    assert few.shape == (64, 256)
    if about.report.float_cost > about.report.split_cost:
        assert about.path == "split" and "3 of 256 channels beyond 6: split" in about.reason
    x = rng.uniform(7, 9, (64, 256)).astype(np.float32)
    _, about = outlier_matmul(x, w, explain=True)
    assert about.path == "float" and "256 of 256" in about.reason
    assert about.report.float_cost < about.report.split_cost
    _, about = outlier_matmul(x, w, path="split", explain=True)
    assert (about.path, about.reason) == ("split", "split was requested")


@pytest.mark.parametrize("path", ["split", "int8"])
@pytest.mark.parametrize(("m", "k", "n", "outliers"), [(128, 1536, 384, 9), (1, 4096, 512, 20)])
def test_working_memory_is_that_of_the_parts(m, k, n, outliers, path):
    """X1, X2, W4, the marks, and one tile: here 64 packed rows, rounded up to row tiles of at
    most 16, plus scales and channel numbers."""
    rng = np.random.default_rng(9)
    w = OutlierWeights.from_float(rng.standard_normal((k, n)))
    for threads in (1, 2):
        x = activations(rng, m, k, outliers)
        _, about = outlier_matmul(x, w, path=path, threads=threads, explain=True)
        o, found = about.outliers, about.report
        tile = (64 * threads + 15) * k * 2 + 4 * (m + o) + 1024
        assert found.bytes <= m * k + 4 * o * (m + n) + k // 8 + tile
        assert found.x1 >= m * k and found.marks >= k // 8
        assert found.bytes == found.marks + found.x1 + found.x2 + found.w4 + found.tile
        if path == "int8":
            assert found.x2 == found.w4 == 0


def test_the_process_grows_by_no_more_than_that() -> None:
    """Peak resident memory during a product, as the kernel accounts it."""
    rng = np.random.default_rng(10)
    m, k, n = 1024, 4096, 1024
    x = activations(rng, m, k, 20)
    w = OutlierWeights.from_float(rng.standard_normal((k, n)))
    outlier_matmul(x[:1], w)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to current usage
    before = _status("VmRSS")
    y, about = outlier_matmul(x, w, path="split", explain=True)
    grown = _status("VmHWM") - before
    slack = 1 << 20  # page rounding and unrelated allocations
    assert grown <= about.report.bytes + y.nbytes + slack
    assert about.report.bytes <= m * k + 4 * 20 * (m + n) + 64 * k * 2 + (1 << 16)


def _status(name: str) -> int:
    """A field of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


_X = np.ones((2, 4), np.float32)
_W = np.ones((4, 3), np.int8)
_S = np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: OutlierWeights.from_int8(_W, _S * 0), "expected scales above 0, found 0.0 at [0]"),
        (lambda: OutlierWeights.from_int8(_W, -_S), "expected scales above 0, found -1.0"),
        (lambda: OutlierWeights.from_int8(_W, _S * np.nan), "expected scales above 0, found nan"),
        (lambda: OutlierWeights.from_int8(_W, _S[:2]), "expected scales [3] of floats"),
        (
            lambda: OutlierWeights.from_int8(_W, np.full(3, 1e300)),
            "expected scales above 0, found inf",
        ),
        (lambda: OutlierWeights.from_int8(_W, [1.0, [1.0], 1.0]), "found list"),
        (
            lambda: OutlierWeights.from_int4(_W[:2].view(np.uint8), [[1.0], [1.0, 2.0]]),
            "scale: expected an array of numbers",
        ),
        (lambda: OutlierWeights.from_float(np.full((4, 3), 1e300)), "found inf at channel 0"),
        (lambda: OutlierWeights.from_int8(_W.astype(np.int16), _S), "expected w [k, n] of int8"),
        (lambda: OutlierWeights.from_int8(_W[0], _S), "found int8 [3]"),
        (lambda: OutlierWeights.from_float(_W), "expected w [k, n] of float16 or float32"),
        (
            lambda: OutlierWeights.from_float(np.array([[1.0, 2.0], [3.0, np.inf]])),
            "found inf at channel 1, output 1",
        ),
        (
            lambda: OutlierWeights.from_int4(_W[:2].view(np.uint8), np.ones((3, 3))),
            "expected groups that divide k = 4, found 3 groups",
        ),
        (
            lambda: OutlierWeights.from_int4(_W[:2].view(np.uint8), _S),
            "expected scales [groups, n] for 4-bit weights, found [3]",
        ),
        (lambda: OutlierWeights.from_int4(_W, _S[None]), "expected w [k, n] of uint8, found int8"),
        (
            lambda: OutlierWeights.from_int8(np.ones(((1 << 17) + 1, 1), np.int8), _S[:1]),
            "expected at most 131072 channels, found 131073",
        ),
    ],
)
def test_bad_weights_are_refused(make, said):
    with warnings.catch_warnings(), pytest.raises(InputError) as error:
        warnings.simplefilter("error")  # a NumPy cast warning would add a second line
        make()
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("x", "options", "said"),
    [
        (_X[:, :3], {}, "expected x of 4 channels, found [2, 3]"),
        (_X[0], {}, "expected x of 2 dimensions"),
        (_X.astype(np.float64), {}, "float32 or float16, found [2, 4] float64"),
        ([[1.0]], {}, "x: expected an array, found list"),
        (_X, {"threshold": 0}, "expected a threshold above 0, found 0"),
        (_X, {"threshold": -6.0}, "expected a threshold above 0, found -6.0"),
        (_X, {"threshold": float("nan")}, "expected a threshold above 0, found nan"),
        (_X, {"threshold": "6"}, "expected a threshold above 0, found '6'"),
        (_X, {"threshold": [6]}, "expected options as numbers and strings"),
        (_X, {"absmax": "column"}, "expected absmax to be one of inlier, row, found 'column'"),
        (_X, {"path": "fast"}, "expected path to be one of auto, split, int8, float"),
        (_X, {"rows_per_scale": 0}, "expected rows_per_scale of 1 to"),
        (_X, {"threads": 0}, "expected 1 to 256 threads, found 0"),
        (_X, {"threads": True}, "expected 1 to 256 threads, found True"),
    ],
)
def test_bad_products_are_refused(x, options, said):
    with pytest.raises(InputError) as error:
        outlier_matmul(x, OutlierWeights.from_int8(_W, _S), **options)
    assert said in str(error.value)


def test_numbers_may_be_numpys() -> None:
    w = OutlierWeights.from_int8(_W, _S)
    y = outlier_matmul(
        _X, w, threshold=np.float32(6), rows_per_scale=np.int32(1), threads=np.int64(2)
    )
    np.testing.assert_array_equal(y, outlier_matmul(_X, w, threads=2))
    np.testing.assert_array_equal(y, outlier_matmul(_X, w, threshold=10**400))


def test_weights_must_be_made_first() -> None:
    with pytest.raises(InputError, match="make it by OutlierWeights"):
        outlier_matmul(_X, _W)
