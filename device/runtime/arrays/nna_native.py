"""Binds the kernels library's native NNA emulator (kernels/nna/nna.h); no NumPy needed."""

from __future__ import annotations

import ctypes
from dataclasses import astuple, dataclass
from typing import Any, Sequence, Tuple

from edgekit.device.runtime.arrays.nna_account import CAUSES, OPERATIONS, Counters, NnaEvent
from edgekit.device.runtime.arrays.nna_chip import NnaChip
from edgekit.device.runtime.errors import IncompatibleError


@dataclass(frozen=True)
class MatmulShape:
    """[m, k] . [k, n]."""

    m: int
    k: int
    n: int


@dataclass(frozen=True)
class ConvShape:
    """Groups of 32 channels and spatial dims of x (padding included) and of the sums."""

    in_groups: int
    height: int
    width: int
    out_groups: int
    out_height: int
    out_width: int
    stride: int
    depthwise: int = 0


@dataclass(frozen=True)
class PointwiseShape:
    """Points, and groups of 32 channels of x and of the sums."""

    points: int
    in_groups: int
    out_groups: int


_CHIP = (
    "output_points",
    "weight_sets",
    "mac_cycles",
    "load_latency",
    "add_latency",
    "write_latency",
    "result_latency",
)


class _Chip(ctypes.Structure):
    """ek_nna_chip."""

    _fields_ = tuple((name, ctypes.c_int32) for name in _CHIP)


class _Counters(ctypes.Structure):
    """ek_nna_counters."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("overlapped", "serial", "load", "fill", "last")),
        ("instructions", ctypes.c_int64 * len(OPERATIONS)),
        ("stalls", ctypes.c_int64 * len(CAUSES)),
    )


class _Event(ctypes.Structure):
    """ek_nna_event."""

    _fields_ = (
        ("start", ctypes.c_int64),
        ("end", ctypes.c_int64),
        ("name", ctypes.c_int32),
        ("stall", ctypes.c_int32),
    )


class _Report(ctypes.Structure):
    """ek_nna_report."""

    _fields_ = (
        ("counters", ctypes.POINTER(_Counters)),
        ("events", ctypes.POINTER(_Event)),
        ("capacity", ctypes.c_int64),
        ("count", ctypes.c_int64),
    )


class _Matmul(ctypes.Structure):
    """ek_nna_matmul_args."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("m", "k", "n")),
        *((name, ctypes.c_void_p) for name in ("a", "f", "tail", "sums")),
    )


class _Conv(ctypes.Structure):
    """ek_nna_conv_args."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ConvShape.__dataclass_fields__),
        *((name, ctypes.c_void_p) for name in ("x", "w", "sums")),
    )


class _Pointwise(ctypes.Structure):
    """ek_nna_pointwise_args."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in PointwiseShape.__dataclass_fields__),
        *((name, ctypes.c_void_p) for name in ("x", "w", "sums")),
    )


Outcome = Tuple[Counters, Tuple[NnaEvent, ...]]


class NativeNna:
    """The emulator in a kernels library. Operands are addresses of contiguous arrays, laid out as
    described in nna.h; the last one receives the sums."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """IncompatibleError if the library has no NNA."""
        try:
            self._matmul, self._conv = library.ek_nna_matmul, library.ek_nna_conv
            self._pointwise = library.ek_nna_pointwise
        except AttributeError as error:
            raise IncompatibleError(
                f"expected a kernels library with the NNA, found {error}; build it again"
            ) from None
        for function in (self._matmul, self._conv, self._pointwise):
            function.restype = None
            function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

    def matmul(
        self, chip: NnaChip, shape: MatmulShape, arrays: Sequence[int], timed: bool, trace: int = 0
    ) -> Outcome:
        """`arrays`: a, f, tail and sums; the counters are zeros unless `timed`."""
        return _call_native(self._matmul, chip, _Matmul(*astuple(shape), *arrays), timed, trace)

    def conv(
        self, chip: NnaChip, shape: ConvShape, arrays: Sequence[int], timed: bool, trace: int = 0
    ) -> Outcome:
        """`arrays`: x, w and sums."""
        return _call_native(self._conv, chip, _Conv(*astuple(shape), *arrays), timed, trace)

    def pointwise(
        self,
        chip: NnaChip,
        shape: PointwiseShape,
        arrays: Sequence[int],
        timed: bool,
        trace: int = 0,
    ) -> Outcome:
        """`arrays`: x, w and sums."""
        return _call_native(
            self._pointwise, chip, _Pointwise(*astuple(shape), *arrays), timed, trace
        )


def _call_native(
    function: Any, chip: NnaChip, arguments: ctypes.Structure, timed: bool, trace: int
) -> Outcome:
    what = _Chip(*(getattr(chip, name) for name in _CHIP))
    counters, events = _Counters(), (_Event * max(trace, 1))()
    report = _Report(ctypes.pointer(counters) if timed else None, events, trace, 0)
    function(ctypes.byref(what), ctypes.byref(arguments), ctypes.byref(report))
    found = Counters(
        overlapped=counters.overlapped,
        serial=counters.serial,
        load=counters.load,
        fill=counters.fill,
        last_mac_end=counters.last,
        instructions=tuple(counters.instructions),
        stalls=tuple(counters.stalls),
    )
    return found, tuple(_decode_event(events[i]) for i in range(report.count))


def _decode_event(event: _Event) -> NnaEvent:
    if event.stall:
        return NnaEvent("stall", CAUSES[event.name], event.start, event.end)
    name = tuple(OPERATIONS)[event.name]
    return NnaEvent(OPERATIONS[name], name, event.start, event.end)
