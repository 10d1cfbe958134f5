"""The search: its proposals, finding the optimum, and keeping every measurement."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.costs.methods.limits import limits_of
from edgekit.host.errors import BusyError, UnreachableError
from edgekit.host.lab.history.store import History
from edgekit.host.lab.tune import session
from edgekit.host.lab.tune.lock import tuning_alone
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.host.lab.tune.propose import default_method, first_methods, neighbors
from edgekit.host.lab.tune.tuner import (
    MeasuredCost,
    Question,
    TimedProduct,
    Tuner,
    TuningOutcome,
    TuningPlan,
    TuningProgress,
    gain_of,
)
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import board_names, caches_of, load_board

_BOARD = load_board("a57")
_PRODUCTS = (
    MatrixProduct(GemmShape(64, 576, 784)),
    MatrixProduct(GemmShape(96, 576, 49), packed="a"),
    MatrixProduct(GemmShape(1, 1024, 1000), threads=2),
)
_SIZES = st.integers(1, 5000)


def cost_of(method: Method) -> float:
    """Minimal at kc = 64 without packing; tall tiles cost less than wide ones."""
    blocks = abs(math.log2(method.kc / 64)) + 0.1 * (method.pack_a + method.pack_b)
    return 1.0 + blocks + method.nr / (100.0 * method.mr)


@dataclass
class Model:
    """A board with costs from a formula; unreachable after `lives` answers."""

    unit: str = "seconds"
    lives: int = 10**9
    asked: list[Question] = field(default_factory=list)
    clock: float = 0.0

    def measure(
        self, questions: Sequence[Question], on_answer: Callable[[int, TimedProduct | None], None]
    ) -> None:
        for index, question in enumerate(questions):
            if len(self.asked) == self.lives:
                raise UnreachableError("board 'a57': expected an answer, found none")
            self.asked.append(question)
            self.clock += question.seconds
            methods = (question.default, *question.methods)
            costs = [MeasuredCost(2.0, 0.01, cost_of(m) * 1e-3) for m in methods]
            on_answer(index, TimedProduct(costs[0], tuple(costs[1:])))


def tune(
    history: History,
    model: Model,
    seconds: float = 1e6,
    show: Callable[[TuningProgress], None] = id,
) -> TuningOutcome:
    plan = TuningPlan("a57", _BOARD, _PRODUCTS, seconds, "0.1.0")
    return Tuner(plan, model, history, lambda: model.clock, lambda: "now").run(show)


@given(
    st.builds(GemmShape, _SIZES, _SIZES, _SIZES),
    st.sampled_from(board_names()),
    st.sampled_from(["f32", "s8", "u8"]),
    st.sampled_from(["none", "a", "b"]),
    st.booleans(),
)
@settings(deadline=None)
def test_proposals_are_few_and_each_is_what_runs(shape, name, dtype, packed, counted):
    board = load_board(name)
    product = MatrixProduct(shape, dtype, 1, packed)
    first = first_methods(board, product, counted)
    assert first[0] == default_method(board, product) and len(set(first)) == len(first) <= 17
    more = neighbors(board, product, first[0], counted)
    assert first[0] not in more and len(more) <= 10
    assert all(method == method.cut(shape) for method in (*first, *more))


def test_large_rows_are_tried_in_packed_blocks():
    for size, wanted in ((256, False), (1024, True)):
        product = MatrixProduct(GemmShape(size, size, size), "f32", 1, "b")
        near = [method for method in first_methods(_BOARD, product, False) if method.pack_a]
        assert bool(near) == wanted
        for method in near:
            panel, block = (
                4 * method.kc * extent for extent in (min(method.mr, method.nr), method.mc)
            )
            assert panel <= caches_of(_BOARD).l1 * 3 // 4 and block <= caches_of(_BOARD).l2 // 4


def test_counted_instructions_propose_no_packing_and_no_blocks():
    product = _PRODUCTS[0]
    default = default_method(_BOARD, product)
    for method in first_methods(_BOARD, product, counted=True):
        assert not method.pack_a and method.pack_b == default.pack_b
    assert neighbors(_BOARD, product, default, counted=True) == []


def test_the_search_finds_what_is_better_than_the_default(tmp_path: Path):
    with History(tmp_path / "h.sqlite") as history:
        outcome = tune(history, Model())
    assert outcome.finished and len(outcome.best) == len(_PRODUCTS)
    assert outcome.best[0].method.kc in (48, 64, 72, 80)
    assert gain_of(outcome) > 1.2


class Sized(Model):
    """Costs also depend on the product's size: larger products favor deeper blocks."""

    def measure(
        self, questions: Sequence[Question], on_answer: Callable[[int, TimedProduct | None], None]
    ) -> None:
        for index, question in enumerate(questions):
            self.asked.append(question)
            best = question.product.shape.m / 2
            methods = (question.default, *question.methods)
            depths = [1 + abs(math.log2(method.kc / best)) for method in methods]
            costs = [MeasuredCost(2.0, 0.01, 1e-3 * depth) for depth in depths]
            on_answer(index, TimedProduct(costs[0], tuple(costs[1:])))


def test_products_of_a_row_get_each_others_best(tmp_path: Path):
    small, large, other = (
        MatrixProduct(GemmShape(*s)) for s in ((96,) * 3, (400,) * 3, (64, 576, 784))
    )
    plan = TuningPlan("a57", _BOARD, (small, large, other), 1e6, "0.1.0")
    with History(tmp_path / "h.sqlite") as history:
        outcome = Tuner(plan, Sized(), history, lambda: 0.0, lambda: "now").run(id)
        tried = {
            p: {m.method for m in history.read().measurements if m.shape == p.shape}
            for p in plan.products
        }
    best = {b.product: b.method for b in outcome.best}
    assert best[small].kc < best[large].kc
    for mine, mate in ((small, large), (large, small)):
        wanted = limits_of(best[mate], mate.shape, _BOARD, "f32").cut(mine.shape)
        assert wanted in tried[mine]
    foreign = limits_of(best[other], other.shape, _BOARD, "f32").cut(large.shape)
    assert foreign not in tried[large]


