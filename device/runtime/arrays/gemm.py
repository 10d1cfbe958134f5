"""Products of NumPy arrays with this machine's GEMM library."""

from __future__ import annotations

import functools
import os
import threading
from typing import Any, Optional

from edgekit.device.runtime.arrays.gemm_library import DTYPES, GemmLibrary, Operand, Product
from edgekit.device.runtime.errors import IncompatibleError, InputError

_PAIRS = {
    ("float32", "float32"): "f32",
    ("int8", "int8"): "s8",
    ("uint8", "int8"): "u8",
}
_RESULT = {"f32": "float32", "s8": "int32", "u8": "int32"}
_MOST_THREADS = 256
_ALONE = threading.Lock()  # the library's scratch and threads serve one product at a time
assert set(_RESULT) == set(DTYPES)


def gemm(
    a: Any, b: Any, threads: int = 1, *, out: Optional[Any] = None, bias: Optional[Any] = None
) -> Any:
    """a [m, k] · b [k, n] (+ bias [n]) → [m, n], with the knowledge base's method.

    float32 · float32 → float32; int8 · int8 and uint8 · int8 → int32, exact modulo 2^32. Arrays may
    be views with any strides. bias: of the result's type. out: receives the result and is returned.
    Raises InputError for mismatched shapes or types, IncompatibleError if NumPy or the library is
    missing.
    """
    np = _import_numpy()
    dtype = _check_operands(np, a, b, threads)
    (m, k), n = a.shape, b.shape[1]
    result = np.dtype(_RESULT[dtype])
    if bias is not None:
        _check_like("bias", bias, (n,), result)
        bias = np.ascontiguousarray(bias)
    if out is not None:
        _check_like("out", out, (m, n), result)
        if not out.flags.writeable:
            raise InputError("gemm: expected out to be writable, found a read-only array")
    direct = _takes_directly(np, out, (a, b, bias))
    target: Any = out if direct else _allocate_result(np, (m, n), result)
    if target.size:
        a, b = _make_aligned(np, a), _make_aligned(np, b)
        at = 0 if bias is None else bias.ctypes.data
        product = Product(dtype, m, n, k, _to_operand(a), _to_operand(b), _to_operand(target), at)
        with _ALONE:
            library = _open_library(os.getpid())
            how, _ = library.lookup(dtype, m, n, k, threads)
            library.run(product, how, threads)
    if out is not None and target is not out:
        out[...] = target
    return target if out is None else out


def _import_numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise IncompatibleError(
            "gemm: expected NumPy on this board, found none; install python3-numpy, "
            "or call edgekit.device.runtime.arrays.gemm_library with addresses"
        ) from None
    return numpy


@functools.lru_cache(maxsize=1)
def _open_library(process: int) -> GemmLibrary:
    """Opened once per process: a forked process lacks its parent's threads."""
    del process
    from edgekit.device.runtime.arrays.find import find_library

    return GemmLibrary(*find_library())


def _check_operands(np: Any, a: Any, b: Any, threads: int) -> str:
    """Returns the product's element type."""
    for name, value in (("a", a), ("b", b)):
        if not isinstance(value, np.ndarray):
            raise InputError(f"gemm: expected {name} to be an array, found {type(value).__name__}")
        if value.ndim != 2:
            raise InputError(
                f"gemm: expected {name} of 2 dimensions, found {_format_shape(value.shape)}"
            )
    dtype = _PAIRS.get((a.dtype.name, b.dtype.name))
    if dtype is None or not (a.dtype.isnative and b.dtype.isnative):
        pairs = ", ".join(f"{x} and {y}" for x, y in _PAIRS)
        raise InputError(f"gemm: expected a and b of {pairs}, found {a.dtype} and {b.dtype}")
    if a.shape[1] != b.shape[0]:
        raise InputError(
            f"gemm: expected as many columns of a as rows of b, found {_format_shape(a.shape)} "
            f"and {_format_shape(b.shape)}"
        )
    if not isinstance(threads, int) or not 1 <= threads <= _MOST_THREADS:
        raise InputError(f"gemm: expected 1 to {_MOST_THREADS} threads, found {threads!r}")
    return dtype


def _check_like(name: str, value: Any, shape: Any, dtype: Any) -> None:
    found = getattr(value, "shape", None), getattr(value, "dtype", None)
    if found != (shape, dtype):
        actual = _format_shape(found[0]) if found[0] is not None else type(value).__name__
        raise InputError(
            f"gemm: expected {name} of {dtype} {_format_shape(shape)}, "
            f"found {found[1] or ''} {actual}"
        )


def _takes_directly(np: Any, out: Any, others: Any) -> bool:
    """Whether the library can write to `out`: dense rows or columns that do not overlap its
    inputs."""
    if out is None or not out.flags.aligned:
        return False
    rows, columns = (stride // out.itemsize for stride in out.strides)
    m, n = out.shape
    dense = (columns == 1 and rows >= n) or (rows == 1 and columns >= m)
    return dense and not any(o is not None and np.may_share_memory(out, o) for o in others)


def _make_aligned(np: Any, array: Any) -> Any:
    """Returns the array, or a copy if its strides are not multiples of the element size."""
    whole = all(stride % array.itemsize == 0 for stride in array.strides)
    return array if array.flags.aligned and whole else np.ascontiguousarray(array)


def _to_operand(array: Any) -> Operand:
    row, col = (stride // array.itemsize for stride in array.strides)
    return Operand(array.ctypes.data, row, col)


def _allocate_result(np: Any, shape: Any, dtype: Any) -> Any:
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError):
        raise InputError(
            f"gemm: expected memory for a result of {_format_shape(shape)}, found too little; "
            "multiply in parts"
        ) from None


def _format_shape(shape: Any) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
