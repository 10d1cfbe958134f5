"""Threads that all models of a process share, whatever their releases."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import threading
from typing import List, Optional, Sequence, Tuple

from edgekit.device.runtime.agent.placement import on_cores
from edgekit.device.runtime.shared_library import start_pool

# Process (threads do not survive a fork), layout of the pool, threads, cores of the workers.
_Key = Tuple[int, int, int, Tuple[int, ...]]


class Pool:
    """A thread pool at `address` that any number of inferences may use at the same time: it works
    for one, and the others compute alone. It runs in `library`, which stays loaded."""

    def __init__(self, key: _Key, library: ctypes.CDLL, address: int) -> None:
        self.key, self.library, self.address = key, library, address
        self.users = 1


_lock = threading.Lock()
_pools: List[Pool] = []
_closing: List[ctypes.CDLL] = []  # unloaded when their pools have ended


def share_pool(library: ctypes.CDLL, threads: int, cores: Sequence[int]) -> Optional[Pool]:
    """A pool of `threads`, including the caller, whose other threads are pinned to `cores`, if any;
    None for one thread. IncompatibleError if the threads cannot be started."""
    if threads == 1:
        return None
    layout = int(library.ek_pool_layout()) if hasattr(library, "ek_pool_layout") else 0
    key = (os.getpid(), layout, threads, tuple(cores))
    with _lock:
        for pool in _pools:
            if layout and pool.key == key:
                pool.users += 1
                return pool
        with on_cores(cores):
            address = start_pool(library, threads)
        assert address is not None
        _pools.append(Pool(key, library, address))
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
