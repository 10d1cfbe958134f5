"""Sparse matrices for benchmarks: from files, or generated from e.g. random:10000:0.01."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.device.runtime.arrays.sparse_input import DTYPES, Csr, checked_coo, checked_csr
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.errors import InputError

Pattern = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], tuple[int, int]]
_SUFFIXES = (".mtx", ".npz")
_LARGEST = 1 << 28  # non-zeros of a generated matrix
# The benchmarks' default matrices, in the syntax of `open_matrix`.
STANDARD = (
    "random:10000:0.001",
    "random:10000:0.01",
    "random:10000:0.1",
    "uniform:1000000:10",
    "power:100000:10",
    "banded:1000000:5",
    "poisson2:1000",
    "poisson3:100",
    "dense:4096:1024:0.1",
    "dense:4096:1024:0.3",
)

# Smaller ones of the same classes, for estimates: seconds each.
ESTIMATED = (
    "random:10000:0.001",
    "random:3000:0.01",
    "random:1000:0.1",
    "uniform:20000:10",
    "power:20000:10",
    "banded:50000:5",
    "poisson2:200",
    "dense:1024:512:0.1",
    "dense:1024:512:0.3",
)

# Those that settings are estimated for: stencils, graphs, pruned layers, and pruned blocks.
TUNED = (
    *("banded:300:3", "banded:300:9", "banded:1000:5", "banded:3000:5", "banded:3000:21"),
    *("banded:10000:3", "banded:10000:9", "banded:20000:5", "banded:30000:3"),
    *("poisson2:20", "poisson2:50", "poisson2:80", "poisson2:100", "poisson2:120", "poisson2:150"),
    *("poisson3:8", "poisson3:15", "poisson3:22"),
    *("random:300:0.05", "random:300:0.3", "random:1000:0.01", "random:1000:0.05"),
    *("random:3000:0.003", "random:3000:0.01", "random:6000:0.002", "random:10000:0.0005"),
    *("uniform:1000:4", "uniform:3000:10", "uniform:10000:4", "uniform:10000:10"),
    *("power:300:8", "power:1000:8", "power:3000:8", "power:3000:20", "power:5000:8"),
    "power:10000:6",
    *("dense:64:576:0.1", "dense:128:256:0.3", "dense:256:256:0.1", "dense:256:1024:0.1"),
    *("dense:512:512:0.05", "dense:1000:512:0.1", "dense:512:2048:0.05", "dense:128:1152:0.3"),
    *("blocks:256:256:4:0.2", "blocks:512:512:8:0.1", "blocks:1024:256:4:0.1"),
    "blocks:128:1024:16:0.2",
)


def open_matrix(name: str, dtype: str = "float32") -> Csr:
    """Reads a .mtx or .npz file, or generates a matrix of a class. Raises InputError.

    Classes: random:N:DENSITY, uniform:N:PER_ROW, power:N:MEAN, banded:N:DIAGONALS, poisson2:SIDE,
    poisson3:SIDE, dense:ROWS:COLUMNS:DENSITY, blocks:ROWS:COLUMNS:SIDE:DENSITY.
    """
    path = Path(name)
    try:
        if path.suffix.lower() in _SUFFIXES:
            return _from_file(path, dtype)
        word, *numbers = name.split(":")
        make, wanted = _CLASSES[word]
        if len(numbers) != wanted:
            raise KeyError
        rows, cols, shape = make(*(float(number) for number in numbers))
    except (KeyError, ValueError):
        raise InputError(
            f"{name}: expected a .mtx or .npz file, or a class such as {', '.join(STANDARD)}, "
            "found neither"
        ) from None
    except DeviceInputError as error:
        raise InputError(str(error)) from None
    values = _random_values(len(rows), dtype)
    return checked_coo(rows, cols, values, shape)


def _from_file(path: Path, dtype: str) -> Csr:
    from edgekit.device.runtime.arrays.matrix_market import read_matrix_market
    from edgekit.device.runtime.arrays.sparse_file import read_sparse_npz

    if path.suffix.lower() == ".mtx":
        entries = read_matrix_market(path, dtype)
        return checked_coo(entries.rows, entries.cols, entries.values, entries.shape)
    indptr, indices, data, shape = read_sparse_npz(path)
    if data.dtype.name not in DTYPES or data.dtype.name != dtype:
        data = data.astype(dtype)
    return checked_csr(indptr, indices, data, shape)


def _random_values(count: int, dtype: str) -> Any:
    rng = np.random.default_rng(1)
    if dtype == "int8":
        return rng.integers(-128, 128, count, np.int8)
    return rng.random(count, np.float32).astype(dtype)


def _checked_size(count: float) -> int:
    if not 0 <= count <= _LARGEST:
        raise InputError(f"expected a matrix of up to {_LARGEST} non-zeros, found {count:g}")
    return int(count)


def _dense_pattern(rows: float, cols: float, density: float) -> Pattern:
    wanted = _checked_size(rows * cols * min(max(density, 0), 1))
    rng = np.random.default_rng(2)
    places = rng.choice(int(rows) * int(cols), wanted, replace=False)
    return places // int(cols), places % int(cols), (int(rows), int(cols))


def _block_pattern(rows: float, cols: float, side: float, density: float) -> Pattern:
    """Dense blocks of side x side at random places, as pruning by blocks leaves them."""
    size = int(side)
    across, down, shape = _dense_pattern(rows // size, cols // size, density)
    of_block = np.arange(size * size)
    whole_rows = across[:, None] * size + of_block // size
    whole_cols = down[:, None] * size + of_block % size
    return whole_rows.ravel(), whole_cols.ravel(), (shape[0] * size, shape[1] * size)


def _random_pattern(n: float, density: float) -> Pattern:
    return _dense_pattern(n, n, density)


def _uniform_pattern(n: float, per_row: float) -> Pattern:
    rng = np.random.default_rng(3)
    count = _checked_size(n * per_row)
    rows = np.repeat(np.arange(int(n)), int(per_row))
    return rows, rng.integers(0, int(n), count), (int(n), int(n))


def _power_law_pattern(n: float, mean: float) -> Pattern:
    """Pareto row lengths, with low columns more frequent, as in a web graph."""
    rng = np.random.default_rng(4)
    lengths = rng.pareto(1.2, int(n)) + 0.3
    lengths = np.minimum(lengths * mean / lengths.mean(), n / 4).astype(np.int64) + 1
    rows = np.repeat(np.arange(int(n)), lengths)
    cols = (rng.random(_checked_size(len(rows))) ** 3 * n).astype(np.int64)
    places = np.unique(rows * int(n) + cols)
    return places // int(n), places % int(n), (int(n), int(n))


def _stencil_pattern(n: int, offsets: dict[int, np.ndarray[Any, Any]]) -> Pattern:
    """Diagonals of an n x n matrix: each offset with a mask of the rows that have it."""
    rows = [np.flatnonzero(kept) for kept in offsets.values()]
    cols = [r + offset for r, offset in zip(rows, offsets, strict=True)]
    return np.concatenate(rows), np.concatenate(cols), (n, n)


def _banded_pattern(n: float, diagonals: float) -> Pattern:
    size, half = int(n), int(diagonals) // 2
    _checked_size(n * diagonals)
    at = np.arange(size)
    offsets = {o: (at + o >= 0) & (at + o < size) for o in range(-half, half + 1)}
    return _stencil_pattern(size, offsets)


def _poisson_pattern(side: float, dimensions: int) -> Pattern:
    s = int(side)
    size = s**dimensions
    _checked_size(size * (2 * dimensions + 1))
    at = np.arange(size)
    offsets = {0: np.ones(size, bool)}
    for d in range(dimensions):
        step = s**d
        place = at // step % s
        offsets[-step], offsets[step] = place > 0, place < s - 1
    return _stencil_pattern(size, offsets)


_CLASSES: dict[str, tuple[Callable[..., Pattern], int]] = {
    "random": (_random_pattern, 2),
    "dense": (_dense_pattern, 3),
    "blocks": (_block_pattern, 4),
    "uniform": (_uniform_pattern, 2),
    "power": (_power_law_pattern, 2),
    "banded": (_banded_pattern, 2),
    "poisson2": (lambda side: _poisson_pattern(side, 2), 1),
    "poisson3": (lambda side: _poisson_pattern(side, 3), 1),
}
