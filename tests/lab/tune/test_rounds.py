"""Operators measured together in one build during a search for methods."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from edgekit.device.version import VERSION
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.lab.history.store import History
from edgekit.host.lab.history.tunable_ops import TuningTask, tuning_task_of
from edgekit.host.lab.tune.operators import ModelCosts, ModelPlan, ModelTuner
from edgekit.kb.features import GemmKey
from edgekit.kb.targets.board import load_board

_MODEL = Path(__file__).parents[3] / "models" / "face_detection_short_range.tflite"


class _AllAlike:
    """All operators take the same time with every method."""

    unit, source, per_ms, least, worth = "cycles", "estimate", 1e6, 1.0, 1.15

    def __init__(self, subject: TuningTask) -> None:
        steps = sorted({step for each in subject.operators for step in each.steps})
        self._times = ModelCosts(dict.fromkeys(steps, 100.0), 100.0 * len(steps))
        self.asked: list[set[GemmKey]] = []

    def measure(
        self, table: KnowledgeBase, default: KnowledgeBase
    ) -> tuple[ModelCosts, ModelCosts]:
        self.asked.append({row.key for row in table.operators if row.method})
        return self._times, self._times


@pytest.fixture(scope="module")
def subject() -> TuningTask:
    return tuning_task_of(_MODEL, load_board("rk3566"), DEFAULT_OPTIONS)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history.sqlite") as opened:
        yield opened


def test_operators_beside_chains_are_measured_together_with_them(
    subject: TuningTask, history: History
) -> None:
    measurer, clock = _AllAlike(subject), count()
    plan = ModelPlan("rk3566", subject, 0.0, VERSION, lambda: None)
    tuner = ModelTuner(plan, measurer, history, lambda: float(next(clock)), lambda: "now")
    tuner.run(lambda _: None)
    groups = {each.key: each.steps for each in subject.operators if each.is_group}
    asked = measurer.asked[1]  # measurement 0 is the current build
    members = {step for key in asked & set(groups) for step in groups[key]}
    beside = [e for e in subject.operators if e.key in asked and not e.is_group]
    assert members and beside
    assert not any(each.steps & members for each in beside)
