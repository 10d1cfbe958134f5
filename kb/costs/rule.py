"""Numbers of the analytic rule (`analytic_method` of method.py), told here once: gemm/default.c,
the same rule on a board, gets each as a macro RULE_<NAME>."""

from __future__ import annotations

LARGEST = 1 << 28  # sizes above are taken for this: costs then fit 64 bits in C
LONG_VECTORS = 16  # lanes from which costs were fitted to times
WIDE_VECTORS = 8  # lanes from which passes over B in place were measured
REGISTERS = 32  # vectors, where that was measured
PAGE = 4096  # bytes; rows this far apart share one set of L1
WAYS = 8  # of such a set, at least
LINE = 64  # bytes of the cache
SUM_BYTES = 4  # of C

# Blocks
K_STEP = 16  # kc is a multiple: whole groups of bytes, whole lines of floats
WIDE = 8  # vectors of sums under way at the same time, to hide the time that one takes
FEW_PANELS = 16  # that share a block: it need not stay in L1
PACK_ROWS = 64  # tiles of rows that must use a packed B before packing pays
ROWS_DEPTH = 128  # kc where panels are read from rows of B that are apart;
FEW_TILES, STREAMS = 3, 32  # kc where so few tiles share them
PANELS_EACH = 4  # of B that a thread copies and multiplies before it waits for the others
STRIP_COLUMNS = 128  # of B: two lines of the cache of each row, or memory is read at half its rate

# Tiles
# From so many columns on transposed tiles lost in every measurement on AVX-512; for floats, on the
# cores that are better with copies.
TRANSPOSED_COLUMNS, TRANSPOSED_FLOATS = 64, 256
POINTED = 14  # rows in place whose pointers stay in registers
SMALL_K, SMALL_K_ROWS = 4, 32  # the most k, and rows of A in place that are made at once
REGISTER_ROWS, REGISTER_GROUPS = 16, 16  # of a tile register of AMX

# An f32 B in place
FEW_PASSES = 4  # each of which counts: the core has not learned its way yet
PASS_DEPTH = 32  # from this k on reading B is more work than writing C
# Rows of A from which a copy of each panel of B is worth it, of a B beyond half of L2; and where
# rows of B are pages apart.
COPIED_ROWS, COPIED_PAGES = 128, 48

# Bytes
GROUP = 4  # of k that one product of a lane takes
TRANSPOSED_AT_ONCE = 4  # vectors of columns whose rows of k become groups in registers
ALONE = 3  # vectors of a B as which a single one counts: AMX packs four at once
