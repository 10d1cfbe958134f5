"""A board without a clock battery: with its clock in 1970, everything still works.

`test_clock_in_1970` in tests/deploy/release covers the same on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.deploy.api import Device, connect
from edgekit.host.deploy.bundle import host_key, signing_key
from edgekit.host.deploy.release import probe
from edgekit.host.errors import TransferError
from edgekit.host.virtual import RunningBoard, down, up
from tests.support.tiny_bundles import tiny_bundle

pytestmark = [pytest.mark.boards, pytest.mark.exhaustive]

_DAY = 86_400
_X = np.array([1, 2, 3, -4], np.float32)


@pytest.fixture
def board(own_home: Path) -> Iterator[RunningBoard]:
    yield up("a57")
    down("a57")


def _days_since_1970(device: Device) -> float:
    return probe(device).clock / _DAY


def test_all_goes_well_in_1970(board, tmp_path):
    board.run_as_root(f"date -s @{_DAY}")
    device = connect(board.name)
    bundles = [
        tiny_bundle(tmp_path, host_key(), f'TINY_NAME="{name}"', board=board.profile)
        for name in ("one", "two")
    ]
    first = device.deploy(bundles[0]).release
    assert 1 <= _days_since_1970(device) < 1.1
    assert device.deploy(bundles[1]).release.changed
    assert not device.deploy(bundles[1]).release.changed
    np.testing.assert_array_equal(device.run({"x": _X})[0]["y"], 2 * _X + 1)
    assert device.bench(count=12).runs == 12

    stranger = signing_key(tmp_path / "stranger")
    with pytest.raises(TransferError, match="found one by"):
        device.deploy(tiny_bundle(tmp_path, stranger, 'TINY_NAME="3"', board=board.profile))
    back = device.rollback()
    assert back.current is not None and back.current.id == first.id
    assert _days_since_1970(device) < 1.1

    board.run_as_root(f"date -s @{20_000 * _DAY}")  # as if NTP had set the clock
    assert device.deploy(bundles[1]).release.changed
    assert _days_since_1970(device) > 19_999
    device.transport.close()
