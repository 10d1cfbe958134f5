"""What a step of a register tile of floats takes on ARM's 64-bit cores, as fitted to board time."""

from __future__ import annotations

from edgekit.kb.targets.isa import Tile

VECTORS = 32  # registers that these costs are for


def cost_of_parts(tile: Tile, panels: list[int], m: int, in_order: bool) -> float:
    """The cost of all tiles of rows by all panels, for each k. Rows that are left are made in
    powers of two (`edge` in conv/panels.h)."""
    step = _step_ahead if in_order else _step_behind_products
    heights = [tile.mr] * (m // tile.mr) + [h for h in (8, 4, 2, 1) if m % tile.mr & h]
    most = {height: heights.count(height) for height in heights}
    return sum(count * step(height, nv) for nv in panels for height, count in most.items())


def _step_behind_products(rows: int, vectors: int) -> float:
    """Where loads hide behind products, on an A76: fitted to the choice between 8 x 8 and 6 x 12
    for 144 products by board time, which takes 1.003 of the better one's time. A tile of 6 x 3
    counts as on other cores. Not of an A72 or A57, where the walk's effect on the cache decides:
    costs that gain 2 % on products alone lose 5 % of visual wake words there. Where rows beside
    sums find no register, 1.09 (8 x 12) to 1.22 (12 x 8) of others' time on four threads."""
    if rows * vectors + rows >= VECTORS:
        return 1.45 * rows * vectors
    return 1.1 * rows * vectors + 0.06 * rows + 0.39 * vectors + 1.1


def _step_ahead(rows: int, vectors: int) -> float:
    """Of kernels that load ahead (EK_IN_ORDER in gemm/f32_tile.h): by board time 0.75 cycles for
    each product, 3.9 for each vector of weights and 6.3 for the tile on an A53, within 2.6 % for 4
    to 8 rows of 1 to 4 vectors; where the next operands find no register, 3 for each product and
    more. Here times 22.5 / 31.4, so that a tile of 6 x 3 counts as on other cores."""
    if rows * vectors + rows + 2 * vectors > VECTORS + 1:
        return 2.2 * rows * vectors
    return 0.53 * rows * vectors + 2.8 * vectors + 4.5
