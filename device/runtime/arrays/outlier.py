"""Products of float activations with 8- or 4-bit weights, computing outlier channels separately.

Patent "data processing method, device, electronic equipment and storage medium": a channel of X
with a value beyond the threshold is multiplied in float; all others in int8, quantized per row at
run time. No calibration.
"""

from __future__ import annotations

import functools
import math
import numbers
import os
import threading
import time
from dataclasses import dataclass
from typing import Any, Sequence, Tuple

from edgekit.device.runtime.arrays import buffers, sampling
from edgekit.device.runtime.arrays.address import address_of
from edgekit.device.runtime.arrays.arguments import checked_threads, whole_number
from edgekit.device.runtime.arrays.buffers import Buffer
from edgekit.device.runtime.arrays.calls import OUTLIER, Call, dense_text
from edgekit.device.runtime.arrays.outlier_buffers import (
    activations_of,
    quantized,
    quantized_array,
    weights_of,
)
from edgekit.device.runtime.arrays.outlier_library import (
    PATHS,
    DenseRows,
    NotFinite,
    Options,
    OutlierLibrary,
    OutlierReport,
    Packed,
    reported,
)
from edgekit.device.runtime.arrays.sampling import TimedCall
from edgekit.device.runtime.errors import IncompatibleError, InputError
from edgekit.device.runtime.kernel_facts import OUTLIER_PADDING

THRESHOLD = 6.0
_ABSMAX = ("inlier", "row")
_MOST_ROWS = (1 << 31) - 1
_MOST_CHANNELS = 1 << 17  # a sum of more int8 products could overflow 32 bits
_ALONE = threading.Lock()  # the library's workspace and threads serve one product at a time


@dataclass(frozen=True)
class OutlierExplanation:
    """The path a product took, and why.

    path: "split", "int8" or "float". marks: uint8 [ceil(k / 8)], or bytes for an x that is no NumPy
    array: bit c % 8 of byte c // 8 is set for an outlier channel c; empty if outliers were not
    searched. report: bytes of working memory
    by part, and the costs that were compared.
    """

    path: str
    reason: str
    outliers: int
    marks: Any
    report: OutlierReport


