"""The search against exhaustive search on small problems; its reports; reproducibility."""

from __future__ import annotations

import itertools
import math
import time
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.host.compiler.schedule.bounds import least_makespan, least_peak
from edgekit.host.compiler.schedule.dag import Dag, dag_of
from edgekit.host.compiler.schedule.memory import buffers_of
from edgekit.host.compiler.schedule.orders import count_orders, shuffled
from edgekit.host.compiler.schedule.search import Effort, Objective, find_order
from edgekit.host.compiler.schedule.timeline import Problem, simulate
from tests.support.schedule_graphs import all_orders, graph_of, random_edges

_WIDE = Effort(ways=10**6, nodes=60)  # no pruning on small problems


@st.composite
def problems(draw, most=6, units=2):
    size, edges = draw(random_edges(most))
    graph = graph_of(size, edges, sizes=draw(st.lists(st.integers(1, 99), min_size=size)))
    times = st.integers(1, 9).map(float)
    row = st.lists(st.one_of(times, st.just(math.inf)), min_size=units, max_size=units)
    costs = draw(st.lists(row.filter(lambda r: min(r) < math.inf), min_size=size, max_size=size))
    loads = draw(st.lists(st.sampled_from([0.0, 0.0, 1.0, 4.0]), min_size=size, max_size=size))
    return Problem(
        dag=dag_of(graph),
        costs=tuple(tuple(c) for c in costs),
        loads=tuple(loads),
        handover=draw(st.sampled_from([0.0, 1.0])),
        moves=tuple(draw(st.lists(st.sampled_from([0.0, 2.0]), min_size=size, max_size=size))),
        late=(0.0, *draw(st.lists(st.sampled_from([0.0, 3.0]), min_size=1, max_size=1))),
        arena=buffers_of(graph, 0, size),
    )


def _best(problem: Problem, objective: Objective) -> tuple[float, float]:
    """The optimum over every order and every choice of units."""
    choices = [[u for u, c in enumerate(row) if c < math.inf] for row in problem.costs]
    scores = []
    for order in all_orders(problem.dag):
        peak = problem.arena.peak(order)
        for units in itertools.product(*choices):
            time = simulate(problem, order, units).makespan
            scores.append((time, peak) if objective == "time" else (peak, time))
    return min(scores)


@given(problems(), st.sampled_from(["time", "memory"]))
@settings(max_examples=80)
@pytest.mark.slow
def test_the_best_order_is_found_and_proved(problem, objective):
    found = find_order(problem, objective, "0", _WIDE)
    scores = (found.makespan, found.peak)
    assert found.proved
    assert scores[:: 1 if objective == "time" else -1] == _best(problem, objective)


@given(problems(most=8))
@settings(max_examples=60)
def test_a_result_is_what_the_timeline_says_of_it(problem):
    found = find_order(problem, "time", "0", Effort(ways=8, samples=2, nodes=80))
    assert sorted(found.order) == list(range(problem.dag.size))
    assert simulate(problem, found.order, found.units).makespan == found.makespan
    assert problem.arena.peak(found.order) == found.peak
    assert found.makespan <= found.import_makespan


@given(problems())
@settings(max_examples=20)
def test_large_parts_keep_the_order_of_the_importer(problem):
    found = find_order(problem, "memory", "0", Effort(size=problem.dag.size - 1))
    assert found.order == tuple(range(problem.dag.size)) and not found.proved


def test_a_result_is_fetched_once_by_the_unit_that_reads_it_twice():
    dag = Dag.of_edges(4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    graph = graph_of(4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    costs = ((1.0, math.inf), *[(math.inf, 1.0)] * 3)
    moves = (10.0, 0.0, 0.0, 0.0)
    problem = Problem(dag, costs, (0.0,) * 4, 0.5, moves, (0.0, 0.0), buffers_of(graph, 0, 4))
    found = simulate(problem, range(4))
    assert found.starts == (0.0, 1.5, 12.5, 13.5)
    assert found.makespan == 14.5


@given(random_edges(7))
def test_orders_are_counted_as_they_are_listed(edges):
    size, pairs = edges
    dag = Dag.of_edges(size, pairs)
    orders = list(all_orders(dag))
    assert len({tuple(o) for o in orders}) == len(orders)
    count = count_orders(dag)
    assert count is not None and count.total == len(orders)
    assert count_orders(dag, most_sets=size) is None
    for order in (*orders[:20], count.sample(Random(1)), shuffled(dag, range(size), Random(1), 50)):
        place = {node: i for i, node in enumerate(order)}
        assert sorted(order) == list(range(size))
        assert all(place[a] < place[b] for a, b in pairs)


def test_counting_ends_within_a_level_that_has_too_many_sets():
    """1000 independent nodes: the second level alone has half a million sets of finished nodes."""
    start = time.process_time()
    assert count_orders(Dag.of_edges(1000, [])) is None
    assert time.process_time() - start < 5


def _diamonds() -> Dag:
    return Dag.of_edges(6, [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 5)])


@pytest.mark.parametrize("way", ["counted", "chain"])
def test_random_orders_are_drawn_evenly(way):
    """All of a graph's orders must be about equally frequent; a wrong weight would favor some by
    far."""
    dag, random, draws = _diamonds(), Random(3), 4000
    count = count_orders(dag)
    assert count is not None
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(draws):
        drawn = count.sample(random) if way == "counted" else shuffled(dag, range(6), random, 200)
        seen[tuple(drawn)] = seen.get(tuple(drawn), 0) + 1
    assert len(seen) == count.total
    even = draws / count.total
    assert all(abs(n - even) < 5 * math.sqrt(even) for n in seen.values())


def _wide_problem(size: int = 40, width: int = 6) -> Problem:
    """Parallel chains on a choice of units: too many orders to prove anything."""
    random = Random(5)
    edges = [(i, i + width) for i in range(size - width)]
    edges += [(i, i + width + 1) for i in range(0, size - width - 1, 3)]
    graph = graph_of(size, edges, sizes=[random.randrange(1, 999) for _ in range(size)])
    costs = tuple((float(random.randrange(1, 99)), float(random.randrange(1, 99))) for _ in edges)
    costs = costs[:size]
    nothing, arena = (0.0,) * size, buffers_of(graph, 0, size)
    return Problem(dag_of(graph), costs, nothing, 1.0, nothing, (0.0, 0.0), arena)


def test_a_search_that_proves_nothing_says_so_and_repeats():
    problem = _wide_problem()
    small = Effort(sets=100, ways=80, samples=5, nodes=800)
    first = find_order(problem, "time", "7", small)
    assert first == find_order.__wrapped__(problem, "time", "7", small)
    assert not first.proved and first.total is None
    assert first.tried == 5 + 800 // 40 + 5
    assert first.makespan < first.import_makespan


@pytest.mark.parametrize("objective", ["time", "memory"])
def test_nothing_beats_the_bounds(objective):
    problem = _wide_problem()
    found = find_order(problem, objective, "0", Effort(ways=80, samples=2, nodes=800))
    assert least_makespan(problem) <= found.makespan
    assert least_peak(problem) <= found.peak


def test_an_equal_part_of_another_plan_is_not_searched_again():
    small = Effort(sets=100, ways=80, samples=2, nodes=80)
    first, again = (find_order(_wide_problem(), "memory", "3", small) for _ in range(2))
    assert again is first
