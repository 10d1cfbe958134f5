"""The outlier split's C kernels against NumPy, on every x86 instruction set of this machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.kernel_runs import x86_params
from tests.support.outlier_cases import build, check, random_case, run_here, without_sizes


@pytest.fixture(scope="module", params=x86_params())
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(request.param, tmp_path_factory.mktemp(request.param.simd) / "products.so")


def test_products_marks_and_rows_are_numpys(library):
    rng = np.random.default_rng(3)
    cases = [random_case(rng) for _ in range(300)]
    check(cases, run_here(library, cases))


def test_threads_change_nothing(library):
    rng = np.random.default_rng(4)
    cases = [random_case(rng) for _ in range(150)]
    one, three = (run_here(library, cases, threads) for threads in (1, 3))
    assert without_sizes(cases, one) == without_sizes(cases, three)
    check(cases, three)
