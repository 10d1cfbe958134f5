"""edgekit lab kb build drops table rows that field profiles contradict."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime.agent.batch import (
    Batch,
    Environment,
    MeasuredRelease,
    OperatorSpread,
    Spread,
    batch_bytes,
)
from edgekit.device.version import VERSION
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.host.compiler.tables.gemm import user_table
from edgekit.host.compiler.tables.gemm_file import table_text
from edgekit.host.deploy.api import connect
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.deploy.explanations import recall
from edgekit.host.fleet.profiles import ProfileStore
from edgekit.host.lab.history.tunable_ops import tuning_task_of
from edgekit.kb.targets.board import load_board
from tests.support.places import few_or_all

pytestmark = pytest.mark.slow

pytest.importorskip("duckdb", reason="no duckdb: pip install -e '.[profiles]'")

_BOARD = "rpi4"  # whose code of this model other tests use as well
_TURNS = 5
_CALM = Environment("", "performance", 1400.0, 50.0, False, 0.1, 0.2, 1 << 28, 1 << 22)


@dataclass
class Field:
    """Simulated boards whose operators take one nanosecond per unit of cost.

    Operators whose method came from a spoiled row take `slow` times the default's time.
    `times`, in nanoseconds by operator name, overrides both.
    """

    slow: float = 2.0
    batches: int = 0
    times: dict[str, int] = dataclasses.field(default_factory=dict)

    def run(self, release: str, board: str = "one", at: Environment = _CALM) -> None:
        document = recall(release)
        assert document is not None
        spreads = [
            OperatorSpread(each["name"], each["op"], each["kernel"] or "", 32, ns, ns, ns)
            for each in document["operators"]
            if (ns := self._ns(each))
        ]
        total = sum(each.median_ns for each in spreads)
        self.batches += 1
        batch = Batch(
            uuid=hashlib.md5(str(self.batches).encode()).hexdigest(),
            boot="b" * 32, began_ns=1, ended_ns=2, clock=0.0, lost=0,
            subject=MeasuredRelease(release, document["model"], "1" * 64, _BOARD, VERSION, 0, 1),
            inferences=1000, every=10.0, whole=Spread(32, total, total, total),
            operators=tuple(spreads), environment=at,
        )  # fmt: skip
        spool = board.encode().hex().ljust(32, "0")[:32]
        ProfileStore().add(board, batch_bytes(batch, spool, self.batches, 0, 0))

    def _ns(self, shown: Any) -> int:
        if self.times:
            return self.times.get(shown["name"], 0)
        if not shown["form"]:
            return 100
        usual = shown["form"]["vector_operations"] * shown["default"]["relative_cost"]
        return int(usual * (1.0 if _is_default(shown) else self.slow))


@pytest.fixture
def field() -> Field:
    return Field()


@pytest.fixture
def release(edgekit: Any, face_model: Path, home: Path) -> Callable[[], str]:
    """Compiles the model with the current table; returns the release's id."""

    def make() -> str:
        out = home / "made.ekb"
        done = edgekit("compile", face_model, "--board", _BOARD, "-o", out)
        assert done.code == 0, done.err
        return Bundle.read(out).manifest.id

    return make


def _is_default(shown: Any) -> bool:
    return bool(shown["method"] == shown["default"]["method"])


def _by_rows(release: str) -> dict[str, Any]:
    """Operators for which a row changed the default method, with the new method."""
    document = recall(release)
    assert document is not None
    shown = [each for each in document["operators"] if each["form"] and not _is_default(each)]
    return {each["name"]: each["method"] for each in shown}


def _left(bad: str, now: str) -> set[str]:
    """Operators still compiled with the method of the bad release."""
    return {name for name, method in _by_rows(bad).items() if _by_rows(now).get(name) == method}


