"""What it costs threads to share a model's work: all figures by which their number is chosen.

They are fitted to board time of several models with 1, 2 and 4 threads (docs/architecture.md says
how near they come); whoever changes how several threads are timed fits them anew, here.
"""

from __future__ import annotations

LATE_US = 50.0  # until a thread that slept runs on its core, on boards like these
PIECES = 8  # of each thread's share: as in runtime/pool.c
INSIDE = 16  # pieces of a kernel that shares its work itself
WORTH = 0.95  # of the time with fewer threads, that one with more may take
HANDOVER_CYCLES = 2000.0  # of a shared call: a flag to the other cores and back, the last of them
ALONE_WEIGHT = 0.5  # of a call that one thread makes, beside a call of its operator that is shared
FAR_PART = 0.6  # of tensors that caches have no room for: the rest is still near from being made

# Vector operations that kernels do in a cycle, all told; of cores that were not looked at, as of
# others of their kind.
_REACHED = {"a53": 0.4, "a72": 0.7, "a76": 1.9}
_IN_ORDER, _OUT_OF_ORDER = 0.4, 0.7


def reached(core: str, in_order: bool) -> float:
    """How many vector operations kernels do in a cycle of a core, by its short name ("a76")."""
    return _REACHED.get(core, _IN_ORDER if in_order else _OUT_OF_ORDER)
