"""Programs on a board write profiles of their inferences to the spool."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime import application
from edgekit.device.runtime.agent.batch import bodies
from edgekit.device.runtime.agent.spool import Spool
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle

TinyBundle = Callable[..., Bundle]
X = np.array([1, 2, 3, -4], np.float32)


def batches(root: Path) -> list[Any]:
    """Contents of the spool after all writers have finished."""
    for thread in threading.enumerate():
        if thread.name == "edgekit-profile":
            thread.join()
    return [json.loads(body) for body in bodies(Spool(root / "spool").fetch(1 << 20).data)]


@pytest.mark.slow
def test_an_application_samples_each_release_that_it_runs(
    tiny_device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    first = tiny().manifest.id
    with application.open(root=board_root) as model:
        for _ in range(30):
            model.run({"x": X})
        second = tiny_device.deploy(tiny('TINY_NAME="other"')).release.id
        for _ in range(25):
            np.testing.assert_array_equal(model.run({"x": X})["y"], 2 * X + 1)
    found = batches(board_root)
    assert {b["subject"]["release"]: b["inferences"] for b in found} == {first: 30, second: 25}
    assert [row[:2] for row in found[0]["operators"]] == [["twice", "Mul"], ["plus", "Add"]]
    assert all(row[3] > 0 for b in found for row in b["operators"])


def test_each_of_several_threads_is_sampled(tiny_device: Device, board_root: Path) -> None:
    gate = threading.Barrier(3)
    with application.open(root=board_root, parallel=3) as model:

        def work() -> None:
            gate.wait()
            for _ in range(200):
                model.run({"x": X})

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(b["inferences"] for b in batches(board_root)) == 600


def test_a_program_that_just_ends_leaves_its_samples(tiny_device: Device, board_root: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(board_root / 'current' / 'runtime.pyz')!r})\n"
        f"import edgekit_runtime\nmodel = edgekit_runtime.open(root={str(board_root)!r})\n"
        "for i in range(30): model.run({'x': bytes(16)})\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    (batch,) = batches(board_root)
    assert batch["inferences"] == 30