def spoil(model: Path, board: str = _BOARD) -> int:
    """Writes a user table with the costliest method for every third key of the model.

    Returns the number of spoiled keys.
    """
    profile = load_board(board)
    subject = tuning_task_of(model, profile, DEFAULT_OPTIONS)
    worst = {
        each.key: max(each.costs, key=lambda m, of=each: of.costs[m])
        for each in subject.operators
        if len(each.costs) > 1
    }
    chosen = dict(sorted(worst.items())[::3])
    table = subject.table_with(chosen)
    rows = tuple(replace(r, source="estimate", ratio=0.9) for r in table.operators)
    path = user_table(profile)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(table_text(replace(table, operators=rows)))
    return len(chosen)


@pytest.mark.exhaustive
def test_a_spoiled_table_is_mended_by_profiles_alone(edgekit, face_model, release, field):
    spoiled = spoil(face_model)
    bad = release()
    assert spoiled and _by_rows(bad)
    for board in ("one", "two", "three"):
        field.run(bad, board)
    built = edgekit("lab", "kb", "build", "--board", _BOARD, "--json")
    assert built.code == 0, built.err
    done = built.document
    assert done["field"]["releases"] == 1 and done["field"]["boards"] == 3
    assert done["field"]["measurements"] == len(_by_rows(bad))
    old = [c for c in done["changes"] if "the old takes 2.00" in c["why"]]
    assert old and all("(profile)" in c["why"] and c["after"] is None for c in old)
    assert _left(bad, release()) == set()


def test_each_changed_row_is_reported(edgekit, face_model, release, field):
    spoil(face_model)
    field.run(release())
    out = edgekit("lab", "kb", "build", "--board", _BOARD).out
    assert "1 release on 1 board;" in out
    assert "the old takes 2.00 times as long as without a row (profile)" in out
    assert "-> the rule without a row" in out


@pytest.mark.parametrize(
    "busy",
    few_or_all(
        [
            replace(_CALM, throttled=True),
            replace(_CALM, others=2.0),
            replace(_CALM, temperature_c=95.0),
            replace(_CALM, frequency_mhz=600.0),
        ],
        [replace(_CALM, frequency_mhz=600.0)],
    ),
    ids=["throttled", "others", "hot", "slowed"],
)
def test_boards_that_were_not_calm_teach_nothing(edgekit, face_model, release, field, busy):
    spoil(face_model)
    bad = release()
    field.slow = 1.0
    field.run(bad)  # establishes the board's full clock frequency
    field.slow = 5.0
    for _ in range(5):
        field.run(bad, at=busy)
    before = user_table(load_board(_BOARD)).read_bytes()
    done = edgekit("lab", "kb", "build", "--board", _BOARD, "--json").document
    assert done["field"]["batches_left_out"] == 5
    assert not done["written"] and user_table(load_board(_BOARD)).read_bytes() == before


def test_a_release_that_no_board_ran_in_peace_teaches_by_what_its_operators_took_of_each_other(
    edgekit, face_model, release, field
):
    spoil(face_model)
    bad = release()
    field.run(bad, at=replace(_CALM, others=1.7))
    built = edgekit("lab", "kb", "build", "--board", _BOARD, "--json")
    assert built.code == 0, built.err
    assert built.document["changes"]
    assert _left(bad, release()) == set()


def test_two_releases_of_a_busy_board_are_not_held_against_each_other(
    edgekit, face_model, release, field
):
    user_table(load_board(_BOARD)).parent.mkdir(parents=True, exist_ok=True)
    subject = tuning_task_of(face_model, load_board(_BOARD), DEFAULT_OPTIONS)
    user_table(load_board(_BOARD)).write_text(table_text(replace(subject.table, operators=())))
    plain = release()
    spoil(face_model)
    bad = release()
    field.slow = 1.2
    field.run(plain)
    field.run(bad, at=replace(_CALM, others=1.7))
    built = edgekit("lab", "kb", "build", "--board", _BOARD, "--json")
    assert built.document["field"]["measurements"] == 0


