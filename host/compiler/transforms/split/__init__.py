"""Splits operators that do not fit a board's memory into several that do."""

from edgekit.host.compiler.transforms.split.split import (
    SplitGraph,
    memory_limit,
    needed_bytes,
    split,
)

__all__ = ["SplitGraph", "memory_limit", "needed_bytes", "split"]
