"""Products of NumPy arrays or plain buffers with this machine's GEMM library."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Mapping, NamedTuple, Optional, Tuple

from edgekit.device.runtime.arrays import buffers, calls, sampling
from edgekit.device.runtime.arrays.arguments import checked_threads
from edgekit.device.runtime.arrays.gemm_library import (
    DTYPES,
    HALF,
    GemmLibrary,
    GemmMethod,
    Operand,
    Product,
)
from edgekit.device.runtime.arrays.gemm_trial import GemmTrials
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.device.runtime.errors import InputError

_PAIRS = {
    ("float32", "float32"): "f32",
    ("int8", "int8"): "s8",
    ("uint8", "int8"): "u8",
    ("float16", "float16"): HALF,
}
_PLAIN_PAIRS = {
    ("f32", "f32"): "f32",
    ("s8", "s8"): "s8",
    ("u8", "s8"): "u8",
    (HALF, HALF): HALF,
}
_SUMS = {"f32": "f32", "s8": "s32", "u8": "s32", HALF: HALF}
_LARGEST = (1 << (8 * ctypes.sizeof(ctypes.c_long) - 1)) - 1  # sizes are C longs
_ALONE = threading.Lock()  # the library's scratch and threads serve one product at a time
_TRIALS = GemmTrials()
assert set(_SUMS) == {*DTYPES, HALF}


@dataclass(frozen=True)
class GemmExplanation:
    """The method of a product, and the rule that chose it: "exact", "relaxed:" and the feature that
    the row shares, or "analytic". row: m, k and n of the product on which the nearest row was
    measured; None if no row has anything in common. reason: why, as a sentence."""

    rule: str
    row: Optional[Tuple[int, int, int]]
    method: GemmMethod
    reason: str


def gemm(
    a: Any,
    b: Any,
    threads: int = 1,
    *,
    out: Optional[Any] = None,
    bias: Optional[Any] = None,
    explain: bool = False,
) -> Any:
    """a [m, k] · b [k, n] (+ bias [n]) → [m, n], with the knowledge base's method; with `explain`
    also a GemmExplanation.

    float32 · float32 → float32; int8 · int8 and uint8 · int8 → int32, exact modulo 2^32. On cores
    that compute in half precision also float16 · float16 → float16: sums of 128 products in
    float16, added up in float32, as in models. Operands are NumPy arrays of any strides, or other
    objects with the buffer protocol, whose result is a memoryview (of float16: of its bits, "H").
    bias: of the result's type. out: receives the result and is returned. Raises
    InputError for mismatched shapes or types, IncompatibleError without a library.
    """
    began, threads = time.perf_counter_ns(), checked_threads(threads, "gemm")
    if buffers.has_numpy(a, b, out, bias):
        product, result = _of_arrays(a, b, out, bias)
    else:
        product, result = _of_buffers(a, b, out, bias)
    why = _compute(product, threads, explain, began)
    found = result.finish()
    return (found, why) if explain else found


class _Result(NamedTuple):
    """The returned `value`; `target` is copied to it first if the library could not write there.
    `owners` keep the product's memory alive."""

    value: Any
    target: Any
    owners: Any

    def finish(self) -> Any:
        if self.target is not self.value:
            self.value[...] = self.target
        return self.value


def _compute(
    product: Product, threads: int, explain: bool, began: int
) -> Optional[GemmExplanation]:
    product, turned = _by_rows(product)
    shape = product.dtype, product.m, product.n, product.k, threads
    with _ALONE:
        library = _open_library(os.getpid())
        if product.dtype == HALF and not library.computes_half:
            raise _bad_types(_PAIRS, "float16", "float16")
        how, rule = library.lookup(*shape)
        if product.m and product.n:
            _run(library, product, how, threads, began)
        return _explanation(library, shape, how, rule, turned) if explain else None


def _by_rows(product: Product) -> Tuple[Product, bool]:
    """The product whose C has rows: for one with columns the transposed one, b' . a', for which the
    table then answers as well; and whether it is that. Not of types that differ."""
    p, columns = product, product.c.row == 1 and product.c.col != 1
    if not columns or p.m < 2 or p.n < 2 or p.dtype not in ("f32", "s8"):
        return p, False
    a, b, c = (Operand(each.address, each.col, each.row) for each in (p.b, p.a, p.c))
    return Product(p.dtype, p.n, p.m, p.k, a, b, c, p.bias, not p.bias_per_row), True


