"""Noisy measurements are reported, and tuners discard them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.host.deploy.release import noise
from edgekit.host.deploy.release.types import Noise

pytestmark = pytest.mark.slow

WHY = "other programs keep 2.0 of 2 cores busy (load average 5.0)"


@pytest.fixture
def noisy(monkeypatch: pytest.MonkeyPatch) -> None:
    real = noise.reason
    busy = Noise(2, 2.0, None, 5.0)
    monkeypatch.setattr(noise, "reason", lambda found, *rest: real(busy, rest[0], None))


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "reason", lambda *given: None)


def test_deploy_and_bench_name_the_reason_in_one_line(
    edgekit: Any, noisy: None, face_model: Path
) -> None:
    model = face_model.with_name("okay_nabu.tflite")
    for done in (
        edgekit("deploy", model),
        edgekit("bench", "model", "--runs", "2"),
        edgekit("bench", "model", model, "--runs", "2", "--json"),
    ):
        assert done.code == 0, done.err
        said = [line for line in done.err.splitlines() if line.startswith("warning: ")]
        assert said == [f"warning: noisy measurement: {WHY}; measure again when it is quiet"]
    assert done.document["noisy"] == WHY


def test_a_quiet_measurement_says_nothing(edgekit: Any, quiet: None, face_model: Path) -> None:
    done = edgekit("deploy", face_model.with_name("okay_nabu.tflite"), "--json")
    assert "warning" not in done.err
    assert done.document["bench"]["noisy"] is None
    assert done.document["bench"]["noise"]["cores"] >= 1


@pytest.mark.parametrize(
    "command",
    [
        ("gemm", "--shapes", "shapes.txt"),
        ("cost", "--model", "model.tflite"),
        ("layouts",),
        ("spmv",),
        ("order", "model.tflite"),
        ("model", "model.tflite"),
    ],
)
def test_tuners_refuse_a_noisy_board(
    edgekit: Any,
    noisy: None,
    home: Path,
    tmp_path: Path,
    face_model: Path,
    command: tuple[str, ...],
) -> None:
    (home / "shapes.txt").write_text("8,8,8\n")
    (home / "model.tflite").symlink_to(face_model.with_name("okay_nabu.tflite"))
    done = edgekit("lab", "tune", *command)
    assert (done.code, done.out) == (5, "")
    assert WHY in done.complaint
    assert "--allow-noise" in done.complaint
    kept = tmp_path / "home"
    assert not any((kept / name).exists() for name in ("history.sqlite", "cost", "layouts", "spmv"))


@pytest.mark.parametrize("command", ["gemm", "cost", "spmv"])
def test_noise_that_begins_while_measuring_is_not_kept(
    edgekit: Any, home: Path, face_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:  # fmt: skip
    (home / "shapes.txt").write_text("8,8,8\n16,16,16\n")
    arguments = {
        "gemm": ("--shapes", "shapes.txt", "--budget", "60s"),
        "cost": ("--model", face_model.with_name("okay_nabu.tflite"), "--rounds", "1"),
        "spmv": ("--matrix", "banded:500:3", "--seconds", "0.1"),
    }
    # The first batch of products is kept: the board was quiet while it was measured.
    answers = iter([None] * (2 if command == "gemm" else 1))
    monkeypatch.setattr(noise, "reason", lambda *given: next(answers, WHY))
    done = edgekit("lab", "tune", command, *arguments[command])
    assert (done.code, done.out) == (5, "")
    assert WHY in done.err
    kept = tmp_path / "home"
    assert not any((kept / name).exists() for name in ("cost", "spmv"))
