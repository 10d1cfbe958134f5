"""edgekit doctor: every finding has a verdict and, unless it is ok, a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def findings(done: Any) -> dict[str, dict[str, str]]:
    assert done.document["schema"] == "edgekit.doctor/1"
    return {f["check"]: f for f in done.document["findings"]}


def test_this_machine_is_fit(edgekit: Any) -> None:
    done = edgekit("doctor", "--json")
    assert done.code == 0, done.out
    assert done.document["ok"] is True
    found = findings(done)
    ours = {"python", "numpy", "compiler", "virtual boards", "signing", "peers"}
    assert ours | {"board local", "machine", "memory", "disk", "clock", "perf"} <= set(found)
    assert found["compiler"]["verdict"] == "ok"
    for finding in found.values():
        assert finding["found"]
        assert bool(finding["fix"]) == (finding["verdict"] != "ok")


@pytest.mark.exhaustive
@pytest.mark.slow  # builds the compiler's C library for this machine
def test_it_may_be_the_first_command_ever(
    edgekit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "new"))
    done = edgekit("doctor", "--json")
    assert done.code == 0, done.out
    assert findings(done)["compiler"]["verdict"] == "ok"


def test_text_has_a_line_per_finding(edgekit: Any) -> None:
    done = edgekit("doctor")
    verdicts = [line[:4].strip() for line in done.out.splitlines() if not line.startswith(" ")]
    assert set(verdicts) <= {"ok", "info", "warn"}
    assert len(verdicts) >= 8


def test_a_folder_that_cannot_be_written_fails(
    edgekit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    monkeypatch.setenv("EDGEKIT_HOME", str(blocker / "home"))
    done = edgekit("doctor", "--json")
    assert done.code == 5
    assert done.document["ok"] is False
    finding = findings(done)["data folder"]
    assert finding["verdict"] == "fail"
    assert "EDGEKIT_HOME" in finding["fix"]


def test_a_slowed_down_numpy_is_a_warning(edgekit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    finding = findings(edgekit("doctor", "--json"))["numpy"]
    assert finding["verdict"] == "warn"
    assert "unset OPENBLAS_CORETYPE" in finding["fix"]


def test_unknown_board(edgekit: Any) -> None:
    done = edgekit("doctor", "--board", "nosuch")
    assert done.code == 2
    assert "nosuch" in done.complaint
    assert "edgekit boards" in done.complaint
