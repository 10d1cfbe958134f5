"""Measurement noise, read from kernel files."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.device.runtime.agent import noise
from edgekit.device.runtime.agent.noise import Sample, noise_since


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty kernel files of a board on which two of three cores are usable."""
    for name, place in (("_STAT", "stat"), ("_CPU", "cpu"), ("_THERMAL", "thermal")):
        monkeypatch.setattr(noise, name, tmp_path / place)
    monkeypatch.setattr(noise.features, "cores", lambda: [0, 2])
    monkeypatch.setattr(noise.time, "monotonic", lambda: 10.0)
    monkeypatch.setattr(noise.os, "sysconf", lambda name: 100)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_what_other_programs_take_of_the_usable_cores(kernel: Path) -> None:
    busy = "300 0 100 5000 0 0 0 0 0 0"  # 4 s busy
    write(kernel / "stat", f"cpu 9 9\ncpu0 {busy}\ncpu1 9999 0 0 0 0 0 0 0 0 0\ncpu2 {busy}\n")
    own = noise.sample().own
    found = noise_since(Sample(8.0, 5.0, own, None))
    assert found.cores == 2
    assert found.others == pytest.approx(1.5, abs=0.1)


def test_a_kernel_that_tells_nothing_is_no_error(kernel: Path) -> None:
    found = noise_since(noise.sample())
    assert (found.others, found.throttled) == (None, None)


def test_heat_is_seen_by_counters_and_by_cooling(kernel: Path) -> None:
    count = kernel / "cpu" / "cpu0" / "thermal_throttle" / "core_throttle_count"
    write(count, "7\n")
    before = noise.sample()
    assert noise_since(before).throttled is False
    write(count, "8\n")
    assert noise_since(before).throttled is True
    count.unlink()
    write(kernel / "thermal" / "cooling_device0" / "type", "thermal-cpufreq-0\n")
    write(kernel / "thermal" / "cooling_device0" / "cur_state", "0\n")
    before = noise.sample()
    assert noise_since(before).throttled is False
    write(kernel / "thermal" / "cooling_device0" / "cur_state", "2\n")
    assert noise_since(before).throttled is True