def _run(library: GemmLibrary, product: Product, how: GemmMethod, threads: int, began: int) -> None:
    """`began`: when the call did. Products of float16 are not sampled."""
    if product.dtype == HALF:
        library.prepare_half(product, how, threads)()
        return
    sampler, p = sampling.due(threads), product
    if sampler is None:
        library.prepare(product, how, threads)()
        return
    call = calls.Call(calls.GEMM, calls.dense_text(p.dtype, p.m, p.k, p.n), calls.method_text(how))
    start = time.perf_counter_ns()
    trial = _TRIALS.next(library, p, how, threads) if sampler.tries(call) else None
    if trial is not None and trial.goes_first:
        trial.run()
    before = time.perf_counter_ns()
    run = library.prepare(product, how, threads)
    ns = sampling.nanoseconds(run)
    after = time.perf_counter_ns()
    if trial is not None and not trial.goes_first:
        trial.run()
    found = trial.compare(how, ns) if trial is not None else ()
    added = before - start + time.perf_counter_ns() - after
    whole = start - began + after - before
    sampling.record(sampler, sampling.TimedCall(call, ns, whole, found, added))


def _explanation(
    library: GemmLibrary, shape: Any, how: GemmMethod, rule: str, turned: bool
) -> GemmExplanation:
    """`turned`: of the transposed product, as its reason then says."""
    found = _explanation_by_rows(library, shape, how, rule)
    if not turned:
        return found
    return replace(
        found, reason=f"{found.reason}; of the transposed product, as the result has columns"
    )


def _explanation_by_rows(
    library: GemmLibrary, shape: Any, how: GemmMethod, rule: str
) -> GemmExplanation:
    row = library.row_shape(*shape)
    if row is None:
        return GemmExplanation("analytic", None, how, "no row shares the scale, m, n or k")
    of = f"the row of {row[0]} x {row[1]} . {row[1]} x {row[2]}"
    if rule == "analytic":
        return GemmExplanation(
            rule, row, how, f"{of} is the nearest, and has no method that applies here"
        )
    analytic = ", with the analytic method" if how == library.default(*shape) else ""
    return GemmExplanation(rule, row, how, f"{rule}: {of}{analytic}")


def _of_arrays(a: Any, b: Any, out: Any, bias: Any) -> Tuple[Product, _Result]:
    """The product of NumPy arrays."""
    import numpy as np

    for name, value in (("a", a), ("b", b), ("out", out), ("bias", bias)):
        buffers.refuse_masked(value, f"gemm: {name}")
    dtype = _check_operands(np, a, b)
    m, n, k = _check_sizes(a.shape, b.shape)
    result = np.dtype(BY_NAME[_SUMS[dtype]].npy)
    if bias is not None:
        _check_like("bias", bias, (n,), result)
        bias = buffers.dense_array(np, bias, "gemm")
    if out is not None:
        _check_like("out", out, (m, n), result)
        if not out.flags.writeable:
            raise InputError("gemm: expected out to be writable, found a read-only array")
        if _overlaps_itself(out):
            raise InputError(
                "gemm: expected out with memory for each element, found strides "
                f"{list(out.strides)}"
            )
    direct = _takes_directly(np, out, (a, b, bias))
    a, b = _make_aligned(np, a), _make_aligned(np, b)
    if dtype == HALF:  # reads rows of a, and writes rows
        a, direct = _with_rows(np, a), direct and out.strides[1] == out.itemsize
    target: Any = out if direct else buffers.empty_array(np, (m, n), result, "gemm")
    at = 0 if bias is None else bias.ctypes.data
    product = Product(dtype, m, n, k, _to_operand(a), _to_operand(b), _to_operand(target), at)
    return product, _Result(target if out is None else out, target, (a, b, bias))


