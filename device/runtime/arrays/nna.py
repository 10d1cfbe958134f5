"""Matrix products and convolutions on an emulated convolution accelerator (docs/architecture.md).

Both emulators give identical sums and accounts: "native" (kernels/nna), and "python", the
reference: nna_machine.py implements the instructions, nna_program.py their streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterator, Optional, Tuple

import numpy as np

from edgekit.device.runtime.arrays.buffers import empty_array, readable, refuse_masked
from edgekit.device.runtime.arrays.nna_account import (
    NnaAccount,
    NnaEvent,
    NnaProductWork,
    layer_work,
    make_account,
    matmul_work,
)
from edgekit.device.runtime.arrays.nna_chip import NNA2, NnaChip, checked_chip
from edgekit.device.runtime.arrays.nna_machine import NnaMachine
from edgekit.device.runtime.arrays.nna_matmul import check_inner, open_native, run_native
from edgekit.device.runtime.arrays.nna_native import (
    ConvShape,
    NativeNna,
    Outcome,
    PointwiseShape,
)
from edgekit.device.runtime.arrays.nna_program import (
    Period,
    conv_periods,
    depthwise_periods,
    matmul_periods,
    pointwise_periods,
    run,
)
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.kernel_facts import NNA_CHANNELS as CHANNELS
from edgekit.device.runtime.kernel_facts import NNA_TAPS as TAPS

Array = Any
EMULATORS = ("native", "python")


@dataclass(frozen=True)
class Emulated:
    """The sums and, if requested, the account and the first trace events."""

    sums: Array
    account: Optional[NnaAccount]
    events: Tuple[NnaEvent, ...]


@dataclass(frozen=True)
class _How:
    """The emulator and its chip, whether to produce an account, and the number of trace events."""

    account: bool
    chip: NnaChip
    emulator: str
    trace: int

    def __post_init__(self) -> None:
        checked_chip(self.chip)
        if self.emulator not in EMULATORS:
            raise InputError(
                f"nna: expected the emulator native or python, found {self.emulator!r}"
            )

    def count(
        self,
        python: Callable[[], Outcome],
        native: Callable[..., Outcome],
        shape: Any,
        arrays: Tuple[Array, ...],
    ) -> Outcome:
        """Runs the emulator and returns its counters; the sums, the last of `arrays`, are then
        complete."""
        if self.emulator == "python":
            return python()
        return native(
            open_native(), self.chip, shape, _data_addresses(*arrays), self.account, self.trace
        )

    def result(self, sums: Array, counted: Outcome, work: NnaProductWork) -> Emulated:
        counters, events = counted
        return Emulated(
            sums, make_account(self.chip, counters, work) if self.account else None, events
        )


def nna_matmul(
    a: Array, f: Array, account: bool = False, *, chip: NnaChip = NNA2, emulator: str = "native"
) -> Any:
    """A [M, K] s8 by F [K, N] s8 -> [M, N] s32 exact modulo 2^32, or (that, NnaAccount).

    M, K, N >= 1, any strides; InputError for other shapes and types.
    """
    done = emulate_matmul(a, f, account=account, chip=chip, emulator=emulator)
    return (done.sums, done.account) if account else done.sums


def nna_conv3x3(
    x: Array,
    w: Array,
    account: bool = False,
    *,
    stride: int = 1,
    padding: int = 0,
    chip: NnaChip = NNA2,
    emulator: str = "native",
) -> Any:
    """x [H, W, IC] s8 with w [OC, 3, 3, IC] s8 -> [OH, OW, OC] s32, or (that, NnaAccount).

    `padding` (0 or 1) rows and columns of zeros on every side; stride 1 or 2. Channels are
    zero-padded to a multiple of 32. The engine is designed for this case: every multiply-add is
    useful.
    """
    done = emulate_conv3x3(
        x, w, account=account, stride=stride, padding=padding, chip=chip, emulator=emulator
    )
    return (done.sums, done.account) if account else done.sums


def nna_depthwise3x3(
    x: Array,
    w: Array,
    account: bool = False,
    *,
    stride: int = 1,
    padding: int = 0,
    chip: NnaChip = NNA2,
    emulator: str = "native",
) -> Any:
    """x [H, W, C] s8 with w [3, 3, C] s8 -> [OH, OW, C] s32, or (that, NnaAccount).

    Like `nna_conv3x3` with diagonal weights: one in 32 of the array's multiply-adds is useful.
    """
    done = emulate_depthwise3x3(
        x, w, account=account, stride=stride, padding=padding, chip=chip, emulator=emulator
    )
    return (done.sums, done.account) if account else done.sums


def nna_pointwise(
    x: Array, w: Array, account: bool = False, *, chip: NnaChip = NNA2, emulator: str = "native"
) -> Any:
    """x [P, IC] s8 with w [OC, IC] s8 -> [P, OC] s32, or (that, NnaAccount): a 1x1 convolution of P
    points, or a fully connected layer of P rows. Nine groups of 32 inputs act as the nine taps."""
    done = emulate_pointwise(x, w, account=account, chip=chip, emulator=emulator)
    return (done.sums, done.account) if account else done.sums


def emulate_matmul(
    a: Array,
    f: Array,
    *,
    account: bool = True,
    chip: NnaChip = NNA2,
    emulator: str = "native",
    trace: int = 0,
) -> Emulated:
    """Emulates `nna_matmul`; `trace` is the number of events to record from the account's
    stream."""
    how = _How(account, chip, emulator, trace)
    a, f = _bytes_of("a", a, 2), _bytes_of("f", f, 2)
    check_inner(a.shape, f.shape)
    (m, k), n = a.shape, f.shape[1]
    sums = empty_array(np, (m, n), np.int32, "nna")
    if emulator == "python":
        counted = _python_matmul(chip, a, f, sums, trace)
    else:
        buffers = readable(a, "nna: a"), readable(f, "nna: f")
        counted = run_native(*buffers, sums.ctypes.data, chip, account, trace)
    return how.result(sums, counted, matmul_work(m, k, n))


def emulate_conv3x3(
    x: Array,
    w: Array,
    *,
    account: bool = True,
    stride: int = 1,
    padding: int = 0,
    chip: NnaChip = NNA2,
    emulator: str = "native",
    trace: int = 0,
) -> Emulated:
    """Emulates `nna_conv3x3`; `trace` is the number of events to record from the account's
    stream."""
    how = _How(account, chip, emulator, trace)
    x, w = _bytes_of("x", x, 3), _bytes_of("w", w, 4)
    if w.shape[1:] != (3, 3, x.shape[2]):
        raise InputError(
            f"nna: expected w [OC, 3, 3, {x.shape[2]}] for x {list(x.shape)}, found {list(w.shape)}"
        )
    height, width = _conv_extents(x, stride, padding)
    image = to_ndhwc32(np.pad(x, ((padding, padding), (padding, padding), (0, 0))))
    kernel = conv_weights(w)
    ins, rows, columns = image.shape[:3]
    sums = np.empty((len(kernel), height, width, CHANNELS), np.int32)
    counted = how.count(
        lambda: _run_python(chip, conv_periods(chip, image, kernel, sums, stride), trace),
        NativeNna.conv,
        ConvShape(ins, rows, columns, len(kernel), height, width, stride),
        (image, kernel, sums),
    )
    work = layer_work(chip, "windows", height * width, TAPS, x.shape[2], len(w))
    return how.result(_channels_last(sums, len(w)), counted, work)


def emulate_depthwise3x3(
    x: Array,
    w: Array,
    *,
    account: bool = True,
    stride: int = 1,
    padding: int = 0,
    chip: NnaChip = NNA2,
    emulator: str = "native",
    trace: int = 0,
) -> Emulated:
    """Emulates `nna_depthwise3x3`; `trace` is the number of events to record."""
    how = _How(account, chip, emulator, trace)
    x, w = _bytes_of("x", x, 3), _bytes_of("w", w, 3)
    channels = x.shape[2]
    if w.shape != (3, 3, channels):
        raise InputError(
            f"nna: expected w [3, 3, {channels}] for x {list(x.shape)}, found {list(w.shape)}"
        )
    height, width = _conv_extents(x, stride, padding)
    image = to_ndhwc32(np.pad(x, ((padding, padding), (padding, padding), (0, 0))))
    kernel, (groups, rows, columns) = depthwise_weights(w), image.shape[:3]
    sums = np.empty((groups, height, width, CHANNELS), np.int32)
    counted = how.count(
        lambda: _run_python(chip, depthwise_periods(chip, image, kernel, sums, stride), trace),
        NativeNna.conv,
        ConvShape(groups, rows, columns, groups, height, width, stride, depthwise=1),
        (image, kernel, sums),
    )
    work = layer_work(chip, "diagonal", height * width, TAPS, channels, channels)
    return how.result(_channels_last(sums, channels), counted, work)


def emulate_pointwise(
    x: Array,
    w: Array,
    *,
    account: bool = True,
    chip: NnaChip = NNA2,
    emulator: str = "native",
    trace: int = 0,
) -> Emulated:
    """Emulates `nna_pointwise`; `trace` is the number of events to record."""
    how = _How(account, chip, emulator, trace)
    x, w = _bytes_of("x", x, 2), _bytes_of("w", w, 2)
    if x.shape[1] != w.shape[1]:
        raise InputError(
            f"nna: expected w [OC, {x.shape[1]}] for x {list(x.shape)}, found {list(w.shape)}"
        )
    (points, depth), outputs = x.shape, len(w)
    pixels, kernel = to_ndhwc32(x), pointwise_weights(w)
    outs, ins = kernel.shape[:2]
    sums = np.empty((outs, points, CHANNELS), np.int32)
    counted = how.count(
        lambda: _run_python(chip, pointwise_periods(chip, pixels, kernel, sums), trace),
        NativeNna.pointwise,
        PointwiseShape(points, ins, outs),
        (pixels, kernel, sums),
    )
    work = layer_work(chip, "points", points, 1, depth, outputs)
    return how.result(_channels_last(sums, outputs), counted, work)


def to_ndhwc32(x: Array) -> Array:
    """[..., C] -> [D, ..., 32]: groups of 32 channels outermost, zero-padded."""
    depth = -(-x.shape[-1] // CHANNELS)
    fill = [(0, 0)] * (x.ndim - 1) + [(0, depth * CHANNELS - x.shape[-1])]
    split = np.pad(x, fill).reshape(*x.shape[:-1], depth, CHANNELS)
    return np.ascontiguousarray(np.moveaxis(split, -2, 0))


def _channels_last(sums: Array, channels: int) -> Array:
    """[D, ..., 32] -> [..., channels]."""
    return np.moveaxis(sums, 0, -2).reshape(*sums.shape[1:-1], -1)[..., :channels]


def conv_weights(w: Array) -> Array:
    """[OC, 3, 3, IC] -> [Do, Di, 9, 32 out, 32 in], the write order of the weight RAM."""
    split = to_ndhwc32(w.reshape(len(w), TAPS, -1))  # [Di, OC, 9, 32]
    outs = to_ndhwc32(np.moveaxis(split, 1, -1))  # [Do, Di, 9, 32 in, 32 out]
    return np.ascontiguousarray(np.swapaxes(outs, -1, -2))


def depthwise_weights(w: Array) -> Array:
    """[3, 3, C] -> [D, 9, 32, 32], diagonal in every tap."""
    split = to_ndhwc32(w.reshape(TAPS, -1))  # [D, 9, 32]
    return np.ascontiguousarray(split[..., None] * np.eye(CHANNELS, dtype=np.int8))


def pointwise_weights(w: Array) -> Array:
    """[OC, IC] -> [Do, Di, 32 out, 32 in]."""
    outs = to_ndhwc32(np.moveaxis(to_ndhwc32(w), 1, -1))  # [Do, Di, 32 in, 32 out]
    return np.ascontiguousarray(np.swapaxes(outs, -1, -2))


def _python_matmul(chip: NnaChip, a: Array, f: Array, sums: Array, trace: int) -> Outcome:
    """Computes full groups of 32 channels on the NNA, and the tail outside it."""
    whole = f.shape[1] // CHANNELS * CHANNELS
    features, tail = to_ndhwc32(f[:, :whole]), f[:, whole:]
    tiled = np.zeros((len(a), len(features), CHANNELS), np.int32)
    periods = matmul_periods(chip, a, features, tiled) if whole else iter(())
    done = _run_python(chip, periods, trace)
    sums[:, :whole] = tiled.reshape(len(a), whole)
    sums[:, whole:] = a.astype(np.int32) @ tail.astype(np.int32)
    return done


def _run_python(chip: NnaChip, periods: Iterator[Period], trace: int) -> Outcome:
    """Runs the Python emulator and returns its counters; the periods' sums are then complete."""
    machine = NnaMachine(chip, trace)
    run(machine, periods)
    return machine.counters(), tuple(machine.events)


