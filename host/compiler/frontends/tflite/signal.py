"""Import of TensorFlow Lite Micro's fixed-point operators for audio front ends.

Arithmetic that integer operators can express is composed of them; `ir/ops/signal.py` has the rest.
Operators with state between runs are in `stream.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgekit.host.compiler.frontends.common.fourier import transform
from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import need_dtype, need_rank
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor

_BITS = 32  # of a shifted number
_PAIRS = 1 << 20  # in a spectrum
_TAPS = 1 << 22  # weights of a filter bank, including zeros between others
_WORD = (1 << 31) - 1


def window(call: TfliteCall) -> Tensor:
    """s16 rows times s16 weights, shifted right and saturated to s16."""
    x, weights = call.plain(0, DType.I16), call.plain(1, DType.I16)
    need_rank(weights, 1, "weights")
    size = weights.shape[0]
    if not x.shape or size < 1 or x.shape[-1] % size:
        raise ShapeError(f"expected rows of {size} samples, found shape {list(x.shape)}")
    rows = call.reshape(x, (x.elements // size, size))
    product = call.emit(ops.Mul(), *(call.convert(t, DType.I32) for t in (rows, weights)))
    shift = call.scalar(call.custom_whole("shift", 0, _BITS - 1), product)
    product = call.emit(ops.RightShift(), product, shift)
    return call.made(call.reshape(saturated(call, product), x.shape))


def saturated(call: TfliteCall, x: Tensor) -> Tensor:
    """s32 → s16, saturated."""
    ends = np.iinfo(np.int16)
    return call.convert(call.emit(ops.Clip(ends.min, ends.max), x), DType.I16)


def auto_scale(call: TfliteCall) -> list[Tensor]:
    y, bits = call.builder.emit_all(ops.AutoScale(), [call.plain(0, DType.I16)])
    return [call.made(y), bits]


def fourier(inverse: bool) -> Callable[[TfliteCall], Tensor]:
    """SignalRfft or SignalIrfft on pairs of real and imaginary parts."""

    def build(call: TfliteCall) -> Tensor:
        points = call.custom_whole("fft_length", 4, ops.FixedFourier.LONGEST)
        if call.tensor(0, "rows").dtype is DType.F32:
            return _float_rfft(call, points, inverse)
        x = call.plain(0, DType.I16, DType.I32)
        return call.made(call.emit(ops.FixedFourier(points, inverse), x))

    return build


def _float_rfft(call: TfliteCall, points: int, inverse: bool) -> Tensor:
    x = call.tensor(0, "rows")
    length = x.shape[-1] if x.shape else 0
    if points & (points - 1):
        raise ShapeError(f"expected a power of two as number of points, found {points}")
    if not (length == points + 2 if inverse else 1 <= length <= points):
        raise ShapeError(f"expected rows for {points} points, found shape {list(x.shape)}")
    outer, parts = x.shape[:-1], 2 if inverse else 1
    rows = call.reshape(x, (*outer, length // parts, parts))
    made = transform(call, rows, points, onesided=True, inverse=inverse)
    return call.reshape(made, (*outer, made.shape[-2] * made.shape[-1]))


def energy(call: TfliteCall) -> Tensor:
    """Pairs s16 [2n] → u32 [n]: sums of squares; 0 outside the requested frequencies, which Micro
    leaves unwritten."""
    x = call.plain(0, DType.I16)
    need_rank(x, 1, "pairs")
    count = x.shape[0] // 2
    start = call.custom_whole("start_index", 0, count)
    end = call.custom_whole("end_index", start, count)
    if x.shape[0] % 2 or end == start or count > _PAIRS:
        raise ShapeError(
            f"expected pairs and a range within them, found {list(x.shape)}, {start}:{end}"
        )
    pairs = call.reshape(x, (count, 2))
    pairs = call.convert(call.part(pairs, 0, start, end - start), DType.U32)
    squares = call.emit(ops.ReduceSum((1,)), call.emit(ops.Mul(), pairs, pairs))
    zeros = [call.filled((n,), 0, np.uint32) for n in (start, count - end)]
    parts = [t for t in (zeros[0], squares, zeros[1]) if t.elements]
    return parts[0] if len(parts) == 1 else call.emit(ops.Concat(0), *parts)


def filter_bank(call: TfliteCall) -> Tensor:
    """Energies u32 [n] → u64 [channels]: each channel sums its frequencies times `weights` and
    those of the previous channel times `unweights`, the complement."""
    x, count = call.tensor(0, "energies"), call.custom_whole("num_channels", 1, 1 << 15)
    need_rank(x, 1, "energies")
    need_dtype(x, (DType.U32,), "energies")
    weights, unweights, places, starts, widths = (
        call.value(i, "table").reshape(-1).astype(np.int64) for i in range(1, 6)
    )
    if min(len(t) for t in (places, starts, widths)) < count + 1:
        raise ShapeError(f"expected tables of {count + 1} channels, found shorter ones")
    places, starts, widths = (t[: count + 1] for t in (places, starts, widths))
    taps = max(int(widths.max()), 1)
    known, held = min(len(weights), len(unweights)), x.shape[0]
    used = widths > 0
    low = min(places[used].min(initial=0), starts[used].min(initial=0))
    if (
        low < 0
        or 2 * count * taps > _TAPS
        or (places + widths)[used].max(initial=0) > held
        or (starts + widths)[used].max(initial=0) > known
    ):
        raise ShapeError(
            f"expected channels within {held} energies and {known} weights, found channels beyond "
            "them"
        )
    at = np.zeros((2, count + 1, taps), np.int32)
    factors = np.zeros((2, count + 1, taps), np.int64)
    for i in np.flatnonzero(used):
        run = np.arange(widths[i])
        at[:, i, : widths[i]] = places[i] + run
        factors[0, i, : widths[i]] = weights[starts[i] + run]
        factors[1, i, : widths[i]] = unweights[starts[i] + run]
    indices, both = (np.concatenate([t[0, 1:], t[1, :-1]], 1) for t in (at, factors))
    taken = call.emit(ops.Gather(0), call.convert(x, DType.U64), call.constant(indices))
    product = call.emit(ops.Mul(), taken, call.constant(both.astype(np.uint64)))
    return call.emit(ops.ReduceSum((1,)), product)


def square_root(call: TfliteCall) -> Tensor:
    """u64, s32 → u32: the square root, shifted right."""
    x, bits = call.tensor(0, "channels"), call.tensor(1, "bits")
    need_dtype(bits, (DType.I32,), "bits")
    if bits.elements != 1:
        raise ShapeError(f"expected one number of bits, found {bits.elements}")
    root = call.convert(call.emit(ops.IntSqrt(), x), DType.U32)
    shift = call.convert(call.reshape(bits, ()), DType.U32)
    return call.emit(ops.RightShift(), root, shift)


def automatic_gain(call: TfliteCall) -> Tensor:
    x, noise = call.tensor(0, "channels"), call.tensor(1, "noise")
    op = ops.AutomaticGain(call.custom_whole("snr_shift", 0, 63))
    return call.emit(op, x, noise, call.plain(2, DType.I16))


def logarithm(call: TfliteCall) -> Tensor:
    scale = call.custom_whole("output_scale", 0, _WORD)
    bits = call.custom_whole("input_correction_bits", 0, _BITS - 1)
    return call.made(call.emit(ops.FixedLog(scale, bits), call.tensor(0, "channels")))
