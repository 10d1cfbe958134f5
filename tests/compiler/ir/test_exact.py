"""Which f32 sums no kernel rounds."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.exact import can_be_exact, digits, is_power_of_two, sums_are_exact
from edgekit.host.compiler.ir.types import DType, Node, Tensor


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ([0, 0], 0),
        ([1, -4], 3),
        ([127, -1], 7),
        ([0.5, 2048], 13),
        ([2.0**-24, 1], 25),
        ([0.1, 1], 28),
        ([np.inf, 1], 1024),
    ],
)
def test_digits_count_from_the_largest_to_the_lowest_bit(row, wanted):
    assert digits(np.float32([row])) == wanted


def test_the_bias_of_exact_sums_has_no_fraction_and_leaves_room():
    rows = np.float32([[3, -60], [127, 1]])
    assert can_be_exact(rows) and can_be_exact(rows / 1024)
    assert can_be_exact(rows, np.float32([5000, -1]))
    assert not can_be_exact(rows, np.float32([0.1, 0]))
    assert not can_be_exact(rows, np.float32([1 << 21, 1]))
    assert not can_be_exact(rows * np.float32(0.1))


def test_only_powers_of_two_scale_exactly():
    assert is_power_of_two(np.float32([1, -2, 0.25]))
    assert not any(is_power_of_two(np.float32([x])) for x in (3, 0, np.nan, np.inf))


@pytest.mark.parametrize(
    ("x", "weight", "exact"),
    [
        (255, 127, True),
        (255.5, 127, True),
        (0.1, 127, False),
        (255, 0.1, False),
        (65535, 127, False),
    ],
)
def test_a_product_is_exact_up_to_24_digits(x, weight, exact):
    node = Node("fc", ops.FullyConnected(), ("x", "w", None), ("y",))
    values = {"x": np.full((1, 8), x, np.float32), "w": np.full((2, 8), weight, np.float32)}
    tensors = {n: Tensor(n, v.shape, DType.F32) for n, v in values.items()}
    tensors["y"] = Tensor("y", (1, 2), DType.F32)
    assert sums_are_exact(node, tensors, values) == exact
