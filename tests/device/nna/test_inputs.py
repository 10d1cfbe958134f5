"""Invalid operands and chips are rejected with a one-line error."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from edgekit.device import nna_conv3x3, nna_matmul
from edgekit.device.runtime.arrays.nna_matmul import nna_matmul as nna_matmul_on_board
from edgekit.device.runtime.arrays.nna_native import NativeNna
from edgekit.device.runtime.errors import IncompatibleError, InputError
from tests.support.nna_cases import NNA1, NNA2

A, F = np.ones((3, 10), np.int8), np.ones((10, 40), np.int8)
X, W = np.ones((5, 6, 7), np.int8), np.ones((8, 3, 3, 7), np.int8)


def refused(call, *arguments, **options) -> str:
    with pytest.raises(InputError) as error:
        call(*arguments, **options)
    text = str(error.value)
    assert text.startswith("nna: expected ") and "found" in text and "\n" not in text
    return text


@pytest.mark.parametrize(
    ("a", "f", "said"),
    [
        (A.astype(np.int16), F, "a as an int8 NumPy array, found int16"),
        (A, F.astype(np.uint8), "f as an int8 NumPy array, found uint8"),
        (A.astype(np.float32), F, "found float32"),
        (A.tolist(), F, "found list"),
        (A[0], F, "a with 2 dimensions of at least 1, found [10]"),
        (A[None], F, "found [1, 3, 10]"),
        (A[:0], F, "found [0, 10]"),
        (A[:, :0], F[:0], "found [3, 0]"),
        (A, F[:, :0], "found [10, 0]"),
        (A, F[:9], "f of 10 rows for a [3, 10], found [9, 40]"),
    ],
)
def test_operands_of_a_matrix_product(a, f, said):
    assert said in refused(nna_matmul, a, f)


@pytest.mark.parametrize(
    ("x", "w", "options", "said"),
    [
        (X.astype(np.int32), W, {}, "x as an int8"),
        (X, W[..., :6], {}, "w [OC, 3, 3, 7] for x [5, 6, 7], found [8, 3, 3, 6]"),
        (X, W[:, :2], {}, "found [8, 2, 3, 7]"),
        (X, W[0], {}, "w with 4 dimensions"),
        (X[:2], W, {}, "at least one 3 x 3 window, found [2, 6, 7]"),
        (X, W, {"stride": 3}, "stride 1 or 2 and padding 0 or 1, found 3 and 0"),
        (X, W, {"padding": 2}, "found 1 and 2"),
    ],
)
def test_operands_of_a_convolution(x, w, options, said):
    assert said in refused(nna_conv3x3, x, w, **options)


def test_the_emulator_must_be_one_there_is():
    assert "native or python, found 'fast'" in refused(nna_matmul, A, F, emulator="fast")
    for product in (nna_matmul, nna_matmul_on_board):
        assert "a chip such as NNA2, found 3" in refused(product, A, F, chip=3)


@pytest.mark.parametrize(
    ("chip", "values", "said"),
    [
        (NNA2, {"fram_bytes": 1727}, "fram_bytes to hold the windows of a MAC (1728 bytes)"),
        (NNA1, {"fram_bytes": 959}, "(960 bytes), found 959"),
        (NNA2, {"wram_bytes": 9000}, "wram_bytes to hold the weights of a MAC (9216 bytes)"),
        (NNA2, {"macs_per_cycle": 5000}, "macs_per_cycle to divide the 73728"),
        (NNA2, {"output_points": 16}, "output_points 4 (NNA 1) or 8 (NNA 2), found 16"),
        (NNA2, {"load_latency": -1}, "load_latency to be a whole number from 1"),
        (NNA2, {"write_latency": 2.5}, "found 2.5"),
        (NNA2, {"mac_startup": None}, "mac_startup to be a whole number from 0"),
    ],
)
def test_a_chip_that_cannot_work(chip, values, said):
    assert said in refused(dataclasses.replace, chip, **values)


def test_the_smallest_rams_do_work():
    chip = dataclasses.replace(NNA2, fram_bytes=1728, wram_bytes=9216)
    np.testing.assert_array_equal(nna_matmul(A, F, chip=chip), np.full((3, 40), 10))


def test_a_library_without_the_nna_is_named():
    import ctypes

    with pytest.raises(IncompatibleError, match="kernels library with the NNA") as error:
        NativeNna(ctypes.CDLL(None))
    assert "\n" not in str(error.value)
