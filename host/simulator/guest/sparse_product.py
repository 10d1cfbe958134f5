"""Multiplies a sparse matrix with a vector by SciPy's CSR code, between simulation marks.

    python3 sparse_product.py M N FOLDER

Runs in a system root under qemu-user, with the wheels of SciPy and NumPy on PYTHONPATH. FOLDER has
the M x N matrix as raw values: s32 starts and columns, and values of the type named in dtype, like
those of the vector x; the product is written to y. The function behind the operator @ is called
directly, so that none of Python's time counts. Prints SciPy's version.
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


def main(m: int, n: int, folder: Path) -> None:
    numpy: Any = importlib.import_module("numpy")
    scipy: Any = importlib.import_module("scipy")
    tools: Any = importlib.import_module("scipy.sparse._sparsetools")
    dtype = (folder / "dtype").read_text()
    starts, columns = (numpy.fromfile(folder / name, "i4") for name in ("starts", "columns"))
    values, x = (numpy.fromfile(folder / name, dtype) for name in ("values", "x"))
    y = numpy.zeros(m, dtype)
    for begin, end in ((_WARM, _WARMED), (_BEGIN, _END)):
        y[:] = 0  # the function adds to y
        _mark(begin)
        tools.csr_matvec(m, n, starts, columns, values, x, y)
        _mark(end)
    y.tofile(folder / "y")
    print(f"version {scipy.__version__}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
