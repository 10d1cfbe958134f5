"""Operator positions in a drawn graph."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgekit.host.report.explained import places

EDGES = st.integers(1, 40).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.sets(
            st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] < e[1])
        ),
    )
)


@given(EDGES)
def test_an_operator_is_below_its_operands_and_alone(
    graph: tuple[int, set[tuple[int, int]]],
) -> None:
    count, edges = graph
    made = places(count, sorted(edges))
    assert len(set(made)) == count
    assert all(made[a][1] < made[b][1] for a, b in edges)


def test_a_chain_is_one_column() -> None:
    assert places(4, [(0, 1), (1, 2), (2, 3), (0, 3)]) == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_branches_are_side_by_side() -> None:
    assert places(4, [(0, 1), (0, 2), (1, 3), (2, 3)]) == [(0, 0), (0, 1), (1, 1), (0, 2)]


def test_nothing_has_no_places() -> None:
    assert places(0, []) == []
