"""Core affinity of GEMM worker threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

_RUN = """
import json, os, time
import numpy as np
from edgekit.device import gemm

def threads():
    return set(os.listdir("/proc/self/task"))

a = np.ones((256, 256), np.float32)
gemm(a, a)  # whatever threads this takes to be built are gone, or known
before, found = threads(), []
for core in sorted(os.sched_getaffinity(0))[:2] * 2:
    everywhere = os.sched_getaffinity(0)
    gemm(a, a, threads=2)
    os.sched_setaffinity(0, {core})
    time.sleep(0.2)  # the worker sleeps
    gemm(a, a, threads=2)
    found.append([core, [sorted(os.sched_getaffinity(int(t))) for t in threads() - before]])
    os.sched_setaffinity(0, everywhere)
print(json.dumps(found))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_worker_that_slept_is_kept_off_the_core_of_its_caller() -> None:
    done = subprocess.run([sys.executable, "-c", _RUN], capture_output=True, text=True, check=True)
    cores = os.sched_getaffinity(0)
    found = json.loads(done.stdout)
    assert len(found) == 4
    for core, workers in found:
        assert workers == [sorted(cores - {core})]
