"""The minimum-cost assignment of two labels against exhaustive search."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from edgekit.host.compiler.transforms.passes.cut import TwoLabels

_COST = st.one_of(st.integers(0, 9).map(float), st.just(math.inf))


@given(
    st.lists(st.tuples(_COST, st.integers(0, 9).map(float)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), _COST), max_size=12),
    st.lists(st.tuples(st.sets(st.integers(0, 5)), st.integers(0, 9).map(float)), max_size=3),
)
def test_no_labels_are_cheaper(things, pairs, groups):
    labels = TwoLabels()
    for costs in things:
        labels.thing(*costs)
    pairs = [(a, b, cost) for a, b, cost in pairs if max(a, b) < len(things) and a != b]
    for pair in pairs:
        labels.differ(*pair)
    groups = [({at for at in some if at < len(things)}, cost) for some, cost in groups]
    for group in groups:
        labels.saved_together(*group)

    def total(second):
        own = sum(costs[s] for costs, s in zip(things, second, strict=True))
        lost = sum(cost for some, cost in groups if any(second[at] for at in some))
        return own + lost + sum(cost for a, b, cost in pairs if second[b] and not second[a])

    best = min(total(s) for s in itertools.product((False, True), repeat=len(things)))
    found = labels.second_label()[: len(things)]
    assert total(found) == best
    alike = [s for s in itertools.product((False, True), repeat=len(things)) if total(s) == best]
    if best < math.inf:
        assert sum(found) == min(sum(s) for s in alike)
