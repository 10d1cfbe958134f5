"""Several compute units at once: the queues of device/kernels/runtime/units.c, with no model."""

from __future__ import annotations

from pathlib import Path

import pytest
from sanitized import compile_with, run

from edgekit.host.build.toolchain import kernels_folder

pytestmark = pytest.mark.sanitizers

_DRIVER = Path(__file__).with_name("units_driver.c")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    program = str(tmp_path_factory.mktemp("units") / "driver")
    runtime = kernels_folder() / "runtime"
    sources = [str(path) for path in (_DRIVER, runtime / "units.c", runtime / "pool.c")]
    compile_with(["-fsanitize=thread"], [*sources, "-o", program, "-lpthread"])
    return program


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_no_step_starts_before_what_it_waits_for(driver, threads):
    run(driver, "0", "1000", str(threads))


@pytest.mark.long
@pytest.mark.parametrize("threads", [2, 4])
def test_many_timelines(driver, threads):
    run(driver, "1000", "100000", str(threads))