def _conv_extents(x: Array, stride: int, padding: int) -> Tuple[int, int]:
    """Returns height and width of the sums; InputError if they are empty."""
    if stride not in (1, 2) or padding not in (0, 1):
        raise InputError(
            f"nna: expected stride 1 or 2 and padding 0 or 1, found {stride!r} and {padding!r}"
        )
    height, width = (int(extent + 2 * padding - 3) // stride + 1 for extent in x.shape[:2])
    if height < 1 or width < 1:
        raise InputError(
            f"nna: expected x of at least one 3 x 3 window, found {list(x.shape)} "
            f"with padding {padding}"
        )
    return height, width


def _data_addresses(*arrays: Array) -> Tuple[int, ...]:
    return tuple(array.ctypes.data for array in arrays)


def _bytes_of(name: str, given: Array, rank: int) -> Array:
    """Returns the array, contiguous; InputError unless it is non-empty s8 of this rank."""
    refuse_masked(given, f"nna: {name}")
    array: Optional[Array] = given if isinstance(given, np.ndarray) else None
    if array is None or array.dtype != np.int8:
        found = type(given).__name__ if array is None else array.dtype
        raise InputError(f"nna: expected {name} as an int8 NumPy array, found {found}; convert it")
    if array.ndim != rank or array.size == 0:
        raise InputError(
            f"nna: expected {name} with {rank} dimensions of at least 1, found {list(array.shape)}"
        )
    return _contiguous(array)


def _contiguous(array: Array) -> Array:
    return np.ascontiguousarray(array)
