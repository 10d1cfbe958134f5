"""Products of a board that is not connected are tuned in simulated board time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.lab.history.store import History
from edgekit.host.lab.tune import session
from edgekit.host.lab.tune.build import build_table
from edgekit.host.lab.tune.estimate import EstimatedMeasurer
from edgekit.host.lab.tune.products import Product
from edgekit.host.simulator.products import Multiplication
from edgekit.host.simulator.run import Cost
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import load_board

_BOARD = load_board("rpi5")
_PRODUCT = Product(GemmShape(24, 144, 196), "f32", 2, "b")


class _Timer:
    """A core on which tiles of 8 x 12 take half the cycles of others."""

    asked = 0

    def costs(self, product: Multiplication, methods: Sequence[Method]) -> tuple[Cost, ...]:
        assert product == Multiplication(_PRODUCT.shape, "f32", "b", 2)
        self.asked += len(methods)
        return tuple(Cost(1000 if (m.mr, m.nr) == (8, 12) else 2000, 1, {}) for m in methods)


def test_estimates_become_rows_and_are_not_made_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    timer = _Timer()
    job = session.Job("rpi5", _BOARD, (_PRODUCT,), 60.0, lambda: "2026-11-26T00:00:00+00:00")
    outcome = session.tune(job, lambda: EstimatedMeasurer(timer), lambda _: None)
    (best,) = outcome.best
    assert outcome.finished and (best.method.mr, best.method.nr, best.ratio) == (8, 12, 0.5)
    asked = timer.asked
    again = session.tune(job, lambda: EstimatedMeasurer(timer), lambda _: None)
    assert again.finished and again.known == outcome.measured and timer.asked == asked
    with History() as history:
        table = build_table(history.read().measurements, board=_BOARD)
    answer = table.choose(_BOARD, _PRODUCT.shape, "f32", 2, "b")
    assert answer.rule == "exact" and answer.row and answer.row.source == "estimate"
    assert (answer.method.mr, answer.method.nr) == (8, 12)
