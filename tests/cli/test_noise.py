"""Noisy measurements are reported, and tuners discard them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.host.cli import tune, tune_spmv
from edgekit.host.cli.app import explain
from edgekit.host.cli.model_times import measured_document
from edgekit.host.cli.report import warn_of_noise
from edgekit.host.cli.tune_cost import CostWork, calibrate_on
from edgekit.host.deploy.api import connect
from edgekit.host.deploy.board import Board
from edgekit.host.deploy.bundle import sign_bundle
from edgekit.host.deploy.release.types import Noise
from edgekit.host.errors import IncompatibleError
from edgekit.host.lab.history.store import History
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.host.lab.tune.session import TuningJob
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import load_board
from tests.cli.conftest import Outcome
from tests.support.places import few_or_all

pytestmark = pytest.mark.slow

BUSY = Noise(2, 2.0, None, 5.0)
BUSY_TEXT = "other programs keep 2.0 of 2 cores busy (load average 5.0)"
WHY = re.compile(r"other programs keep [01]\.\d of 1 cores busy \(load average \d+\.\d\)")


@pytest.fixture
def noisy() -> Iterator[None]:
    """Leaves this machine one core, which another program keeps busy."""
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usable)})
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        yield
        other.kill()
    os.sched_setaffinity(0, usable)


def test_deploy_and_bench_warn_in_one_line(edgekit: Any, home: Path, tiny: Any) -> None:
    """Of a model whose runs differ, on a machine as busy as it may be."""
    sign_bundle(tiny("TINY_UNEVEN")).write(home / "uneven.ekb")
    start, end = _warning("\n").splitlines()
    for command in (("deploy", "uneven.ekb"), ("bench", "model")):
        (said,) = _warnings(edgekit(*command))
        assert said.startswith(start + "runs differ by ") and said.endswith(end)
    for command in (
        ("deploy", "uneven.ekb", "--json"),
        ("bench", "model", "uneven.ekb", "--json"),
    ):
        done = edgekit(*command)
        document = done.document["bench"] if command[0] == "deploy" else done.document
        assert document["noisy"].startswith("runs differ by ")
        assert _warnings(done) == [_warning(document["noisy"])]


def _warnings(done: Outcome) -> list[str]:
    assert done.code == 0, done.err
    return [line for line in done.err.splitlines() if line.startswith("warning: ")]


def test_the_warning_and_the_document_name_the_reason(
    edgekit: Any, face_model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert edgekit("deploy", face_model.with_name("okay_nabu.tflite")).code == 0
    found = connect("local").bench(count=2)
    same = dict.fromkeys(("p10_ms", "median_ms", "p90_ms"), found.median_ms)
    after = replace(found.after, governor=None)
    busy = replace(found, noise=BUSY, after=after, **same)
    capfd.readouterr()
    warn_of_noise(busy, emulated=False)
    assert capfd.readouterr().err == _warning(BUSY_TEXT) + "\n"
    assert measured_document("local", busy, emulated=False)["noisy"] == BUSY_TEXT


def _warning(why: str) -> str:
    return f"warning: noisy measurement: {why}; measure again when it is quiet"


def test_a_quiet_measurement_says_nothing(
    edgekit: Any, face_model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = edgekit("deploy", face_model.with_name("okay_nabu.tflite"), "--json")
    bench = done.document["bench"]
    assert ("warning" in done.err) == (bench["noisy"] is not None)
    assert bench["noise"]["cores"] >= 1
    found = connect("local").bench(count=2)
    same = dict.fromkeys(("p10_ms", "median_ms", "p90_ms"), found.median_ms)
    quiet = replace(found, noise=Noise(2, 0.0, False, 0.0), **same)
    warn_of_noise(quiet, emulated=False)
    assert capfd.readouterr().err == ""
    assert measured_document("local", quiet, emulated=False)["noisy"] is None


@pytest.mark.parametrize(
    "command",
    [
        ("gemm", "--shapes", "shapes.txt"),
        *(
            pytest.param(words, marks=pytest.mark.exhaustive)
            for words in (
                ("sparse",),
                ("cost", "--model", "model.tflite"),
                ("cost", "--layouts"),
                ("model", "model.tflite", "--orders", "2"),
                ("model", "model.tflite"),
            )
        ),
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
    assert WHY.search(done.complaint)
    assert "--allow-noise" in done.complaint
    kept = tmp_path / "home"
    assert not any((kept / name).exists() for name in ("history.sqlite", "cost", "layouts", "spmv"))


class Disturbed(Board):
    """This machine as a board that is quiet for some checks, and busy from then on."""

    def __init__(self, quiet_checks: int) -> None:
        here = connect("local")
        super().__init__(here.transport, profile=here.profile, own=True)
        self._left = quiet_checks

    def call(self, *arguments: str, **options: Any) -> Any:
        if arguments != ("noise",):
            return super().call(*arguments, **options)
        self._left -= 1
        busy = 0.0 if self._left >= 0 else 2.0
        return {"cores": 2, "others": busy, "throttled": None, "load": 5.0, "governor": None}


def tune_products(device: Board, model: Path, table: Path) -> None:
    products = tuple(MatrixProduct(GemmShape(n, n, n)) for n in (8, 16))
    job = TuningJob("local", load_board("local"), products, 60.0, lambda: "2026-11-25")
    tune.tune_on(device, job, threads=1, allow_noise=False)


def tune_costs(device: Board, model: Path, table: Path) -> None:
    work = CostWork((model,), rounds=1, seconds=1, allow_noise=False)
    calibrate_on(device, work, lambda *_: None, as_json=False)


def tune_matrices(device: Board, model: Path, table: Path) -> None:
    work = tune_spmv.SpmvWork(("banded:500:3",), "float32", 1, 0.1, allow_noise=False)
    tune_spmv.tune_on(device, work, table)


@pytest.mark.parametrize(
    ("tuner", "quiet_checks"),
    few_or_all(
        [(tune_products, 2), (tune_costs, 1), (tune_matrices, 1)],
        [(tune_costs, 1), (tune_matrices, 1)],
    ),
)
def test_noise_that_begins_while_measuring_is_not_kept(
    tuner: Callable[[Board, Path, Path], None],
    quiet_checks: int,
    face_model: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # The first batch of products is kept: the board was quiet while it was measured.
    kept = tmp_path / "home"
    with pytest.raises(IncompatibleError) as raised:
        tuner(
            Disturbed(quiet_checks),
            face_model.with_name("okay_nabu.tflite"),
            kept / "spmv" / "table.json",
        )
    assert "other programs keep 2.0 of 2 cores busy (load average 5.0)" in str(raised.value)
    assert (explain(raised.value)[1], capfd.readouterr().out) == (5, "")
    assert not any((kept / name).exists() for name in ("cost", "spmv"))
    if tuner is tune_products:
        with History() as history:
            assert history.read().measurements
