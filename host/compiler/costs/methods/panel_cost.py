"""The cost of a convolution's row tiles and panels, by which its tiles are selected."""

from __future__ import annotations

from edgekit.kb.targets.isa import Tile

VECTORS = 32  # registers that these costs assume


def cost_of_parts(tile: Tile, panels: list[int], m: int, in_order: bool) -> float:
    """The cost, per k, of all row tiles by all panels.

    Remaining rows are computed in powers of two (`edge` in conv/panels.h).
    """
    step = _step_ahead if in_order else _step_behind_products
    counts = {tile.mr: m // tile.mr} | {h: 1 for h in (8, 4, 2, 1) if m % tile.mr & h}
    return sum(count * step(height, nv) for nv in panels for height, count in counts.items())


def _step_behind_products(rows: int, vectors: int) -> float:
    """The cost on an A76, where multiplications hide loads.

    Fitted, in simulated time, to the choice between 8 x 8 and 6 x 12 for 144 products;
    choosing by it takes 1.003 of the better tile's time. Scaled so that a 6 x 3 tile costs as much
    as on other cores. Not used for A72 or A57, where cache effects of the walk dominate: costs that
    gain 2% on separate products lose 5% on visual wake words there. If no registers are left for
    rows besides the sums, tiles take 1.09 (8 x 12) to 1.22 (12 x 8) of the time of others on four
    threads.
    """
    if rows * vectors + rows >= VECTORS:
        return 1.45 * rows * vectors
    return 1.1 * rows * vectors + 0.06 * rows + 0.39 * vectors + 1.1


def _step_ahead(rows: int, vectors: int) -> float:
    """The cost in kernels that load ahead (EK_IN_ORDER in gemm/f32_tile.h).

    In simulated time on an A53, 0.75 cycles per product, 3.9 per vector of weights and 6.3
    per tile, within 2.6% for 4 to 8 rows of 1 to 4 vectors; 3 or more per product if no registers
    are left for the next operands. Multiplied by 22.5 / 31.4, so that a 6 x 3 tile costs as much as
    on other cores.
    """
    if rows * vectors + rows + 2 * vectors > VECTORS + 1:
        return 2.2 * rows * vectors
    return 0.53 * rows * vectors + 2.8 * vectors + 4.5
