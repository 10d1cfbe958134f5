"""Rates fitted to measured costs."""

from __future__ import annotations

import pytest

from edgekit.host.compiler.costs.layout_table import KernelWork, LayoutCase, LayoutTable


@pytest.mark.parametrize("scale", [0.1, 0.3, 1.7, 3.0, 11.3])
def test_of_equal_fits_the_smallest_is_kept(scale: float) -> None:
    """Products, values and pieces grow together here, and so which of them take the time is not
    known; rounding chose, which differs between versions of NumPy."""
    works = [KernelWork(1 << n, 1 << n + 1, 1 << n - 8) for n in (10, 14, 18)]
    cases = tuple(LayoutCase("dense", work, scale * work.products) for work in works)
    table = LayoutTable("test", "nanoseconds", cases)
    other = KernelWork(5000, 3, 0)
    assert table.cost("dense", other) == pytest.approx(scale * 5000)
