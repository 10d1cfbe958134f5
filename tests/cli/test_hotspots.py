"""edgekit bench model --hotspots on this machine: with all tools, without perf, and without
permission to sample; rejected input."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import forbidden
from tests.support.reports import data_of

pytestmark = pytest.mark.slow

_SAMPLERS = ("perf_event_open", "ptrace")


@pytest.fixture
def deployed_face(edgekit: Any, face_model: Path) -> None:
    assert edgekit("deploy", face_model).code == 0


@pytest.fixture
def without_perf(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A board with only the tools of a small image, without perf."""
    folder = home / "bin"
    folder.mkdir()
    for name in ("ssh-keygen", "vmstat", "top"):
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))


def _check(found: Any, threads: int) -> None:
    """Checks that hold for every result, whatever the board permits."""
    hot = found["hotspots"]
    assert hot["kind"] and hot["why"] and ("edgekit" in hot["advice"] or "stop" in hot["advice"])
    assert len(hot["threads"]) == threads == found["threads"]
    for thread in hot["threads"]:
        parts = thread["running"] + (thread["delayed"] or 0) + thread["asleep"]
        assert parts == pytest.approx(100) and 0 <= thread["waiting"] <= 100
    assert hot["threads"][0]["running"] > 0 and hot["memory_bytes_per_second"] > 1e7
    slowest = max(found["operators"], key=lambda o: o["median_us"])
    assert hot["operators"][0]["name"] == slowest["name"]
    assert all(o["bytes"] > 0 and o["why"] and o["advice"] for o in hot["operators"])
    assert any(o["multiply_adds"] for o in hot["operators"])


@pytest.mark.exhaustive
def test_all_threads_of_a_model_are_watched(edgekit: Any, face_model: Path) -> None:
    done = edgekit("bench", "model", face_model, "--threads", "2", "--hotspots", "--json")
    assert done.code == 0, done.err
    _check(done.document, 2)
    hot = done.document["hotspots"]
    assert hot["sampler"] in _SAMPLERS and sum(t["samples"] for t in hot["threads"]) > 10
    kernels = {f"model.so {o['kernel']}" for o in done.document["operators"]}
    assert hot["functions"][0]["name"] in kernels
    assert edgekit("status", "--json").document["current"] is None  # nothing was deployed


@pytest.mark.usefixtures("deployed_face")
def test_people_read_why_and_what_to_try(edgekit: Any, home: Path, without_perf: None) -> None:
    del without_perf
    done = edgekit("bench", "model", "--hotspots", "--threads", "1", "--html", "hot.html")
    assert done.code == 0, done.err
    (subject,) = data_of((home / "hot.html").read_text())["subjects"]
    shown = subject["releases"][0]["hotspots"]
    assert shown[0].startswith("hotspots ") and shown[1].startswith("try ")
    assert " ".join(shown) in " ".join(done.out.split())
    lines = done.out.splitlines()
    for start in ("hotspots ", "try      ", "thread   caller: ", "samples  "):
        assert any(line.startswith(start) for line in lines), start
    assert "missing   perf: not installed; install linux-perf" in done.out
    assert any("model.so ek_" in line for line in lines)


@pytest.mark.usefixtures("deployed_face")
@pytest.mark.parametrize(
    "calls, sampler",
    [
        pytest.param(1, "ptrace", marks=pytest.mark.exhaustive),
        pytest.param(2, "", marks=pytest.mark.exhaustive),
    ],
)
def test_what_a_board_forbids_is_done_without(home: Path, calls: int, sampler: str) -> None:
    names = ",".join(list(forbidden.NUMBERS)[:calls])
    program = "from edgekit.host.cli.main import run; run()"
    command = [sys.executable, forbidden.__file__, names, sys.executable, "-c", program]
    done = subprocess.run(
        [*command, "bench", "model", "--hotspots", "--threads", "2", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    _check(found, 2)
    hot = found["hotspots"]
    assert hot["sampler"] == sampler and bool(hot["functions"]) == bool(sampler)
    assert any(m.startswith("perf_event_open: Permission denied; it needs") for m in hot["missing"])
    assert any(m.startswith("ptrace: ") for m in hot["missing"]) == (calls == 2)


@pytest.mark.exhaustive
def test_a_product_without_perf_is_sampled_too(edgekit: Any, without_perf: None) -> None:
    del without_perf
    matrix = ("--matrix", "banded:4000:3", "--seconds", "0.1")
    done = edgekit("lab", "bench", "sparse", *matrix, "--hotspots", "--json")
    assert done.code == 0, done.err
    (hot,) = done.document["hotspots"]
    assert "spmv" in hot["functions"][0]["name"], hot["functions"]
    assert hot["missing"][0].startswith("perf: not installed")


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        ([], "expected a deployed model, found none"),
        (["{face}", "{face}"], "expected one model with --hotspots, found 2"),
        (["--all"], "expected one model with --hotspots, found --all"),
        (
            ["{face}", "--peers", "--board", "rpi4"],
            "found --peers on rpi4, where times are estimated",
        ),
        (["{face}", "--threads", "0"], "--threads"),
        (["{face}", "--board", "nowhere"], "nowhere"),
    ],
)
def test_what_is_refused(
    edgekit: Any, home: Path, face_model: Path, arguments: list[str], complaint: str
) -> None:
    (home / "models").symlink_to(face_model.parent)
    words = [word.format(face=face_model) for word in arguments]
    done = edgekit("bench", "model", "--hotspots", *words)
    assert done.code == 2 and complaint in done.complaint
