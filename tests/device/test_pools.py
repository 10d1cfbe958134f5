"""Threads that the models of a process share, in copies of a real library."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_START = """
import ctypes, json, os, sys, threading
from pathlib import Path
from edgekit.device.runtime.pools import close_library, leave_pool, share_pool
from edgekit.device.runtime.shared_library import open_library

one, two = (open_library(Path(name)) for name in sys.argv[1:])
def threads():
    return len(os.listdir("/proc/self/task"))
def say(*found):
    print(json.dumps(found))
"""
_SHARED = """
a = share_pool(one, 3, ())
b = share_pool(two, 3, ())
assert a is b and share_pool(one, 1, ()) is None
say(threads())
leave_pool(a)
close_library(one)
two.ek_pool_threads.argtypes = [ctypes.c_void_p]
say(threads(), two.ek_pool_threads(b.address))
leave_pool(b)
say(threads(), sys.argv[1] in Path("/proc/self/maps").read_text())
"""
_OTHERS = """
cores = tuple(os.sched_getaffinity(0))[:1]
pools = [share_pool(one, 3, ()), share_pool(two, 2, ()), share_pool(two, 3, cores)]
say(threads(), len({pool.address for pool in pools}))
if os.fork() == 0:
    own = share_pool(two, 3, ())
    say(threads(), own is pools[0])
    os._exit(0)
os.wait()
"""
_PRODUCTS = """
from edgekit.device.runtime.pools import LibraryPools
cores = tuple(os.sched_getaffinity(0))[:1]
model, products = share_pool(one, 3, cores), LibraryPools(two)
say(products.address(3) == model.address, products.address(1), threads())
leave_pool(model)
say(threads())
products.leave()
say(threads())
os.sched_setaffinity(0, cores)  # a pool of before would leave these cores
pinned = LibraryPools(one)
elsewhere = products.address(3)
os.sched_setaffinity(0, range(1024))
say(pinned.address(3) == elsewhere)
"""
_AT_ONCE = """
from collections import Counter
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_long, ctypes.c_long)
pool = share_pool(one, 3, ())
def work(library, wrong):
    seen = Counter()
    task = TASK(lambda _, start, end: seen.update(range(start, end)))
    parallel = library.ek_parallel
    parallel.argtypes = [ctypes.c_void_p, TASK, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    for turn in range(1, 51):
        parallel(pool.address, task, None, 40, 1)
        if seen != Counter(dict.fromkeys(range(40), turn)):
            wrong.append(turn)
wrong = []
callers = [threading.Thread(target=work, args=(each, wrong)) for each in (one, two) * 2]
for each in callers:
    each.start()
for each in callers:
    each.join()
say(len(wrong))
"""


def _said(tmp_path: Path, program: str) -> list[list[int]]:
    from edgekit.host.local_kernels import local_library

    copies = [str(shutil.copy(local_library(), tmp_path / name)) for name in ("one.so", "two.so")]
    command = [sys.executable, "-c", _START + program, *copies]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (_SHARED, [[3], [3, 3], [1, False]]),
        (_OTHERS, [[6, 3], [3, False]]),
        (_PRODUCTS, [[True, None, 3], [3], [1], [False]]),
        (_AT_ONCE, [[0]]),
    ],
    ids=["shared", "others", "products", "at once"],
)
def test_models_of_a_process_share_threads(
    tmp_path: Path, program: str, said: list[list[int]]
) -> None:
    assert _said(tmp_path, program) == said
