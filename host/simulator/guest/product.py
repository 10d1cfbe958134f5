"""Multiplies two matrices of floats with NumPy's OpenBLAS, between simulation marks.

    python3 product.py M N K FOLDER

Runs in a system root under qemu-user, with NumPy's wheel on PYTHONPATH. FOLDER has the matrices as
raw f32 values in a, M x K, and b, K x N; their product is written to c. The environment sets
OpenBLAS's threads and kernels. Prints NumPy's version.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path
from typing import Any

_BEGIN, _END, _WARM, _WARMED = 777001, 777002, 777004, 777005


def _mark(number: int) -> None:
    with contextlib.suppress(OSError):  # no such descriptor exists: the call itself is the mark
        os.close(number)


def main(m: int, n: int, k: int, folder: Path) -> None:
    numpy: Any = importlib.import_module("numpy")
    a = numpy.fromfile(folder / "a", "f4").reshape(m, k)
    b = numpy.fromfile(folder / "b", "f4").reshape(k, n)
    c = numpy.empty((m, n), "f4")
    numpy.dot(a, b, out=c)
    for begin, end in ((_WARM, _WARMED), (_BEGIN, _END)):
        _mark(begin)
        numpy.dot(a, b, out=c)
        _mark(end)
    c.tofile(folder / "c")
    print(f"version {numpy.__version__}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
