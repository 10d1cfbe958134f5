"""Runs on a board without NumPy: products of each kind, all of them sampled.

python3 sampled_products.py RUNTIME.pyz COUNT M K N
"""

from __future__ import annotations

import functools
import os
import sys
from array import array
from pathlib import Path

sys.path.insert(0, os.path.realpath(sys.argv[1]))

from edgekit_runtime import OutlierWeights, SparseMatrix, gemm, nna_matmul, outlier_matmul

from edgekit.device.runtime.agent.call_sampler import call_sampler_for
from edgekit.device.runtime.agent.sampler import SamplingPace
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.arrays.sampling import use_sampler

release = Path(sys.path[0]).parent
store = Store(release.parent.parent)


@functools.cache
def sampler(threads: int):
    return call_sampler_for(store, store.manifest(release.name), threads, SamplingPace(1, 1e9))


def matrix(code: str, rows: int, columns: int) -> memoryview:
    values = array(code, (i * 37 % 101 - 50 for i in range(rows * columns)))
    return memoryview(values).cast("B").cast(code, [rows, columns])


use_sampler(sampler)
count, m, k, n = map(int, sys.argv[2:])
a, b, b8 = matrix("f", m, k), matrix("f", k, n), matrix("b", k, n)
sparse = SparseMatrix.from_csr(
    array("q", range(0, 2 * k + 1, 2)), array("i", [0, 1] * k), array("f", [1.0] * 2 * k), (k, k)
)
weights = OutlierWeights.from_int8(b8, array("f", [1.0] * n))
x = array("f", [1.0] * k)
for _ in range(count):
    gemm(a, b)
for _ in range(3):
    gemm(a, b, threads=2)
    sparse.matvec(x)
    outlier_matmul(a, weights, 1e9)
    nna_matmul(matrix("b", m, k), b8)
how = gemm(a, b, explain=True)[1].method
print(f"{how.mr}x{how.nr} in {how.mc}x{how.kc}x{how.nc}")
for threads in (1, 2):
    if found := sampler(threads):
        found.close()
