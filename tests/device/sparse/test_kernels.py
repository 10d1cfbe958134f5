"""Sparse C kernels against NumPy, on every x86 instruction set of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.support.kernel_runs import x86_params
from tests.support.sparse_cases import STORED, build, check, far_case, random_case, run_here

_CASES = 150 if "EDGEKIT_TEST_ALL" in os.environ else 60


@pytest.fixture(scope="module", params=x86_params())
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(request.param, tmp_path_factory.mktemp(request.param.simd) / "products.so")


@pytest.mark.slow
@pytest.mark.parametrize("stored", STORED)
def test_products_and_rows_are_numpys(library, stored):
    rng = np.random.default_rng(len(stored))
    cases = [random_case(rng, stored) for _ in range(_CASES)]
    cases.append(far_case(rng, stored))
    check(cases, run_here(library, cases))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_each_run_gives_the_same_bits(library):
    rng = np.random.default_rng(5)
    cases = [random_case(rng, stored) for stored in STORED for _ in range(20)]
    first = run_here(library, cases)
    assert all(run_here(library, cases) == first for _ in range(3))
