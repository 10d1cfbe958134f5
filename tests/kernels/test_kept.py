"""What is kept of answers to questions about products: device/kernels/gemm/kept.h."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sanitized import BOUNDS, RACES, compile_with, run

_DRIVER = Path(__file__).with_name("kept_driver.c")


@pytest.mark.sanitizers
@pytest.mark.parametrize("checks", [BOUNDS, RACES], ids=["bounds", "races"])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_newest_answer_is_kept_and_none_is_torn(checks, threads, tmp_path):
    program = str(tmp_path / "driver")
    compile_with(checks, [str(_DRIVER), "-o", program, "-lpthread"])
    run(program, str(threads), "50000")
