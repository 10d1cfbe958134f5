"""`edgekit lab tune cost` on this machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgekit.host.cli import estimated
from edgekit.host.deploy import api

SMALL = "okay_nabu"


@pytest.fixture(autouse=True)
def models(home: Path, face_model: Path) -> None:
    (home / "models").symlink_to(face_model.parent)


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


def test_a_virtual_board_shows_what_a_real_core_would_take(edgekit: Any, monkeypatch: Any) -> None:
    device = api.connect("local")
    device.emulated = True
    monkeypatch.setattr(api, "connect", lambda *_, **__: device)
    shown = SimpleNamespace(model=SMALL)
    monkeypatch.setattr(estimated, "estimate_of", lambda *_, **__: shown)
    monkeypatch.setattr(estimated, "sentence_of", lambda _: "estimated 10 ms ± 8 % on rpi4")
    monkeypatch.setattr(estimated, "estimated_document", lambda _: {"estimated_ms": 10.0})
    command = ("lab", "tune", "cost", "--model", f"models/{SMALL}.tflite", "--rounds", "1")
    out = edgekit(*command).out
    assert out.startswith(f"board     {SMALL}: estimated 10 ms ± 8 % on rpi4\n")
    found = edgekit(*command, "--json").document
    assert found["estimates"] == {SMALL: {"estimated_ms": 10.0}}