class OutlierWeights:
    """W [k, n], int8 or 4-bit packed two per byte, laid out for the integer product at construction
    by one of the `from_` methods.

    There is no other copy: `dequantized` and the outlier rows of a product read the same memory.
    Immutable. shape: (k, n). group: number of consecutive k that share a scale per column.
    """

    __slots__ = ("_packed", "bits", "group", "shape")

    def __init__(
        self, shape: Sequence[int], groups: int, places: Tuple[int, int], bits: int
    ) -> None:
        """places: addresses of int8 values [k, n] and of float32 scales [groups, n]; both checked
        by the `from_` methods."""
        self.shape = (int(shape[0]), int(shape[1]))
        self.bits = bits
        k, n = self.shape
        self.group = k // groups if groups else 0
        with _ALONE:
            self._packed: Packed = _open_library(os.getpid()).pack(
                n, k, self.group, *places, bits == 4
            )

    @staticmethod
    def _of_arrays(values: Any, scale: Any, bits: int) -> OutlierWeights:
        places = values.ctypes.data, scale.ctypes.data
        return OutlierWeights(values.shape, len(scale), places, bits)

    @staticmethod
    def _of_buffers(values: Buffer, scale: Buffer) -> OutlierWeights:
        return OutlierWeights(values.shape, 1, (values.address, scale.address), 8)

    @staticmethod
    def from_float(w: Any) -> OutlierWeights:
        """Quantizes finite floats [k, n] to int8, with a scale per output channel (column) that
        maps the largest magnitude to 127. InputError otherwise. float32 also from another object
        with the buffer protocol, slowly: a board needs seconds for 1024 x 1024."""
        if not buffers.has_numpy(w):
            return OutlierWeights._of_buffers(*quantized(w, _MOST_CHANNELS))
        np = _import_numpy()
        w = _check_matrix(np, "w", w, ("float16", "float32", "float64"))
        with buffers.enough_memory("outlier weights", "a copy", w.shape):
            values, scale = quantized_array(np, w)
        return OutlierWeights._of_arrays(values, scale[None][: len(w)], 8)

    @staticmethod
    def from_int8(w: Any, scale: Any) -> OutlierWeights:
        """Makes weights from int8 [k, n] and positive float32 scales [n]: W = w * scale. Both are
        NumPy arrays, or other objects with the buffer protocol."""
        if not buffers.has_numpy(w, scale):
            return OutlierWeights._of_buffers(*weights_of(w, scale, _MOST_CHANNELS))
        np = _import_numpy()
        w = buffers.dense_array(np, _check_matrix(np, "w", w, ("int8",)), "outlier weights")
        scale = _convert_scales(np, scale, (w.shape[1],))
        return OutlierWeights._of_arrays(w, scale[None][: len(w)], 8)

    @staticmethod
    def from_int4(w: Any, scale: Any) -> OutlierWeights:
        """Makes weights from uint8 [k / 2, n], two values of -8 to 7 per byte with the even channel
        in the low half, and float32 scales [k / group, n]: one per group of k and column."""
        np = _import_numpy()
        w = _check_matrix(np, "w", w, ("uint8",))
        scale = buffers.as_array(np, scale, "outlier weights: scale")
        if scale.ndim != 2 or (not len(scale) and len(w)):
            raise InputError(
                "outlier weights: expected scales [groups, n] for 4-bit weights, "
                f"found {list(scale.shape)}"
            )
        k, groups = 2 * len(w), len(scale)
        if groups and k % groups:
            raise InputError(
                f"outlier weights: expected groups that divide k = {k}, found {groups} groups"
            )
        scale = _convert_scales(np, scale, (groups, w.shape[1]))
        with buffers.enough_memory("outlier weights", "a copy", w.shape):
            values = np.empty((len(w), 2, w.shape[1]), np.int8)
            values[:, 0] = (w << 4).astype(np.int8) >> 4
            values[:, 1] = w.astype(np.int8) >> 4
        return OutlierWeights._of_arrays(values.reshape(k, w.shape[1]), scale, 4)

    @property
    def bytes(self) -> int:
        """The weights' memory in bytes."""
        return self._packed.bytes

    def dequantized(self, channels: Any = None) -> Any:
        """Returns rows of W as float32 [channels, n]: the given channels, or all."""
        np = _import_numpy()
        k, n = self.shape
        given = np.arange(k) if channels is None else channels
        channels = buffers.as_array(np, given, "outlier weights: channels")
        if channels.ndim != 1 or (channels.size and channels.dtype.kind not in "iu"):
            raise InputError(f"outlier weights: expected integer channels, found {channels.dtype}")
        for wrong in channels[(channels < 0) | (channels >= k)][:1]:
            raise InputError(f"outlier weights: expected channels of 0 to {k - 1}, found {wrong}")
        channels = np.ascontiguousarray(channels, np.int32)
        rows = np.empty((len(channels), -(-n // OUTLIER_PADDING) * OUTLIER_PADDING), np.float32)
        if rows.size:
            library = _open_library(os.getpid())
            library.rows(self._packed, channels.ctypes.data, len(channels), rows.ctypes.data)
        return rows[:, :n]

    def _multiply(self, x: Any, options: Options, threads: int, explain: bool) -> Any:
        (m, k), n = x.shape, self.shape[1]
        plain, marks = isinstance(x, Buffer), b""
        if plain:
            y, result = buffers.fresh("f32", (m, n), "outlier_matmul")
            rows, at = DenseRows(x.address, m, k, x.dtype == "f16"), result.address
        else:
            y = buffers.empty_array(_import_numpy(), (m, n), "float32", "outlier_matmul")
            rows, at = _describe_rows(x), address_of(y)
        with _ALONE:
            library = _open_library(os.getpid())
            sampler, start = sampling.due(threads), time.perf_counter_ns()
            try:
                found = library.run(rows, self._packed, at, options, threads)
            except NotFinite as bad:
                raise _not_finite(x, bad) from None
            if sampler is not None:
                ns = time.perf_counter_ns() - start
                name = dense_text("s4" if self.bits == 4 else "s8", m, k, n)
                call = Call(OUTLIER, name, reported(found).path)
                sampling.record(sampler, TimedCall(call, ns))
            if not explain:
                return y
            report = reported(found)
            if options.path in ("auto", "split"):
                marks = library.marks_of_last(k)
        reason = explain_path(report, options, k)
        seen = marks if plain else _import_numpy().frombuffer(marks, "uint8")
        return y, OutlierExplanation(report.path, reason, report.outliers, seen, report)


def outlier_matmul(
    x: Any,
    w: OutlierWeights,
    threshold: float = THRESHOLD,
    *,
    absmax: str = "inlier",
    rows_per_scale: int = 1,
    check_finite: bool = True,
    threads: int = 1,
    path: str = "auto",
    explain: bool = False,
) -> Any:
    """x [m, k] · W → float32 [m, n]; with `explain` also an OutlierExplanation.

    x: float32 or float16, a NumPy array, or another object with the buffer protocol and the result
    a memoryview. A channel of x with a magnitude above `threshold` is an outlier. absmax:
    a row is scaled by its largest inlier, or with "row" by its largest value, as in the patent.
    rows_per_scale: number of rows that share a scale. check_finite: reject NaN and infinity;
    without it, their channels count as outliers. path: "split", "int8" (outliers are quantized
    too), "float" (W is dequantized), or "auto" for the lowest cost. Raises InputError for invalid
    arguments, and for the first value that is not finite.
    """
    if not isinstance(w, OutlierWeights):
        raise InputError(
            f"outlier_matmul: expected w to be OutlierWeights, found {type(w).__name__}; "
            "make it by OutlierWeights.from_float"
        )
    x = _checked_x(x) if buffers.has_numpy(x) else activations_of(x)
    if x.shape[1] != w.shape[0]:
        raise InputError(
            f"outlier_matmul: expected x of {w.shape[0]} channels, found {list(x.shape)}"
        )
    try:
        options = _parse_options(threshold, absmax, rows_per_scale, bool(check_finite), path)
        threads = _known_threads(threads)
    except TypeError:
        raise InputError(
            "outlier_matmul: expected options as numbers and strings, found a list or similar"
        ) from None
    return w._multiply(x, options, threads, explain)


@functools.lru_cache(maxsize=256, typed=True)
def _parse_options(
    threshold: Any, absmax: Any, rows_per_scale: Any, check_finite: bool, path: Any
) -> Options:
    _one_of("absmax", absmax, _ABSMAX)
    _one_of("path", path, PATHS)
    wanted = f"outlier_matmul: expected rows_per_scale of 1 to {_MOST_ROWS}"
    rows = whole_number(rows_per_scale, 1, _MOST_ROWS, wanted)
    return Options(_parse_threshold(threshold), path, absmax == "row", check_finite, rows)


@functools.lru_cache(maxsize=16, typed=True)
def _known_threads(threads: Any) -> int:
    return checked_threads(threads, "outlier_matmul")


def outlier_marks(x: Any, threshold: float = THRESHOLD, *, check_finite: bool = True) -> Any:
    """Returns the marks of x [m, k]: uint8 [ceil(k / 8)], bit c % 8 of byte c // 8 for channel
    c."""
    np = _import_numpy()
    x = _checked_x(x)
    k = x.shape[1]
    marks = np.zeros(-(-k // 32), np.uint32)
    options = Options(_parse_threshold(threshold), check_finite=bool(check_finite))
    try:
        _open_library(os.getpid()).mark(_describe_rows(x), k, options, marks.ctypes.data)
    except NotFinite as found:
        raise _not_finite(x, found) from None
    return marks.view(np.uint8)[: -(-k // 8)].copy()


def explain_path(report: OutlierReport, options: Options, k: int) -> str:
    """Why a product of k channels took its path."""
    if options.path != "auto":
        return f"{options.path} was requested"
    found = f"{report.outliers} of {k} channels beyond {options.threshold:g}"
    share = report.float_cost / report.split_cost if report.split_cost else 1.0
    if report.path == "float":
        return f"{found}: the float product is estimated at {1 / share:.2f} x the time of the split"
    costs = f"estimated {share:.2f} x as fast as the float product"
    return f"{found}: {'nothing to split' if report.path == 'int8' else 'split'}, {costs}"


def _not_finite(x: Any, found: NotFinite) -> InputError:
    row, channel = found.row, found.channel
    plain = isinstance(x, Buffer)
    value = buffers.element(x, row * x.shape[1] + channel) if plain else x[row, channel]
    return InputError(
        f"outlier_matmul: expected finite values, found {value} at row "
        f"{row}, channel {channel}; fix x or pass check_finite=False"
    )


@functools.lru_cache(maxsize=1)
def _open_library(process: int) -> OutlierLibrary:
    """Opened once per process: a forked process lacks its parent's threads."""
    del process
    from edgekit.device.runtime.arrays.find import find_library

    return OutlierLibrary(*find_library())


def _import_numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise IncompatibleError(
            "outlier_matmul: expected NumPy on this board, found none; install python3-numpy"
        ) from None
    return numpy


def _describe_rows(x: Any) -> DenseRows:
    return DenseRows(address_of(x), len(x), x.strides[0] // x.itemsize, x.itemsize == 2)


def _checked_x(x: Any) -> Any:
    """Returns x with contiguous channels, copied if necessary."""
    np = _import_numpy()
    if not isinstance(x, np.ndarray):
        raise InputError(f"outlier_matmul: expected x to be an array, found {type(x).__name__}")
    buffers.refuse_masked(x, "outlier_matmul: x")
    if x.ndim != 2 or x.dtype not in (np.float32, np.float16) or not x.dtype.isnative:
        raise InputError(
            "outlier_matmul: expected x of 2 dimensions, float32 or float16, "
            f"found {list(x.shape)} {x.dtype}"
        )
    contiguous = x.strides[1] == x.itemsize and x.strides[0] % x.itemsize == 0
    if contiguous and x.flags.aligned:
        return x
    return buffers.dense_array(np, x, "outlier_matmul")


def _parse_threshold(value: Any) -> float:
    good = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not good or not value > 0:
        raise InputError(f"outlier_matmul: expected a threshold above 0, found {value!r}")
    try:
        return float(value)
    except OverflowError:  # an integer beyond the range of floats
        return math.inf


def _one_of(name: str, value: Any, known: Any) -> None:
    if value not in known:
        raise InputError(
            f"outlier_matmul: expected {name} to be one of {', '.join(known)}, found {value!r}"
        )


def _check_matrix(np: Any, name: str, value: Any, types: Any) -> Any:
    buffers.refuse_masked(value, f"outlier weights: {name}")
    if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.name not in types:
        found = getattr(value, "dtype", type(value).__name__)
        shape = list(getattr(value, "shape", ()))
        raise InputError(
            f"outlier weights: expected {name} [k, n] of {' or '.join(types)}, "
            f"found {found} {shape}"
        )
    if len(value) > _MOST_CHANNELS:
        raise InputError(
            f"outlier weights: expected at most {_MOST_CHANNELS} channels, found {len(value)}; "
            "multiply in parts"
        )
    return value


def _convert_scales(np: Any, scale: Any, shape: Any) -> Any:
    """Converts scales of a shape to float32; InputError unless all are positive and finite."""
    scale = buffers.as_array(np, scale, "outlier weights: scale")
    if scale.shape != shape or scale.dtype.kind != "f":
        raise InputError(
            f"outlier weights: expected scales {list(shape)} of floats, "
            f"found {scale.dtype} {list(scale.shape)}"
        )
    what = "outlier weights: scale"
    # Infinity is rejected below.
    with np.errstate(over="ignore"), buffers.enough_memory(what, "a copy", scale.shape):
        scale = buffers.dense_array(np, scale.astype(np.float32), what)
    bad = ~(np.isfinite(scale) & (scale > 0))
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"outlier weights: expected scales above 0, found {scale[at]} at {list(at)}"
        )
    return scale
