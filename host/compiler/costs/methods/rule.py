"""Constants of the analytic rule (`analytic_method` of gemm.py).

gemm/default.c, the same rule on a board, gets each of them as a macro RULE_<NAME>.
"""

from __future__ import annotations

LARGEST = 1 << 28  # larger sizes are clamped to this, so that costs fit 64 bits in C
LONG_VECTORS = 16  # minimum lanes for which costs were fitted to times
WIDE_VECTORS = 8  # minimum lanes for which passes over B in place were measured
AHEAD_LANES = 4  # values of A in a register of 64-bit ARM
REGISTERS = 32  # vector registers where that was measured
PAGE = 4096  # bytes; rows this far apart map to the same L1 set
WAYS = 8  # minimum associativity of L1
LINE = 64  # bytes per cache line
SUM_BYTES = 4  # per element of C

# Blocks
K_STEP = 16  # kc is a multiple: complete byte groups, complete lines of floats
WIDE = 8  # vectors of sums in flight, to hide their latency
FEW_PANELS = 16  # panels up to which a shared block need not stay in L1
PACK_ROWS = 64  # row tiles that must use a packed B before packing pays
ROWS_DEPTH = 128  # kc if panels are read from separate rows of B
LEAST_DEPTH = 64  # of kc if rows of B in place share cache sets
UNALIGNED = 60  # bytes that an unaligned row occupies beyond its own, on average
STRIP_LANES = 4  # up to which strips may pay for one row
STRIP_DEPTH = 320  # of kc if strips of a B beyond the last cache are packed
FLAT_DEPTH, FLAT_ROWS = 96, 64  # of kc, and most rows, if cores in order read strips of deep ones
# The tile that cores in order have their own code for: its rows, from how many columns it pays, and
# from which k, columns and elements of C packing B for it does; and rows from which complete rows
# of a far B are packed
IN_ORDER_ROWS, IN_ORDER_COLUMNS, IN_ORDER_DEPTH = 8, 32, 9
IN_ORDER_NARROW, IN_ORDER_SUMS, IN_ORDER_WHOLE = 8, 768, 48
MANY_PASSES = 6  # times `pack_rows` from which packing pays though L1 holds B
FEW_TILES, STREAMS = 3, 32  # kc if no more than this many tiles share them
PANELS_EACH = 4  # panels of B that a thread copies and multiplies between barriers
STRIP_COLUMNS = 128  # of B: two cache lines per row, otherwise memory is read at half its rate

# Columns from which transposed tiles lost in every measurement on AVX-512; the second value is for
# floats on cores that are faster with copies.
TRANSPOSED_COLUMNS, TRANSPOSED_FLOATS = 64, 256
POINTED = 14  # rows in place whose pointers stay in registers
FOLLOWED = 7  # rows in place that prefetchers follow at once
ROWS_APART = 1024  # bytes; rows a multiple of this apart share few sets of L1
SMALL_K, SMALL_K_ROWS = 4, 32  # maximum k, and rows of A in place computed at once
REGISTER_ROWS, REGISTER_GROUPS = 16, 16  # of an AMX tile register

# An f32 B in place
FEW_PASSES = 4  # passes that cost extra, before the prefetcher has adapted
PASS_DEPTH = 32  # k from which reading B takes longer than writing C
# Rows of A from which copying each panel of B pays, for a B beyond half of L2; the second value is
# for rows of B that are pages apart.
COPIED_ROWS, COPIED_PAGES = 128, 48

# Products of f16, in loads of a vector: a step of a tile, packing a vector of B, reading a row of a
# panel in place that L1 does not keep, and, once for all k, storing a row of a tile
HALF_STEP, HALF_PACKED, HALF_CROWDED, HALF_STORED = 3, 6, 6, 6

# Bytes
GROUP = 4  # values of k per lane and product
TRANSPOSED_AT_ONCE = 4  # column vectors whose rows of k are regrouped in registers at once
ALONE = 3  # cost of a single vector of B, in vectors: AMX packs four at once
