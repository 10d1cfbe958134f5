"""Operator rows built from a history of several sources, and rows added by benchmarks."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgekit.device.version import VERSION
from edgekit.host.compiler.costs.methods.operators import OperatorMethod
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.deploy.release import Benchmark, ClockReadings, OperatorTime
from edgekit.host.lab.history.benchmarks import keep_benchmark
from edgekit.host.lab.history.operator_history import OperatorMeasurement, operator_rows
from edgekit.host.lab.history.store import History
from edgekit.host.lab.history.tunable_ops import TuningTask, tuning_task_of
from edgekit.host.lab.tune import operator_times
from edgekit.host.lab.tune.build import build_table
from edgekit.kb.features import GemmShape, Sequences
from edgekit.kb.targets.board import load_board

_USUAL, _OTHER = OperatorMethod("in_place", "f32", 6, 12), OperatorMethod("in_place", "f32", 8, 8)
_SHAPE = GemmShape(64, 24, 24)
_MODEL = Path(__file__).parents[3] / "models" / "face_detection_short_range.tflite"


def measured(
    cost: float, source: str = "tuner", method: OperatorMethod = _OTHER, **more: object
) -> OperatorMeasurement:
    base = OperatorMeasurement(
        "pi", "core", "model", "conv", "conv1s1", 1, _SHAPE, method, cost, 1.0, "now", VERSION,
        source, "cycles" if source == "estimate" else "seconds",
    )  # fmt: skip
    return replace(base, **more)  # type: ignore[arg-type]


def _rows(*history: OperatorMeasurement):
    return operator_rows(history, ("core",), Sequences())


def test_a_method_that_gains_gets_a_row_with_its_gain():
    (row,) = _rows(measured(1.0, method=_USUAL), measured(0.8))
    assert (row.method, row.ratio, row.source, row.shape) == (_OTHER, 0.8, "tuner", _SHAPE)


def test_a_method_that_gains_less_than_two_percent_gets_none():
    (row,) = _rows(measured(0.99))
    assert row.method is None and row.ratio == 1.0


@pytest.mark.parametrize(("threads", "cost", "gains"), [(1, 0.97, True), (2, 0.96, False)])
def test_several_threads_must_gain_five_percent(threads, cost, gains):
    (row,) = _rows(measured(cost, threads=threads))
    assert (row.method == _OTHER) == gains
    (row,) = _rows(measured(0.94, threads=threads))
    assert row.method == _OTHER


def test_times_weigh_more_than_board_time():
    (row,) = _rows(measured(0.8, "estimate"), measured(1.1, "tuner"))
    assert row.method is None
    (row,) = _rows(measured(1.1, "estimate"), measured(0.8, "tuner"))
    assert row.method == _OTHER and row.source == "tuner"


def test_of_the_same_measured_again_the_last_one_counts():
    (row,) = _rows(measured(0.5), measured(1.2))
    assert row.method is None


def test_what_a_newer_kit_measured_counts_alone():
    old = measured(0.5, kit_version="0.0.1", operator="other")
    (row,) = _rows(old, measured(1.0))
    assert row.method is None


def test_operators_that_share_a_key_count_by_what_they_take():
    small = measured(0.02, operator="small", default_cost=0.01)
    (row,) = _rows(small, measured(0.8))
    assert row.method == _OTHER and row.ratio == pytest.approx(0.82 / 1.01, rel=1e-3)


def test_a_row_that_only_says_what_holds_without_it_is_left_out():
    far = measured(1.0, shape=GemmShape(4096, 512, 512), operator="far")
    assert build_table([], ("core",), operators=[far]).operators == ()
    near = measured(1.0, shape=GemmShape(64, 24, 64), operator="near")
    kept = build_table([], ("core",), operators=[measured(0.8), near]).operators
    assert [row.method for row in kept].count(None) == 1  # overrides a neighboring row


def test_operators_of_a_history_that_cannot_be_are_skipped(tmp_path):
    path = tmp_path / "h.sqlite"
    with History(path) as history:
        assert history.add_operators([measured(0.8), measured(0.7), measured(0.9)]) == 3
    with sqlite3.connect(path) as db:
        db.execute("UPDATE operators SET cost = -1 WHERE id = 1")
        db.execute("UPDATE operators SET family = 'magic' WHERE id = 2")
    with History(path) as history:
        read = history.read_operators("core")
    assert read.skipped == 2 and read.measurements == [measured(0.9)]


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TuningTask:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    return tuning_task_of(_MODEL, load_board("rpi3"), DEFAULT_OPTIONS)


def _benchmark(subject: TuningTask, usual_us: float, other_us: float) -> Benchmark:
    other = {name for s in subject.operators if s.current != s.default for name in s.steps}
    operators = tuple(
        OperatorTime(name, "conv", "k", other_us if name in other else usual_us, 0.1)
        for name in {name: None for s in subject.operators for name in s.steps}
    )
    conditions = ClockReadings(None, None, None)
    return Benchmark(
        "r", subject.name, 1, 1.0, 1.0, 1.0, 9, operators, 0, 0, before=conditions,
        after=conditions,
    )  # fmt: skip


def test_a_benchmark_adds_what_was_compiled_by_rows_at_its_own_pace(subject):
    board, benchmark = load_board("rpi3"), _benchmark(subject, 2000.0, 1000.0)
    assert keep_benchmark(_MODEL, board, DEFAULT_OPTIONS, "pi", benchmark, "now") == 0
    with History() as history:
        history.add_operators(
            measured(
                1e-3, method=s.default, operator=s.name, platform=board.platform,
                model=subject.name, shape=s.form.shape,
                default_cost=1e-3 * len(s.steps),
            )
            for s in subject.operators
        )  # fmt: skip
    count = keep_benchmark(_MODEL, board, DEFAULT_OPTIONS, "pi", benchmark, "now")
    assert count == sum(s.current != s.default for s in subject.operators) > 0
    with History() as history:
        kept = [m for m in history.read_operators().measurements if m.source == "benchmark"]
    assert len(kept) == count
    assert {m.ratio for m in kept} == {0.5}  # although the run was half as fast as tuning


def test_board_time_of_the_methods_without_rows_is_estimated_once(subject):
    """The result never changes, and rebuilding it took a third of each round."""
    built = []
    cost = SimpleNamespace(cycles=7)
    found = SimpleNamespace(
        operators=[SimpleNamespace(spec=SimpleNamespace(name="conv"), cost=cost)], cost=cost
    )

    def estimate(table: KnowledgeBase) -> SimpleNamespace:
        built.append(table)
        return found

    measurer = operator_times.EstimatedTimes(subject, print, estimate)
    usual = subject.table_with({})
    tables = [subject.table_with({s.key: s.default}) for s in subject.operators[:3]]
    for table in tables:
        ours, default = measurer.measure(table, usual)
        assert ours == default == operator_times.ModelCosts({"conv": 7.0}, 7.0)
    assert built == [tables[0], usual, *tables[1:]]
