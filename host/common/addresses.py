"""A limit for the memory that this process maps while it reads what others wrote."""

from __future__ import annotations

import contextlib
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

_LOCK = threading.RLock()  # each thread restores the limit that it found


@contextlib.contextmanager
def more_addresses(size: int) -> Iterator[None]:
    """Within it, this process may map at most `size` bytes more than it does; beyond that, it gets
    MemoryError."""
    with _LOCK:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits = resource.getrlimit(resource.RLIMIT_AS)
        wanted = pages * resource.getpagesize() + size
        given = [limit for limit in limits if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_AS, (min([wanted, *given]), limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)
