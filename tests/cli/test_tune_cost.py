"""`edgekit lab tune cost` on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.host.cli.tune_cost import CostWork, calibrate_on
from edgekit.host.deploy import api
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.simulator.model import ModelEstimate
from edgekit.host.simulator.run import SimulatedCost
from edgekit.kb.targets.core_parts import Validation

SMALL = "okay_nabu"


@pytest.fixture(autouse=True)
def models(home: Path, face_model: Path) -> None:
    (home / "models").symlink_to(face_model.parent)


@pytest.mark.slow
def test_measured_costs_are_used_by_the_next_compile(edgekit: Any, home: Path) -> None:
    model = f"models/{SMALL}.tflite"
    done = edgekit(
        "lab", "tune", "cost", "--allow-noise", "--model", model, "--rounds", "1", "--json"
    )
    assert done.code == 0
    found = done.document
    assert found["schema"] == "edgekit.tune.cost/1" and found["models"] == 1
    assert found["after"]["median_error"] < found["before"]["median_error"]
    assert found["left_out"] is None and Path(found["file"]).is_file()
    Path(found["file"]).write_text("{}")
    done = edgekit("compile", model)
    assert done.code == 2 and "edgekit lab tune cost" in done.complaint


@pytest.mark.slow
def test_a_virtual_board_shows_what_a_real_core_would_take(home: Path, capfd: Any) -> None:
    device = api.connect("local")
    device.emulated = True
    proof = Validation("int8", 1, 5, 8.0, 20.0, "a Raspberry Pi 4B", "2026-11-22")

    def estimate(_: api.Device, bundle: Bundle, threads: int) -> ModelEstimate:
        name, release = bundle.manifest.model.name, bundle.manifest.id
        cost = SimulatedCost(18_000_000, 1, {"issue": 18_000_000})
        core = ("rpi4", "a72", 1800.0, threads, "int8")
        return ModelEstimate(name, release, *core, cost, (), 0, 1, 1, {}, 1, proof)

    work = CostWork((home / "models" / f"{SMALL}.tflite",), 1, 1, allow_noise=False)
    calibrate_on(device, work, estimate, as_json=False)
    out = capfd.readouterr().out
    assert out.startswith(f"board     {SMALL}: estimated 10 ms ± 8% on rpi4\n")
    calibrate_on(device, work, estimate, as_json=True)
    (found,) = json.loads(capfd.readouterr().out)["estimates"].items()
    assert found[0] == SMALL and found[1]["estimated_ms"] == 10.0
