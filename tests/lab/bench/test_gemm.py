"""Comparing GEMM products: cases, contenders, and reports."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime.arrays.find import find_library
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.tables.gemm_table import GemmRow, KnowledgeBase
from edgekit.host.compiler.toolchain.zig import Toolchain, TranslationUnit
from edgekit.host.errors import InputError
from edgekit.host.lab.bench.gemm import (
    CaseResult,
    Peer,
    bytes_over_floats,
    fixed_method,
    geometric_mean,
    measure_cases,
    summarize,
    with_peers,
)
from edgekit.host.lab.bench.gemm_cases import (
    TRANSPOSED,
    GemmCase,
    given_cases,
    random_cases,
    standard_cases,
)
from edgekit.host.lab.bench.gemm_contenders import (
    OPENBLAS_LOOP,
    Edgekit,
    GemmContender,
    OneDnn,
    OnnxRuntime,
    OpenBlas,
    Torch,
    UnavailableError,
    WrongResultError,
    check,
)
from edgekit.host.lab.bench.gemm_lookup import lookup_speed
from edgekit.host.lab.bench.gemm_regret import every_method, measure_regret, unseen_cases
from edgekit.host.lab.bench.gemm_worker import time_case, wait_for_others
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.host.lab.tune.tuner import MeasuredCost, Question, TimedProduct
from edgekit.kb.features import GemmShape, Sequences, key_of
from edgekit.kb.targets.board import load_board, load_profile

_BOARD = load_profile("x86-64-v4")
_EMPTY = KnowledgeBase(("x86-64-v4",))


class FakeBoard:
    """Computes costs by a formula; rejects products for which `refuses` is true."""

    unit = "seconds"

    def __init__(
        self,
        cost: Callable[[MatrixProduct, Method], float],
        refuses: Callable[[MatrixProduct], bool] = lambda _: False,
    ) -> None:
        self._cost = cost
        self._refuses = refuses

    def measure(
        self, questions: Sequence[Question], on_answer: Callable[[int, TimedProduct | None], None]
    ) -> None:
        for i, q in enumerate(questions):
            found = (self._cost(q.product, method) for method in (q.default, *q.methods))
            costs = [MeasuredCost(median=cost, spread=0.1, low=cost) for cost in found]
            refused = self._refuses(q.product)
            on_answer(i, None if refused else TimedProduct(costs[0], tuple(costs[1:])))


def result(m: int, n: int, k: int, cost: float, dtype: str = "f32", **peers: float) -> CaseResult:
    group = "square" if m == n == k else "irregular"
    case = GemmCase(GemmShape(m=m, n=n, k=k), group, "b")
    answer = _EMPTY.choose(_BOARD, case.shape)
    found = {name: Peer(cost * ratio, ratio) for name, ratio in peers.items()}
    return CaseResult(case, dtype, answer, cost, 0.0, 1.5, found)  # type: ignore[arg-type]


def test_the_cases_are_the_same_every_time_and_differ_from_one_another():
    cases = standard_cases()
    assert cases == standard_cases()
    assert [c.group for c in cases].count("random") == 200
    assert len(set(cases)) == len(cases)
    assert random_cases(10, seed=1) != random_cases(10, seed=2)
    irregular = {(c.shape.m, c.shape.n, c.shape.k) for c in cases if c.group == "irregular"}
    assert (500, 30, 1600) in irregular and (1, 1024, 1024) in irregular


def test_a_file_may_not_ask_for_all_memory():
    with pytest.raises(InputError, match="at most 134217728 elements"):
        given_cases([GemmShape(1 << 20, 8, 1 << 20)])


def test_a_file_may_ask_for_some_of_the_standard_products_alone():
    cases = standard_cases()
    assert given_cases([cases[0].shape, cases[30].shape]) == [cases[0], cases[30]]
    (other,) = given_cases([GemmShape(3, 4, 5)])
    assert (other.group, other.weights) == ("file", "b")


def test_the_choice_is_compared_with_the_fixed_method():
    shape = GemmShape(64, 64, 3136)
    case = GemmCase(shape, "irregular", "a")
    good = Method(64, 64, 96, False, False, 6, 64)
    row = GemmRow(key_of(shape, 0, Sequences(), packed="a"), good, shape, "tuner")
    table = KnowledgeBase(("x86-64-v4",), rows=(row,))
    board = FakeBoard(lambda _, method: 1.0 if method == good.cut(shape) else 3.0)
    shown: list[tuple[int, int]] = []
    (found,) = measure_cases(
        [(case, "f32")], _BOARD, table, 1, board, lambda *done: shown.append(done)
    )
    assert (found.answer.rule, found.cost, found.gain) == ("exact", 1.0, 3.0)
    assert fixed_method(_BOARD, "f32", 1, case) != good.cut(shape)
    assert shown == [(1, 1)]


def test_products_that_the_board_refuses_are_left_out():
    board = FakeBoard(lambda *_: 1.0, refuses=lambda product: product.shape.m > 128)
    cases = [(GemmCase(GemmShape(n, n, n), "square", "b"), "f32") for n in (64, 256, 128)]
    found = measure_cases(cases, _BOARD, _EMPTY, 1, board, lambda *_: None)  # type: ignore[arg-type]
    assert [r.case.shape.m for r in found] == [64, 128]


def test_summaries_are_geometric_means_beside_the_best_peer():
    results = [
        result(256, 256, 256, 2.0, slow=4.0, quick=0.5),
        result(512, 512, 512, 2.0, slow=2.0),
        result(1, 8, 8, 2.0),
        result(512, 512, 512, 0.5, dtype="s8"),
    ]
    square, irregular, s8 = summarize(results)
    assert square.ratio == pytest.approx(1.0) and square.gain == pytest.approx(1.5)
    assert square.worst == results[0] and results[0].best_peer == "quick"
    assert (irregular.ratio, irregular.worst, irregular.products) == (None, None, 1)
    assert (s8.dtype, s8.group) == ("s8", "square")
    assert bytes_over_floats(results) == pytest.approx(4.0)
    assert bytes_over_floats(results[:3]) is None
    assert geometric_mean([]) == 1.0 and geometric_mean([1.0, 4.0]) == pytest.approx(2.0)


def test_regret_is_the_choice_beside_the_best_of_all_methods():
    cases = unseen_cases(_EMPTY, "x86-64-v4", 3)
    board = FakeBoard(lambda _, method: 1.0 if method.kc == 16 else 1.25)
    found = measure_regret(
        [(case, "f32") for case in cases], _BOARD, _EMPTY, 1, board, lambda *_: None
    )
    for each in found.products:
        assert each.methods > 4
        assert each.regret == pytest.approx(0.25 if each.best.kc == 16 != each.chosen.kc else 0.0)
    assert found.mean <= found.worst


def test_regret_leaves_out_what_the_board_refuses():
    cases = unseen_cases(_EMPTY, "x86-64-v4", 15)
    refused = cases[4].shape
    board = FakeBoard(lambda *_: 1.0, refuses=lambda product: product.shape == refused)
    shown: list[int] = []
    found = measure_regret(
        [(case, "f32") for case in cases],
        _BOARD,
        _EMPTY,
        1,
        board,
        lambda done, total: shown.append(done),
    )
    assert [p.case for p in found.products] == [c for c in cases if c.shape != refused]
    assert shown[-1] == 15 and shown == sorted(set(shown))


def test_no_more_products_are_asked_for_than_there_are():
    few = unseen_cases(_EMPTY, "x86-64-v4", 10_000, most_operations=2_000)
    assert 0 < len(few) == len(set(few)) < 1_000


def test_another_seed_searches_other_products():
    first, again, other = (unseen_cases(_EMPTY, "x86-64-v4", 10, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_products_of_the_table_are_not_unseen():
    (first, *_) = unseen_cases(_EMPTY, "x86-64-v4", 5)
    how = Method(8, 8, 8, False, True, 8, 48)
    row = GemmRow(key_of(first.shape, 0, Sequences()), how, first.shape, "tuner")
    table = KnowledgeBase(("x86-64-v4",), rows=(row,))
    assert first not in unseen_cases(table, "x86-64-v4", 5)
    small = unseen_cases(table, "x86-64-v4", 5, most_operations=100_000)
    assert all(case.shape.operations <= 100_000 for case in small)


@pytest.mark.parametrize("dtype", ["f32", "s8"])
@pytest.mark.parametrize("packed", ["none", "a", "b"])
def test_every_method_is_valid_and_none_is_twice(dtype, packed):
    product = MatrixProduct(GemmShape(96, 576, 49), dtype, 1, packed)
    methods = every_method(_BOARD, product)
    assert len(set(methods)) == len(methods) > 8
    assert all(m == m.cut(product.shape) for m in methods)


@pytest.fixture(scope="module")
def contenders(tmp_path_factory: pytest.TempPathFactory) -> list[GemmContender]:
    """edgekit and all installed peers."""
    loop = tmp_path_factory.mktemp("loop") / "loop.so"
    toolchain = Toolchain(load_board("local"), cache_folder() / "objects")
    loop.write_bytes(toolchain.build([TranslationUnit("loop", OPENBLAS_LOOP)]))
    library, table = find_library()
    assert table is not None
    found: list[GemmContender] = [Edgekit(library, table, 1)]
    for make in (
        lambda: OpenBlas(loop, 1),
        lambda: OnnxRuntime(1),
        lambda: OneDnn(1),
        lambda: Torch(1),
    ):
        try:
            found.append(make())
        except UnavailableError as error:
            assert "not installed" in str(error) or "NumPy was built" in str(error)
    return found


@pytest.mark.parametrize("weights", ["a", "b"])
@pytest.mark.parametrize("sizes", [(7, 5, 9), (1, 33, 20), (33, 20, 1), (64, 64, 64)])
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_every_contender_makes_the_right_product(contenders, weights, sizes, dtype):
    m, k, n = sizes
    rng = np.random.default_rng(0)
    a = (rng.standard_normal((m, k)) * 50).astype(dtype)
    b = (rng.standard_normal((k, n)) * 50).astype(dtype)
    case = GemmCase(GemmShape(m, k, n), "file", weights)
    for contender in contenders:
        if weights == "a" and not contender.left:
            continue
        try:
            run = contender.prepare(case, a, b)
        except UnavailableError as error:
            assert dtype == np.int8 and "float32 only" in str(error)
            continue
        assert math.isfinite(run(2))


def test_weights_at_the_left_are_timed_in_both_orders_by_all_who_take_them(contenders):
    case = GemmCase(GemmShape(8, 30, 70), "random", "a")
    times = time_case(contenders, case, "f32", settle=False)["times"]
    either = {c.name for c in contenders if c.left}
    names = {c.name + TRANSPOSED for c in contenders} | either
    assert set(times) == names and "edgekit" in either
    plain = time_case(contenders, replace(case, weights="b"), "f32", settle=False)["times"]
    assert set(plain) == {c.name for c in contenders}


def test_each_is_compared_in_its_better_order():
    ours, theirs = [30.0, 30.0, 60.0], [20.0, 20.0, 20.0]
    times = {
        "edgekit": [40.0] * 3,
        "edgekit transposed": ours,
        "p": [50.0] * 3,
        "p transposed": theirs,
    }
    found = with_peers(result(4, 5, 6, cost=1.0), {"times": times})
    assert (found.cost, found.transposed, found.best) == pytest.approx((4e-8, 3e-8, 3e-8))
    assert found.peers == {"p": Peer(pytest.approx(2e-8), 20 / 30, transposed=True)}
    with pytest.raises(InputError, match="edgekit: wrong result"):
        with_peers(
            result(4, 5, 6, 1.0), {"times": {}, "missing": {"edgekit": "edgekit: wrong result"}}
        )


def test_a_wrong_product_is_never_timed():
    a = np.ones((4, 4), np.float32)
    with pytest.raises(WrongResultError, match="peer: wrong result"):
        check("peer", a, a, a)
    check("peer", a * 4, a, a)


@pytest.mark.parametrize("make", [Torch, OneDnn, OnnxRuntime])
def test_a_peer_that_is_not_installed_says_how_to_get_it(make):
    def refuse(name: str) -> None:
        raise ImportError(f"No module named '{name}'")

    with pytest.raises(UnavailableError, match=r"not installed .*pip install .*\[peers\]"):
        make(1, refuse)


def test_look_ups_are_measured(tmp_path: Path):
    library, table = find_library()
    assert table is not None
    found = lookup_speed(library, table)
    assert found.repeated > 0 and (found.exact is None or found.exact > 0)


def test_a_turn_begins_when_threads_of_the_one_before_sleep():
    """Library threads spin for a while, and a spinning SMT sibling takes half of our core."""
    stop = threading.Event()
    data = bytes(1 << 24)

    def spin() -> None:
        while not stop.is_set():
            hashlib.sha256(data)  # releases the GIL, like a library's native threads

    spinning = threading.Thread(target=spin)
    spinning.start()
    try:
        assert not wait_for_others(0.05)
    finally:
        stop.set()
        spinning.join()
    assert wait_for_others(10.0)
