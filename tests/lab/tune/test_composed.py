"""Products of a board that is not connected are tuned in simulated time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.host.cli.tune_products import ProductKind, select_products
from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.lab.history.store import History
from edgekit.host.lab.tune import session
from edgekit.host.lab.tune.build import build_table
from edgekit.host.lab.tune.composed import ComposedMeasurer
from edgekit.host.lab.tune.estimating import EstimatingMeasurer
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.host.lab.tune.tuner import Question, TimedProduct
from edgekit.host.simulator.products import PartsAsked
from edgekit.host.simulator.run import SimulatedCost
from edgekit.host.simulator.target import target_of
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import load_board

_BOARD = load_board("rpi5")
_PRODUCT = MatrixProduct(GemmShape(24, 144, 196), "f32", 2, "b")


class _Timer:
    """A core whose cycles are linear in each size, and on which tiles of 8 x 12 take half."""

    def __init__(self, gain: int = 2) -> None:
        self.gain = gain
        self.asked: list[GemmShape] = []

    def part_costs(self, asked: Sequence[PartsAsked]) -> list[list[SimulatedCost]]:
        self.asked += [shape for _, parts in asked for shape, _ in parts]
        return [[SimulatedCost(self._cycles(*p), 1, {}) for p in parts] for _, parts in asked]

    def _cycles(self, shape: GemmShape, how: Method) -> int:
        gain = self.gain if (how.mr, how.nr) == (8, 12) else 1
        return (shape.m + 5) * (shape.n + 7) * shape.k // gain


def test_estimates_become_rows_and_are_not_made_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    timer = _Timer()
    job = session.TuningJob("rpi5", _BOARD, (_PRODUCT,), 60.0, lambda: "2026-11-26T00:00:00+00:00")
    outcome = session.tune(job, lambda: ComposedMeasurer(timer, _BOARD.isa.vl), lambda _: None)
    (best,) = outcome.best
    assert outcome.finished and (best.method.mr, best.method.nr) == (8, 12)
    assert best.ratio == pytest.approx(0.5)
    asked = len(timer.asked)
    again = session.tune(job, lambda: ComposedMeasurer(timer, _BOARD.isa.vl), lambda _: None)
    assert again.finished and again.known == outcome.measured and len(timer.asked) == asked
    with History() as history:
        table = build_table(history.read().measurements, board=_BOARD)
    answer = table.choose(_BOARD, _PRODUCT.shape, "f32", 2, "b")
    assert answer.rule == "exact" and answer.row and answer.row.source == "estimate"
    assert not answer.row.relaxes and answer.row.radius is not None
    assert (answer.method.mr, answer.method.nr) == (8, 12)


@pytest.mark.parametrize("shape", [GemmShape(300, 2000, 396), GemmShape(397, 100, 31)])
def test_a_large_product_is_composed_of_parts_and_only_what_gains_runs_whole(
    shape: GemmShape,
) -> None:
    default, better = (Method(256, 250, 396, False, True, *tile) for tile in ((5, 16), (8, 12)))
    poor = replace(default, kc=125)
    asked = Question(MatrixProduct(shape), default, (better, poor), 1.0)
    answers: dict[int, TimedProduct | None] = {}
    for gain, whole in ((2, 2), (1, 0)):
        timer = _Timer(gain)
        ComposedMeasurer(timer, _BOARD.isa.vl).measure([asked], answers.__setitem__)
        timed = answers[0]
        assert timed and timer.asked.count(shape) == whole
        assert sum(s.operations for s in timer.asked if s != shape) < 2 * shape.operations
        cycles = timer._cycles(shape, default)
        assert timed.default.low == pytest.approx(cycles, rel=0.02)
        assert timed.methods[0].low == pytest.approx(cycles / gain, rel=0.02)
        assert timed.methods[0].low <= timed.methods[1].low == pytest.approx(cycles, rel=0.02)
        assert (timed.methods[0].spread == 0.0) == (gain == 2)


@pytest.mark.parametrize(("gain", "runs"), [(2, 3 + 4), (1, 3)])
def test_methods_of_a_small_product_run_again_only_if_one_seems_better(
    gain: int, runs: int
) -> None:
    shape = GemmShape(8, 16, 12)
    default, other = (Method(8, 16, 12, False, False, *tile) for tile in ((5, 16), (8, 12)))
    asked = Question(MatrixProduct(shape), default, (other,), 1.0)
    answers: dict[int, TimedProduct | None] = {}
    timer = _Timer(gain)
    ComposedMeasurer(timer, _BOARD.isa.vl).measure([asked, asked], answers.__setitem__)
    timed = answers[1]
    assert timed and timed.methods[0].low == timed.default.low // gain
    assert timer.asked == [shape] * 2 * runs


class _Learning(_Timer):
    """A core on which each part takes half as long again until any other has run."""

    def part_costs(self, asked: Sequence[PartsAsked]) -> list[list[SimulatedCost]]:
        return [
            [replace(first, cycles=first.cycles * 3 // 2), *others]
            for first, *others in super().part_costs(asked)
        ]


@pytest.mark.parametrize("rows", [16, 1600, 6400])
def test_the_first_method_of_a_run_has_no_disadvantage(rows: int) -> None:
    default, other = (Method(rows, 3, 64, False, False, *tile) for tile in ((5, 16), (4, 24)))
    asked = Question(MatrixProduct(GemmShape(rows, 3, 64)), default, (other,), 1.0)
    answers: dict[int, TimedProduct | None] = {}
    for measurer in (
        ComposedMeasurer(_Learning(), _BOARD.isa.vl, thorough=4),
        EstimatingMeasurer(target_of(_BOARD), _Learning()),
    ):
        measurer.measure([asked], answers.__setitem__)
        timed = answers[0]
        assert timed and timed.default.low == timed.methods[0].low


def test_the_shapes_for_estimates_are_those_of_networks_and_programs() -> None:
    found = select_products(None, None, ProductKind(None, 1, None, "cycles"))
    shapes = [product.shape for product in found]
    assert len(set(shapes)) == len(shapes) >= 400 and GemmShape(500, 1600, 30) in shapes
    assert GemmShape(1024, 1024, 1024) in shapes and GemmShape(3136, 64, 128) in shapes
    assert shapes == sorted(shapes, key=lambda s: (s.operations, s))
