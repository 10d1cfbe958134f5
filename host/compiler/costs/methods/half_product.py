"""How a product of f16 is computed: its tile, and whether B is packed."""

from __future__ import annotations

from collections.abc import Iterator

from edgekit.device.runtime.kernel_facts import HALF_SUMS, PACKED_ROWS
from edgekit.host.compiler.costs.methods.rule import (
    HALF_CROWDED,
    HALF_PACKED,
    HALF_STEP,
    HALF_STORED,
)
from edgekit.host.compiler.costs.methods.tile_cost import depth_in_place, parts
from edgekit.host.errors import InputError
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import BoardProfile

HalfChoice = tuple[int, int, bool]  # mr, nr, whether B is packed


def half_choices(board: BoardProfile) -> Iterator[HalfChoice]:
    """All of them: a tile of each width with B in place, then packed. None for a core that does not
    compute in half precision."""
    if board.computes_half:
        lanes = board.isa.of_half.vl
        for nv, mr in reversed(list(enumerate(board.isa.columns.f16, 1))):
            yield mr, nv * lanes, False
            yield mr, nv * lanes, True


def cheapest_half(board: BoardProfile, shape: GemmShape, threads: int) -> HalfChoice:
    """The first one of least cost. InputError if the core does not compute in half precision.

    Each step of k of a tile loads its vectors of B, and costs as much as HALF_STEP of these
    besides; packing one costs as much as HALF_PACKED, and storing a row of a tile HALF_STORED.
    Panels that are not full are always packed. If rows of a panel in place share so few sets of L1
    that it does not keep them (`depth_in_place`), each costs HALF_CROWDED whenever it is read: by
    every tile, or to pack it. A task, of several threads, is a panel of PACKED_ROWS rows.
    """
    choices = list(half_choices(board))
    if not choices:
        raise InputError(
            f"expected a board that computes in half precision, found {board.name}; take f32"
        )
    return min(choices, key=lambda choice: _cost(board, shape, threads, choice))


def _cost(board: BoardProfile, shape: GemmShape, threads: int, choice: HalfChoice) -> int:
    mr, nr, packs = choice
    lanes = board.isa.of_half.vl
    vectors, panels = parts(shape.n, lanes), parts(shape.n, nr)
    bands, last = parts(shape.m, PACKED_ROWS), (shape.m - 1) % PACKED_ROWS + 1
    tiles = (bands - 1) * _tiles_of(PACKED_ROWS, mr) + _tiles_of(last, mr)
    whole = nr // lanes * (shape.n // nr)
    packed = vectors if packs else vectors - whole
    cost = tiles * (vectors + HALF_STEP * panels) + HALF_PACKED * bands * packed
    if min(shape.k, HALF_SUMS) > depth_in_place(board, nr, shape.n, "f16"):
        cost += HALF_CROWDED * (bands if packs else tiles) * panels
    cost += HALF_STORED * shape.m * panels // shape.k
    tasks = bands * panels
    return cost * parts(tasks, threads) // tasks


def _tiles_of(rows: int, mr: int) -> int:
    """Tiles of some rows: full ones, then one of four, and others of two and one."""
    last = rows % mr
    return rows // mr + (last >= 4) + parts(last % 4 if last < 8 else last - 4, 2)
