"""Sparse matrices under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.sanitized import BOARDS, build_driver, build_library, run_cases, usable
from tests.support.sparse_cases import STORED, check, encoded, output_bytes, random_case, units

pytestmark = pytest.mark.sanitizers


@pytest.mark.parametrize("simd", ["scalar", pytest.param("avx512vnni", marks=pytest.mark.long)])
def test_products_stay_in_bounds(simd, tmp_path):
    simd = usable(simd)
    rng = np.random.default_rng(len(simd))
    cases = [random_case(rng, stored) for stored in STORED for _ in range(60)]
    driver = build_driver(tmp_path / "driver")
    library = build_library(units(BOARDS[simd]), simd, tmp_path)
    check(cases, run_cases(driver, library, encoded(cases), output_bytes(cases), threads=3))
