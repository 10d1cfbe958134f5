"""The cache of looked-up GEMM methods: device/kernels/gemm/lookup_cache.h."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sanitized import BOUNDS, RACES, compile_with, run

_DRIVER = Path(__file__).with_name("lookup_cache_driver.c")


@pytest.mark.sanitizers
@pytest.mark.parametrize("checks", [BOUNDS, RACES], ids=["bounds", "races"])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_newest_entry_is_found_and_none_is_torn(checks, threads, tmp_path):
    program = str(tmp_path / "driver")
    compile_with(checks, [str(_DRIVER), "-o", program, "-lpthread"])
    run(program, str(threads), "50000")
