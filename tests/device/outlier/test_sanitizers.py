"""The outlier split under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.kb.targets.isa import Columns
from tests.support.outlier_cases import check, encoded, output_bytes, random_case, units
from tests.support.sanitized import (
    BOARDS,
    build_driver,
    build_library,
    run_cases,
    usable,
    with_isa,
)

pytestmark = pytest.mark.sanitizers

_OTHERS = ("nna", "sparse_", "ek_spm")  # unrelated parts of the library


@pytest.mark.parametrize(
    "simd", ["scalar", *(pytest.param(s, marks=pytest.mark.long) for s in ("avx512vnni", "avx2"))]
)
def test_products_stay_in_bounds(simd, tmp_path):
    simd = usable(simd)
    # Few rows per tile: tall AMX tiles take minutes to compile with sanitizers and test no more.
    board = with_isa(BOARDS[simd], columns=Columns(f32=(3, 2), i8=(3, 2)))
    rng = np.random.default_rng(len(simd))
    cases = [random_case(rng) for _ in range(250)]
    needed = [unit for unit in units(board) if not unit.name.startswith(_OTHERS)]
    driver = build_driver(tmp_path / "driver")
    library = build_library(needed, simd, tmp_path)
    check(cases, run_cases(driver, library, encoded(cases), output_bytes(cases), threads=3))
