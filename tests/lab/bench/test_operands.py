"""Operands of a comparison are aligned to cache lines."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.lab.bench.operands import aligned, empty


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (17, 1000)])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int8])
def test_begins_at_a_line(shape: tuple[int, int], dtype: type[np.generic]) -> None:
    held = [empty(shape, dtype) for _ in range(4)]
    assert all(array.ctypes.data % 64 == 0 for array in held)
    assert all(array.shape == shape and array.dtype == dtype for array in held)
    assert all(array.flags["C_CONTIGUOUS"] and array.flags["WRITEABLE"] for array in held)


def test_a_copy_has_the_values_in_row_major_order() -> None:
    array = np.arange(35, dtype=np.float32).reshape(5, 7)
    copy = aligned(array.T)
    assert copy.ctypes.data % 64 == 0
    assert copy.flags["C_CONTIGUOUS"]
    np.testing.assert_array_equal(copy, array.T)
