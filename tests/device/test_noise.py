"""Measurement noise, read from kernel files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.noise import LoadSnapshot, Sources, noise_since, sample

TICKS = os.sysconf("SC_CLK_TCK")  # of the kernel's CPU times, per second


@pytest.fixture
def kernel(tmp_path: Path) -> Sources:
    """Empty kernel files of a board on which two of three cores are usable."""
    return Sources(
        stat=tmp_path / "stat",
        cpu=tmp_path / "cpu",
        thermal=tmp_path / "thermal",
        cores=lambda: [0, 2],
        clock=lambda: 10.0,
    )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_what_other_programs_take_of_the_usable_cores(kernel: Sources) -> None:
    busy = f"{3 * TICKS} 0 {TICKS} {50 * TICKS} 0 0 0 0 0 0"  # 4 s busy
    write(kernel.stat, f"cpu 9 9\ncpu0 {busy}\ncpu1 9999 0 0 0 0 0 0 0 0 0\ncpu2 {busy}\n")
    own = sample(kernel).own
    found = noise_since(LoadSnapshot(8.0, 5.0, own, None), kernel)
    assert found.cores == 2
    assert found.others == pytest.approx(1.5, abs=0.1)


def test_a_kernel_that_tells_nothing_is_no_error(kernel: Sources) -> None:
    found = noise_since(sample(kernel), kernel)
    assert (found.others, found.throttled) == (None, None)


def test_heat_is_seen_by_counters_and_by_cooling(kernel: Sources) -> None:
    count = kernel.cpu / "cpu0" / "thermal_throttle" / "core_throttle_count"
    write(count, "7\n")
    before = sample(kernel)
    assert noise_since(before, kernel).throttled is False
    write(count, "8\n")
    assert noise_since(before, kernel).throttled is True
    count.unlink()
    write(kernel.thermal / "cooling_device0" / "type", "thermal-cpufreq-0\n")
    write(kernel.thermal / "cooling_device0" / "cur_state", "0\n")
    before = sample(kernel)
    assert noise_since(before, kernel).throttled is False
    write(kernel.thermal / "cooling_device0" / "cur_state", "2\n")
    assert noise_since(before, kernel).throttled is True
