"""edgekit lab tune gemm on this machine: results kept, resumption, locking, kills at any moment."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.features import cpu_model
from edgekit.device.version import VERSION
from edgekit.host.common.paths import data_folder
from edgekit.host.compiler.costs.methods.gemm import Method, analytic_method
from edgekit.host.compiler.tables.gemm import kit_table, user_table
from edgekit.host.compiler.tables.gemm_file import load_table, table_text
from edgekit.host.compiler.tables.gemm_table import GemmRow, KnowledgeBase
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.transport import Completed, LocalTransport, OnLine
from edgekit.host.errors import UnreachableError
from edgekit.host.lab.history.store import History
from edgekit.host.lab.tune.lock import tuning_alone
from edgekit.host.lab.tune.measure import BoardMeasurer
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.host.lab.tune.session import TuningJob, tune
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import load_board

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
_SHAPES = [(m, 32, 16) for m in range(8, 16)]

_TUNE = ("lab", "tune", "gemm", "--allow-noise")  # other tests run in parallel


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.txt"
    path.write_text("".join(f"{m},{k},{n}\n" for m, k, n in _SHAPES))
    return path


def test_what_was_measured_is_kept_and_built(edgekit: Any, tmp_path: Path) -> None:
    shapes = tmp_path / "one.txt"
    shapes.write_text("17,65,33\n")
    done = edgekit(*_TUNE, "--shapes", shapes, "--budget", "60s", "--json")
    assert done.code == 0, done.err
    found = done.document
    assert found["schema"] == "edgekit.tune.gemm/1" and found["unit"] == "seconds"
    assert found["finished"] and found["measured"] > 0 and found["known"] == 0
    assert found["worth_rows"] == sum(best["ratio"] < 0.98 for best in found["best"])
    with History() as history:
        rows = history.read().measurements
    assert len(rows) == found["measured"]
    assert {(r.board, r.kit_version, r.source) for r in rows} == {("local", VERSION, "tuner")}
    again = edgekit(
        "lab", "tune", "gemm", "--allow-noise", "--shapes", shapes, "--budget", "60s", "--json"
    ).document
    assert again["known"] == found["measured"]
    with History() as history:
        assert len(history.read().measurements) == found["measured"] + again["measured"]
    assert edgekit("lab", "kb", "build").code == 0
    answer = edgekit("lab", "kb", "lookup", "--gemm", "17,65,33", "--json").document
    if answer["rule"] == "exact":
        assert answer["history_rows"] >= found["measured"]
    else:  # no method beat the default
        default = analytic_method(load_board("local"), GemmShape(17, 65, 33))
        assert answer["method"] == dataclasses.asdict(default)


def test_rows_are_measured_again_and_lose_their_method(edgekit: Any) -> None:
    """A tile of one row is slow for a square product; a row that claims otherwise is dropped."""
    board = load_board("local")
    shape, bad = GemmShape(48, 48, 48), Method(48, 16, 48, True, True, 1, 16)
    key = KnowledgeBase((board.platform,)).key(board.platform, shape)
    table = KnowledgeBase((board.platform,), rows=(GemmRow(key, bad, shape, "tuner", ratio=0.5),))
    user_table(board).parent.mkdir(parents=True)
    user_table(board).write_text(table_text(table))
    done = edgekit(*_TUNE, "--remeasure", "--json")
    assert done.code == 0 and done.document["finished"], done.err
    with History() as history:
        measured = history.read().measurements
    assert {m.shape for m in measured} == {shape} and bad in {m.method for m in measured}
    assert {m.cpu for m in measured} == {cpu_model()}
    assert edgekit("lab", "kb", "build", "--no-base").code == 0
    assert load_table(user_table(board)).rows == ()
    none = edgekit(*_TUNE, "--remeasure", "--dtype", "u8")
    assert none.code == 2 and "expected rows of" in none.complaint


@pytest.mark.exhaustive
def test_a_table_over_the_kits_keeps_its_sequences(edgekit: Any, shapes: Path) -> None:
    board = load_board("local")
    shipped = kit_table(board)
    assert shipped is not None
    done = edgekit(
        "lab",
        "tune",
        "gemm",
        "--allow-noise",
        "--shapes",
        shapes,
        "--packed",
        "b",
        "--budget",
        "20s",
    )
    assert done.code == 0, done.err
    assert edgekit("lab", "kb", "build").code == 0
    built = load_table(user_table(board))
    assert built.sequences == shipped.sequences
    assert {row.key for row in shipped.rows} <= {row.key for row in built.rows}


def test_a_damaged_table_is_tuned_and_built_anew(edgekit: Any, tmp_path: Path) -> None:
    """The error message says to rebuild the table, so tuning must work without reading it."""
    damaged, shapes = user_table(load_board("local")), tmp_path / "one.txt"
    damaged.parent.mkdir(parents=True)
    damaged.write_text('{"schema": ')
    shapes.write_text("9,32,16\n")
    lookup = edgekit("lab", "kb", "lookup", "--gemm", "9,32,16")
    assert lookup.code == 2 and "edgekit lab kb build" in lookup.complaint
    assert edgekit(*_TUNE, "--shapes", shapes, "--budget", "20s").code == 0
    assert edgekit("lab", "kb", "build").code == 0
    assert edgekit("lab", "kb", "lookup", "--gemm", "9,32,16").code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--remeasure", "--shapes", "a.txt"), "found both"),
        (("--budget", "ten minutes"), "--budget: expected a time above 0"),
        (("--budget", "0m"), "--budget: expected a time above 0"),
        (("--shapes", "nowhere.txt"), "nowhere.txt"),
        (("--shapes", "a.txt", "--model", "b.tflite"), "found both"),
        (("--board", "nosuch"), "nosuch"),
    ],
)
def test_bad_options_are_one_line(options: tuple[str, ...], words: str, edgekit: Any) -> None:
    done = edgekit(*_TUNE, *options)
    assert done.code == 2 and words in done.complaint and done.out == ""


def test_a_second_tuner_learns_who_tunes(edgekit: Any, shapes: Path) -> None:
    with tuning_alone("local", "ann@desk, process 7"):
        done = edgekit(*_TUNE, "--shapes", shapes)
    assert done.code == 6 and "ann@desk, process 7" in done.complaint


class CutOff(LocalTransport):
    """A board whose link is cut after a given number of answers."""

    left = 3

    def run(self, command: Any, *, deadline: float, on_line: OnLine | None = None) -> Completed:
        def heard(line: str) -> None:
            if on_line and self.left > 0:
                on_line(line)
            self.left -= line.startswith("gemm ")

        done = super().run(command, deadline=deadline, on_line=heard if on_line else None)
        if on_line and self.left <= 0:
            raise UnreachableError("board 'local': expected an answer, found the link cut")
        return done


def _measurer(transport: LocalTransport) -> BoardMeasurer:
    return BoardMeasurer(Device(transport), load_board("local"), emulated=False)


def test_a_lost_board_loses_nothing_and_the_same_job_goes_on() -> None:
    products = tuple(MatrixProduct(GemmShape(*s)) for s in _SHAPES)
    job = TuningJob("local", load_board("local"), products, 60.0, lambda: "now")
    place = data_folder() / "boards" / "local"
    with pytest.raises(UnreachableError) as error:
        tune(job, lambda: _measurer(CutOff(place)), lambda _: None)
    assert error.value.exit_code == 3 and "the same command resumes" in str(error.value)
    with History() as history:
        assert len({m.shape for m in history.read().measurements}) == CutOff.left
    outcome = tune(job, lambda: _measurer(LocalTransport(place)), lambda _: None)
    assert outcome.finished and outcome.known > 0 and len(outcome.best) == len(_SHAPES)


@pytest.mark.exhaustive
def test_killed_at_any_moment_it_goes_on(shapes: Path, edgekit: Any) -> None:
    program = "from edgekit.host.cli.main import run; run()"
    command = [
        sys.executable,
        "-c",
        program,
        "lab",
        "tune",
        "gemm",
        "--allow-noise",
        "--shapes",
        str(shapes),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    kept = 0
    for answers in (1, 3, 6):
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        while process.poll() is None and _products() < answers:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with History() as history:
            found = history.read()
        assert found.skipped == 0 and len(found.measurements) >= kept
        kept = len(found.measurements)
    done = edgekit(*_TUNE, "--shapes", shapes, "--json")
    assert done.code == 0 and done.document["finished"]
    assert done.document["known"] >= kept and len(done.document["best"]) == len(_SHAPES)


def _products() -> int:
    with History() as history:
        return len({m.shape for m in history.read().measurements})
