"""The memory plan: live tensors never overlap, and the arena is close to the largest live set."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from edgekit.host.compiler.lowering.memory import Lifetime, lifetimes, plan_memory

_BUFFERS = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(0, 20), st.integers(0, 6)), min_size=0, max_size=40
)


@given(_BUFFERS)
def test_buffers_alive_together_do_not_overlap(rows):
    buffers = [
        Lifetime(f"b{i}", -(-size // 64) * 64, first, first + length)
        for i, (size, first, length) in enumerate(rows)
    ]
    plan = plan_memory(buffers, 30)
    for i, a in enumerate(buffers):
        at = plan.offsets[a.name]
        assert at % 64 == 0 and at + a.bytes <= plan.arena_bytes
        for b in buffers[:i]:
            if a.last < b.first or b.last < a.first:
                continue
            other = plan.offsets[b.name]
            assert at + a.bytes <= other or other + b.bytes <= at
    assert plan.lower_bound <= plan.arena_bytes <= sum(b.bytes for b in buffers)


def test_a_chain_needs_two_neighbors():
    uses = [("a",), ("a", "b"), ("b", "c"), ("c", "d")]
    sizes = {"a": 640, "b": 64, "c": 320, "d": 128}
    plan = plan_memory(lifetimes(sizes, uses), len(uses))
    assert plan.arena_bytes == plan.lower_bound == 704


def test_thousands_of_buffers_that_overlap_do_not_share_bytes():
    """Pairs of them would be compared for seconds."""
    rng = random.Random(0)
    names = [f"b{i}" for i in range(8000)]
    uses = [(name, rng.choice(names[: i + 1])) for i, name in enumerate(names)]
    buffers = lifetimes({name: 64 * rng.randint(1, 9) for name in names}, uses)
    plan = plan_memory(buffers, len(uses))
    alive = sorted((plan.offsets[b.name], b.bytes) for b in buffers if b.first <= 4000 <= b.last)
    assert all(at + size <= after for (at, size), (after, _) in pairwise(alive))
    assert plan.arena_bytes <= 1.2 * plan.lower_bound


def test_nothing_needs_nothing():
    assert plan_memory([], 0).arena_bytes == 0
