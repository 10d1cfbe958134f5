"""Operators that do not fit a board's memory become several that do."""

from edgekit.host.split.limit import memory_limit
from edgekit.host.split.split import SplitGraph, needed_bytes, split

__all__ = ["SplitGraph", "memory_limit", "needed_bytes", "split"]
