"""How a product is computed: the value of a row of the GEMM table, and its analytic default."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.kb.board import BoardProfile

_LINE = 64  # bytes of a cache line
_L1_WAYS = 8  # assumed where the profile does not say: most cores have 4 to 12
_L2_SHARE = 0.5  # of the L2 cache for the packed block of A
_DTYPE_BYTES = {"f32": 4, "f16": 2, "s8": 1, "u8": 1}


@dataclass(frozen=True, order=True)
class Method:
    """Blocks of the loop nest (elements), packing, and the register tile.

    mc × kc of A stay in the L2 cache, kc × nr of B in the L1 cache, nc columns of B at a time.
    """

    mc: int
    kc: int
    nc: int
    pack_a: bool
    pack_b: bool
    mr: int
    nr: int

    def __post_init__(self) -> None:
        for name in ("mc", "kc", "nc", "mr", "nr"):
            if getattr(self, name) < 1:
                raise ValueError(f"expected {name} of 1 or more, found {getattr(self, name)}")


def analytic_method(board: BoardProfile, mr: int, nr: int, dtype: str = "f32") -> Method:
    """The method that cache sizes alone suggest for a register tile of mr × nr.

    Source: Low et al., "Analytical Modeling Is Enough for High-Performance BLIS" (TOMS 2016): kc
    fills the ways of L1 that are left beside the streaming operands, mc a share of L2, nc of L3.
    """
    size = _DTYPE_BYTES[dtype]
    sets = max(board.l1d_bytes // (_L1_WAYS * _LINE), 1)
    ways_a = max((_L1_WAYS - 1) * mr // (mr + nr), 1)
    kc = max(ways_a * sets * _LINE // (mr * size), 1)
    l2 = board.l2_bytes or 8 * board.l1d_bytes
    mc = max(int(l2 * _L2_SHARE) // (kc * size) // mr * mr, mr)
    l3 = board.l3_bytes or 4 * l2
    nc = max(l3 // 2 // (kc * size) // nr * nr, nr)
    return Method(mc, kc, nc, pack_a=False, pack_b=True, mr=mr, nr=nr)
