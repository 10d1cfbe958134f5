"""Threads that all models and products of a process share, whatever their releases."""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import os
import threading
from typing import Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple

from edgekit.device.runtime.shared_library import start_pool

# Process (threads do not survive a fork), layout of the pool, threads, cores of the workers.
_Key = Tuple[int, int, int, Tuple[int, ...]]


class Pool:
    """A thread pool at `address` that any number of inferences may use at the same time: it works
    for one, and the others compute alone. It runs in `library`, which stays loaded. `allowed` are
    the cores of the thread that started it."""

    def __init__(
        self, key: _Key, allowed: FrozenSet[int], library: ctypes.CDLL, address: int
    ) -> None:
        self.key, self.allowed, self.library, self.address = key, allowed, library, address
        self.users = 1


class LibraryPools:
    """The pools of a library's calls, by number of threads; any of the process will do."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._taken: Dict[int, Optional[Pool]] = {}

    def address(self, threads: int) -> Optional[int]:
        """Of a pool with these threads, including the caller; None for one thread."""
        if threads not in self._taken:
            self._taken[threads] = share_pool(self._library, threads, None)
        pool = self._taken[threads]
        return None if pool is None else pool.address

    def leave(self) -> None:
        for pool in self._taken.values():
            leave_pool(pool)
        self._taken = {}


_lock = threading.Lock()
_pools: List[Pool] = []
_closing: List[ctypes.CDLL] = []  # unloaded when their pools have ended


@contextlib.contextmanager
def on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Pins the calling thread, and threads that it starts, to `cores`; restores its affinity
    afterwards.

    If Linux refuses, for instance because cores were taken away, the thread stays unpinned.
    """
    before = os.sched_getaffinity(0) if cores else set()
    if not cores or before <= set(cores):
        yield
        return
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, before)


def share_pool(
    library: ctypes.CDLL, threads: int, cores: Optional[Sequence[int]]
) -> Optional[Pool]:
    """A pool of `threads`, including the caller, whose other threads are pinned to `cores`, if any,
    or wherever those of an earlier pool are if `cores` is None; None for one thread.
    IncompatibleError if the threads cannot be started."""
    if threads == 1:
        return None
    layout = int(library.ek_pool_layout()) if hasattr(library, "ek_pool_layout") else 0
    key = (os.getpid(), layout, threads, tuple(cores or ()))
    allowed = frozenset(os.sched_getaffinity(0))
    with _lock:
        for pool in _pools:
            same = pool.key == key
            if cores is None:
                same = pool.key[:3] == key[:3] and pool.allowed == allowed
            if layout and same:
                pool.users += 1
                return pool
        with on_cores(key[3]):
            address = start_pool(library, threads)
        assert address is not None
        _pools.append(Pool(key, allowed, library, address))
        return _pools[-1]


def leave_pool(pool: Optional[Pool]) -> None:
    """Ends the pool's threads if nothing else uses them."""
    if pool is None:
        return
    with _lock:
        pool.users -= 1
        if pool.users:
            return
        _pools.remove(pool)
        pool.library.ek_pool_destroy(pool.address)
        if pool.library in _closing and all(one.library is not pool.library for one in _pools):
            _closing.remove(pool.library)
            _ctypes.dlclose(pool.library._handle)


def close_library(library: ctypes.CDLL) -> None:
    """Unloads a library, once no pool runs in it."""
    with _lock:
        if any(pool.library is library for pool in _pools):
            _closing.append(library)
        else:
            _ctypes.dlclose(library._handle)
