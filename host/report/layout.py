"""Layout of an operator graph: rows in execution order, parallel branches in columns."""

from __future__ import annotations

from collections.abc import Sequence

Place = tuple[int, int]  # column, row
_MOST_COLUMNS = 6


def places(count: int, edges: Sequence[tuple[int, int]]) -> list[Place]:
    """A position for each of `count` operators: below all its inputs, and in the column of one of
    them if free. Edges go from lower to higher indices."""
    reads: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        reads[target].append(source)
    made: list[Place] = []
    taken: set[Place] = set()
    for sources in reads:
        row = max((made[s][1] + 1 for s in sources), default=0)
        column = _free_column(row, [made[s][0] for s in sources], taken)
        while column is None:
            row += 1
            column = _free_column(row, [made[s][0] for s in sources], taken)
        made.append((column, row))
        taken.add((column, row))
    return made


def _free_column(row: int, wanted: Sequence[int], taken: set[Place]) -> int | None:
    """The free column of a row nearest to any wanted one; None if the row is full."""
    free = [column for column in range(_MOST_COLUMNS) if (column, row) not in taken]
    near = wanted or (0,)
    return min(free, key=lambda c: (min(abs(c - w) for w in near), c), default=None)