def _of_buffers(a: Any, b: Any, out: Any, bias: Any) -> Tuple[Product, _Result]:
    """The product of objects with the buffer protocol."""
    left, right = buffers.readable(a, "gemm: a"), buffers.readable(b, "gemm: b")
    dtype = _PLAIN_PAIRS.get((left.dtype, right.dtype))
    if dtype is None:
        raise _bad_types(_PLAIN_PAIRS, left.dtype, right.dtype)
    hints = buffers.shape_hint(left), buffers.shape_hint(right)
    m, n, k = _check_sizes(left.shape, right.shape, hints)
    result, at = _SUMS[dtype], 0
    if bias is not None:
        bias = buffers.readable(bias, "gemm: bias")
        at = buffers.checked(bias, result, (n,), "gemm: bias").address
    if out is None:
        out, target = buffers.fresh(result, (m, n), "gemm")
    else:
        target = buffers.writable(out, "gemm: out", BY_NAME[result].bytes)
        buffers.checked(target, result, (m, n), "gemm: out")
        if any(each and buffers.overlap(target, each) for each in (left, right, bias)):
            raise InputError(
                "gemm: expected out to be separate from a, b and bias, found shared memory"
            )
    lines = (Operand(left.address, k, 1), Operand(right.address, n, 1))
    product = Product(dtype, m, n, k, *lines, Operand(target.address, n, 1), at)
    return product, _Result(out, out, (left, right, target, bias))


@functools.lru_cache(maxsize=1)
def _open_library(process: int) -> GemmLibrary:
    """Opened once per process: a forked process lacks its parent's threads."""
    del process
    from edgekit.device.runtime.arrays.find import find_library

    return GemmLibrary(*find_library())


def _check_operands(np: Any, a: Any, b: Any) -> str:
    """Returns the product's element type."""
    for name, value in (("a", a), ("b", b)):
        if not isinstance(value, np.ndarray):
            raise InputError(f"gemm: expected {name} to be an array, found {type(value).__name__}")
    dtype = _PAIRS.get((a.dtype.name, b.dtype.name))
    if dtype is None or not (a.dtype.isnative and b.dtype.isnative):
        raise _bad_types(_PAIRS, a.dtype, b.dtype)
    return dtype


def _bad_types(pairs: Mapping[Tuple[str, str], str], a: Any, b: Any) -> InputError:
    known = ", ".join(f"{x} and {y}" for (x, y), dtype in pairs.items() if dtype != HALF)
    return InputError(f"gemm: expected a and b of {known}, found {a} and {b}; convert them first")


def _check_sizes(a: Any, b: Any, hints: Tuple[str, str] = ("", "")) -> Tuple[int, int, int]:
    """Returns m, n and k for the shapes of a and b; `hints` end the errors of those that are no
    matrices."""
    for name, shape, hint in zip("ab", (a, b), hints):
        if len(shape) != 2:
            raise InputError(f"gemm: expected {name} of 2 dimensions, found {list(shape)}{hint}")
        if max(shape) > _LARGEST:
            raise InputError(
                f"gemm: expected sizes up to {_LARGEST}, found {name} of {list(shape)}"
            )
    if a[1] != b[0]:
        raise InputError(
            f"gemm: expected as many columns of a as rows of b, found {list(a)} and {list(b)}"
        )
    return a[0], b[1], a[1]


def _check_like(name: str, value: Any, shape: Any, dtype: Any) -> None:
    found = getattr(value, "shape", None), getattr(value, "dtype", None)
    if found != (shape, dtype):
        actual = type(value).__name__
        if found[0] is not None:
            actual = f"{found[1] or actual} {list(found[0])}"
        raise InputError(f"gemm: expected {name} of {dtype} {list(shape)}, found {actual}")


def _overlaps_itself(out: Any) -> bool:
    """Whether two elements share memory, as with a stride of 0."""
    if not out.size:  # NumPy gives empty arrays strides of 0
        return False
    span = out.itemsize  # bytes of the dimensions so far
    for stride, extent in sorted((abs(s), n) for s, n in zip(out.strides, out.shape) if n > 1):
        if stride < span:
            return True
        span += stride * (extent - 1)
    return False


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
    return array if array.flags.aligned and whole else buffers.dense_array(np, array, "gemm")


def _with_rows(np: Any, array: Any) -> Any:
    """Returns the array, or a copy if the elements of a row are not adjacent."""
    adjacent = array.shape[1] < 2 or array.strides[1] == array.itemsize
    return array if adjacent else buffers.dense_array(np, array, "gemm")


def _to_operand(array: Any) -> Operand:
    row, col = (stride // array.itemsize for stride in array.strides)
    return Operand(array.ctypes.data, row, col)