def test_costs_alone_do_not_speak_against_a_row_that_is_a_little_slow(
    edgekit, face_model, release, field
):
    spoil(face_model)
    bad = release()
    field.slow = 1.3
    field.run(bad)
    done = edgekit("lab", "kb", "build", "--board", _BOARD)
    assert done.code == 0, done.err
    assert "no field measurement contradicts the table" in done.out
    assert len(_by_rows(release())) == len(_by_rows(bad))


def test_a_healthy_board_s_table_stays_as_it_is(edgekit, face_model, release, field):
    field.slow = 0.9
    field.run(release())
    done = edgekit("lab", "kb", "build", "--board", _BOARD, "--json").document
    assert done["field"]["releases"] == 1 and not done["written"] and done["changes"] == []
    assert not user_table(load_board(_BOARD)).exists()


@pytest.mark.exhaustive
def test_two_releases_of_a_model_are_held_against_each_other(
    edgekit, face_model, release, field, home
):
    user_table(load_board(_BOARD)).parent.mkdir(parents=True, exist_ok=True)
    subject = tuning_task_of(face_model, load_board(_BOARD), DEFAULT_OPTIONS)
    empty = replace(subject.table, operators=())
    user_table(load_board(_BOARD)).write_text(table_text(empty))
    plain = release()
    assert _by_rows(plain) == {}
    spoil(face_model)
    bad = release()
    field.slow = 1.2
    field.run(plain)
    field.run(bad)
    done = edgekit("lab", "kb", "build", "--board", _BOARD, "--json").document
    assert done["field"]["measurements"] == len(_by_rows(bad))
    assert _left(bad, release()) == set()


def test_releases_that_were_made_elsewhere_and_other_cores_teach_nothing(
    edgekit, face_model, release, field, home
):
    spoil(face_model)
    bad = release()
    field.run(bad)
    assert edgekit("lab", "kb", "build", "--board", "rpi3").code == 2
    (kept,) = (home.parent / "home").glob(f"**/{bad}.json.gz")
    kept.unlink()
    assert edgekit("lab", "kb", "build", "--board", _BOARD).code == 2


@pytest.mark.long
def test_a_model_is_faster_after_what_its_application_measured_here(edgekit, face_model, home):
    """End to end on this machine: deploy with a spoiled table, run, pull, build, redeploy."""
    assert spoil(face_model, board="local")
    assert edgekit("deploy", face_model).code == 0
    with connect("local").open() as session:
        (spec,) = session.served.variants[0].inputs
        given = {spec.name: np.zeros(spec.shape, np.float32)}
        for _ in range(3000):
            session.run(given)
    assert edgekit("profile", "pull", "--board", "local").code == 0
    built = edgekit("lab", "kb", "build", "--board", "local", "--json")
    assert built.code == 0 and built.document["changes"], built.err
    assert edgekit("deploy", face_model).code == 0
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(2 * _TURNS):  # alternate releases: the load on this machine varies
        done = edgekit("bench", "model", "--runs", "100", "--json")
        times[turn % 2].append(done.document["latency_ms"]["median"])
        assert edgekit("rollback").code == 0
    assert median(times[0]) < median(times[1])


@pytest.mark.long
@pytest.mark.cross
def test_measurements_of_boards_make_a_model_faster_in_the_simulator(
    edgekit, face_model, release, field
):
    """The estimated cycles of the core replace measurements from boards."""
    spoil(face_model)
    bad = release()
    slow = edgekit("estimate", face_model, "--board", _BOARD, "--json").document
    field.times = {o["name"]: int(o["cycles"] / 1.4) for o in slow["operators"]}
    field.run(bad)
    assert edgekit("lab", "kb", "build", "--board", _BOARD, "--json").document["changes"]
    mended = edgekit("estimate", face_model, "--board", _BOARD, "--json").document
    assert mended["cycles"] < slow["cycles"]
