"""A virtual board brought up, deployed to, and taken down through the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.boards


BOARDS = ("a57", pytest.param("rv64v", marks=pytest.mark.exhaustive))


@pytest.fixture
def board(
    request: pytest.FixtureRequest, edgekit: Any, home: Path, face_model: Path
) -> Iterator[str]:
    """The name of a running virtual board; edgekit.toml selects the face detector."""
    (home / "models").symlink_to(face_model.parent)
    (home / "edgekit.toml").write_text('model = "models/face_detection_short_range.tflite"\n')
    done = edgekit("board", "up", request.param)
    assert done.code == 0, done.err
    yield request.param
    assert edgekit("board", "down", request.param).code == 0


@pytest.mark.parametrize("board", BOARDS, indirect=True)
def test_deploy_run_and_go_back(edgekit: Any, home: Path, board: str) -> None:
    first = edgekit("deploy", "--board", board, "--json")
    assert first.code == 0, first.err
    bench = first.document["bench"]
    assert (bench["emulated"], bench["latency_ms"]) == (True, None)
    assert bench["emulated_ms"]["median"] > 0

    again = edgekit("deploy", "--board", board)
    assert again.code == 0
    assert "already in service" in again.out
    assert "latency" not in again.out
    assert "nothing to do" in edgekit("deploy", "--board", board, "--dry-run").out

    x = np.random.default_rng(7).uniform(-1, 1, (1, 128, 128, 3)).astype(np.float32)
    np.savez(home / "x.npz", input=x)
    outputs = {}
    for where in ("local", board):
        model = ["models/face_detection_short_range.tflite"] if where == "local" else []
        files = ["--input", "x.npz", "--output", f"{where}.npz"]
        done = edgekit("run", *model, *files, "--board", where, "--json")
        assert done.code == 0, done.err
        assert done.document["emulated"] == (where == board)
        outputs[where] = dict(np.load(home / f"{where}.npz"))
    for name, expected in outputs["local"].items():
        np.testing.assert_allclose(outputs[board][name], expected, atol=1e-3, err_msg=name)

    second = edgekit(
        "deploy", "models/okay_nabu.tflite", "--board", board, "--threads", "2", "--json"
    )
    assert second.code == 0, second.err
    assert second.document["bench"]["threads"] == 2
    back = edgekit("rollback", "--board", board, "--json").document
    assert back["current"]["id"] == first.document["release"]


@pytest.mark.parametrize("board", BOARDS, indirect=True)
def test_hot_spots_of_a_model(edgekit: Any, board: str) -> None:
    """Samples come from the board, causes from the estimate: emulated times explain nothing."""
    model = "models/okay_nabu.tflite"
    done = edgekit("bench", "model", model, "--board", board, "--hotspots", "--json")
    assert done.code == 0, done.err
    hot = done.document["hotspots"]
    assert hot["sampler"] in ("perf_event_open", "ptrace"), hot["missing"]
    assert any(f["name"].startswith("model.so ek_") for f in hot["functions"])
    assert hot["threads"][0]["running"] > 50 and hot["threads"][0]["samples"] > 50
    assert hot["kind"] in ("estimated", "emulated") and "edgekit" in hot["advice"]


@pytest.mark.parametrize("board", BOARDS, indirect=True)
def test_doctor_finds_the_board_fit(edgekit: Any, board: str) -> None:
    done = edgekit("doctor", "--board", board, "--json")
    assert done.code == 0, done.out
    found = {f["check"]: f["verdict"] for f in done.document["findings"]}
    assert found[f"board {board}"] == found["machine"] == found["cpu features"] == "ok"
    assert found["signatures"] == found["board python"] == found["clock"] == "ok"


@pytest.mark.parametrize("board", BOARDS[:1], indirect=True)
def test_deploy_over_the_console(edgekit: Any, board: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = edgekit(
        "deploy", "models/okay_nabu.tflite", "--board", board, "--transport", "serial", "--json"
    )
    assert done.code == 0, done.err
    over_ssh = edgekit("status", "--board", board, "--json").document["current"]
    assert over_ssh["id"] == done.document["release"]

    found = {b["name"]: b for b in edgekit("boards", "--json").document["boards"]}
    monkeypatch.setenv("EDGEKIT_PASSWORD", "edge")
    wanted = ["--transport", "serial", "--device", found[board]["console"], "--user", "edge"]
    added = edgekit("board", "add", "wired", "--profile", board, *wanted)
    assert added.code == 0, added.err
    same = edgekit("status", "--board", "wired", "--json").document["current"]
    assert same["id"] == done.document["release"]
