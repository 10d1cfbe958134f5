"""Costs of sharing a model's work among threads: the constants that determine the thread count.

They are fitted to simulated time of several models with 1, 2 and 4 threads; for the accuracy
see docs/architecture.md. Changes to the timing of multiple threads require fitting them again.
"""

from __future__ import annotations

LATE_US = 50.0  # until a sleeping thread runs on its core, on boards like these
PIECES = 8  # pieces of each thread's share, as in runtime/thread_pool.c
INSIDE = 16  # pieces of a kernel that distributes its own work
WORTH = 0.95  # maximum time with more threads, relative to fewer, for them to pay
HANDOVER_CYCLES = 2000.0  # per shared call: a flag to the slowest of the other cores and back
# Weight of a single-threaded call relative to a shared call of the same operator
ALONE_WEIGHT = 0.5
# Fraction of tensors beyond the caches that is far; the rest is still cached from being written
FAR_PART = 0.6

# Average vector operations per cycle in kernels; the defaults cover cores that were not measured.
_REACHED = {"a53": 0.4, "a72": 0.7, "a76": 1.9}
_IN_ORDER, _OUT_OF_ORDER = 0.4, 0.7


def reached(core: str, in_order: bool) -> float:
    """Vector operations per cycle that kernels achieve on a core, by its short name ("a76")."""
    return _REACHED.get(core, _IN_ORDER if in_order else _OUT_OF_ORDER)
