"""The way of a bundle onto a board and back, with a real library in real processes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgekit.host.api import Device
from edgekit.host.bundle import Bundle

X = np.array([1, 2, 3, -4], np.float32)


def test_deployed_model_computes(device: Device, tiny: Callable[..., Bundle]) -> None:
    outputs, timings = device.deploy(tiny()).run({"x": X})
    np.testing.assert_array_equal(outputs["y"], 2 * X + 1)
    assert [o.name for o in timings.operators] == ["twice", "plus"]
    assert timings.latency_ms > 0