def test_a_given_method_is_measured_twice_and_nothing_else(tmp_path: Path):
    product, given = _PRODUCTS[0], Method(64, 64, 784, False, False, 8, 8)
    plan = TuningPlan("a57", _BOARD, (product,), 1e6, "0.1.0", {product: given})
    with History(tmp_path / "h.sqlite") as history:
        outcome = Tuner(plan, Model(), history, lambda: 0.0, lambda: "now").run(id)
        methods = [m.method for m in history.read().measurements]
    default = default_method(_BOARD, product)
    assert set(methods) == {given, default} and methods.count(given) == 2
    assert outcome.finished and outcome.best[0].method == given


def test_a_second_run_measures_nothing(tmp_path: Path):
    with History(tmp_path / "h.sqlite") as history:
        first = tune(history, Model())
        again = Model()
        second = tune(history, again)
    assert again.asked == [] and second.measured == 0 and second.finished
    assert second.known == first.measured
    assert [b.method for b in second.best] == [b.method for b in first.best]


def test_another_kit_version_measures_anew(tmp_path: Path):
    with History(tmp_path / "h.sqlite") as history:
        tune(history, Model())
        model = Model()
        plan = TuningPlan("a57", _BOARD, _PRODUCTS, 1e6, "0.2.0")
        Tuner(plan, model, history, lambda: 0.0, lambda: "now").run(id)
    assert model.asked


@pytest.mark.parametrize("lives", range(8))
def test_a_lost_board_loses_nothing(lives: int, tmp_path: Path):
    with History(tmp_path / "whole.sqlite") as history:
        whole = tune(history, Model())
    path = tmp_path / "h.sqlite"
    with History(path) as history, pytest.raises(UnreachableError):
        tune(history, Model(lives=lives))
    with History(path) as history:
        kept = history.read().measurements
        model = Model()
        after = tune(history, model)
        assert len({m.shape for m in kept}) == min(lives, 3)
    assert after.known == len(kept) and after.finished
    assert {(b.product, b.method) for b in after.best} == {
        (b.product, b.method) for b in whole.best
    }


def test_the_budget_is_kept_and_every_product_comes_first(tmp_path: Path):
    with History(tmp_path / "h.sqlite") as history:
        outcome = tune(history, Model(), seconds=1.0)
    assert not outcome.finished and len(outcome.best) == len(_PRODUCTS)


def test_preparation_is_part_of_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Something is still measured, so that repeating the command makes progress."""
    now = [0.0]

    def compiling(*_: object) -> Model:
        now[0] += 500
        return Model()

    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    job = session.TuningJob(
        "b", load_board("a57"), _PRODUCTS, 60.0, lambda: "2024-05-01T00:00:00+00:00"
    )
    outcome = session.tune(job, compiling, lambda _: None, lambda: now[0])
    assert not outcome.finished and outcome.measured > 0


def test_the_winners_are_measured_twice_but_counts_once(tmp_path: Path):
    with History(tmp_path / "timed.sqlite") as history:
        outcome = tune(history, Model())
        best = outcome.best[0].method
        assert sum(m.method == best for m in history.read().measurements) >= 2
    with History(tmp_path / "counted.sqlite") as history:
        model = Model(unit="instructions")
        tune(history, model)
        assert len(model.asked) == len(_PRODUCTS)
        assert {m.unit for m in history.read().measurements} == {"instructions"}


def test_a_product_that_the_board_cannot_make_is_named(tmp_path: Path):
    class Small(Model):
        def measure(self, questions, on_answer):
            for index, question in enumerate(questions):
                timed = TimedProduct(
                    MeasuredCost(1.0, 0.0, 1.0),
                    (MeasuredCost(2.0, 0.0, 2.0),) * len(question.methods),
                )
                on_answer(index, None if question.product == _PRODUCTS[0] else timed)

    with History(tmp_path / "h.sqlite") as history:
        outcome = tune(history, Small())
    assert outcome.refused == (_PRODUCTS[0],)
    assert {b.product for b in outcome.best} == set(_PRODUCTS[1:])


def test_progress_tells_the_gain_so_far(tmp_path: Path):
    shown: list[TuningProgress] = []
    with History(tmp_path / "h.sqlite") as history:
        outcome = tune(history, Model(), show=shown.append)
    assert shown[-1].gain == gain_of(outcome) and shown[-1].measured == outcome.measured
    assert [p.gain for p in shown[2:]] == sorted(p.gain for p in shown[2:])


def test_one_tuner_per_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    with tuning_alone("a57", "ann@desk, process 7"):
        with pytest.raises(BusyError) as error, tuning_alone("a57", "bob"):
            pass
        with tuning_alone("a72", "bob"):
            pass
    assert "ann@desk, process 7" in str(error.value) and "\n" not in str(error.value)
    with tuning_alone("a57", "bob"):
        pass


def test_products_of_a_kind_do_not_mix(tmp_path: Path):
    packed = tuple(replace(p, packed="b") for p in _PRODUCTS)
    with History(tmp_path / "h.sqlite") as history:
        tune(history, Model())
        plan = TuningPlan("a57", _BOARD, packed, 1e6, "0.1.0")
        model = Model()
        assert Tuner(plan, model, history, lambda: 0.0, lambda: "now").run(id).known == 0
    assert model.asked[0].product.packed == "b"
