"""Import of TensorFlow Lite Micro's audio front-end operators that keep state between runs.

The state (frames, delays, stacks, running estimates) is held in states of the graph.
"""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.frontends.tflite.signal import saturated
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import need_dtype, need_rank, need_shape
from edgekit.host.compiler.ir.types import Array, DType, ShapeError, Tensor

_ADDED = 64  # frames added in one run
_BITS = 32  # of a shifted number
_WORD = (1 << 31) - 1
_LONGEST = 1 << 20  # samples per frame
_KEPT = 1 << 24  # samples stored or returned at a time

# State updates cannot be undone, so these are not allowed in a branch that may not be taken.
STATEFUL = {
    "CUSTOM:SignalDelay", "CUSTOM:SignalFilterBankSpectralSubtraction", "CUSTOM:SignalFramer",
    "CUSTOM:SignalOverlapAdd", "CUSTOM:SignalStacker",
}  # fmt: skip


def framer(call: TfliteCall) -> list[Tensor]:
    """s16 [..., n] → [..., n / step, size], including samples of earlier runs, and whether the
    frames are complete; missing samples are 0."""
    x = call.plain(0, DType.I16)
    size, step = (call.custom_whole(f"frame_{n}", 1, _LONGEST) for n in ("size", "step"))
    length = x.shape[-1] if x.shape else 0
    filled = bool(call.custom_number("prefill", 0))
    if not length or length % step or (filled and size < step):
        raise ShapeError(f"expected a multiple of {step} samples, found shape {list(x.shape)}")
    steps, frames = math.ceil(size / step), length // step
    _check_sample_count(x.elements // length, frames, size)
    known = _prepend_history(call, x, size - step if filled else (steps - 1) * step)
    call.builder.need_room((frames, size), np.int64)
    at = step * np.arange(frames)[:, None] + np.arange(size)
    y = call.emit(ops.Gather(1), known, call.constant(at.astype(np.int32)))
    y = call.made(call.reshape(y, (*x.shape[:-1], frames, size)))
    if filled or steps == 1:
        return [y, call.constant(np.array(True))]
    count = call.remembered("count", np.zeros((), np.int32))
    wanted = call.scalar(steps - 1, count)
    more = call.emit(ops.Add(), count, call.scalar(min(frames, steps), count))
    call.remember("count", call.emit(ops.Minimum(), more, wanted))
    return [y, call.emit(ops.LessOrEqual(), wanted, count)]


def _prepend_history(call: TfliteCall, x: Tensor, kept: int) -> Tensor:
    """The `kept` previous samples, then x, in rows; the last ones are stored for the next run."""
    length = x.shape[-1]
    rows = call.reshape(x, (x.elements // length, length))
    if not kept:
        return rows
    _check_sample_count(rows.shape[0], kept)
    before = call.remembered("samples", np.zeros((rows.shape[0], kept), np.int16))
    joined = call.emit(ops.Concat(1), before, rows)
    call.remember("samples", call.part(joined, 1, length, kept))
    return joined


def _check_sample_count(*shape: int) -> None:
    if math.prod(shape) > _KEPT:
        raise ShapeError(f"expected at most {_KEPT} samples at a time, found {list(shape)}")


def delay(call: TfliteCall) -> Tensor:
    """s16 [..., n] delayed by some samples, starting with zeros."""
    x = call.plain(0, DType.I16)
    if not x.shape or not x.elements:
        raise ShapeError(f"expected samples, found shape {list(x.shape)}")
    joined = _prepend_history(call, x, call.custom_whole("delay_length", 0, _LONGEST))
    return call.made(call.reshape(call.part(joined, 1, 0, x.shape[-1]), x.shape))


def stacker(call: TfliteCall) -> list[Tensor]:
    """s16 [n] → stacked frames [count · n], and whether the stack is due for output. The first
    frame is repeated to fill the left context."""
    x = call.plain(0, DType.I16)
    size = call.custom_whole("num_channels", 1, _LONGEST)
    need_shape(x, (size,), "frame")
    left, right = (call.custom_whole(f"stacker_{s}_context", 0, 1024) for s in ("left", "right"))
    count = left + right + 1
    step = call.custom_whole("stacker_step", 1, count)
    _check_sample_count(count, size)
    frames = call.remembered("frames", np.zeros((count, size), np.int16))
    known = call.remembered("count", np.array(-1, np.int32))  # frames so far; -1 before the first
    row = call.reshape(x, (1, size))
    moved = row if count == 1 else call.emit(
        ops.Concat(0), call.part(frames, 0, 1, count - 1), row
    )  # fmt: skip
    is_first = call.emit(ops.Less(), known, call.scalar(0, known))
    repeated = call.emit(ops.BroadcastTo((count, size)), row)
    frames = call.emit(ops.Where(), is_first, repeated, moved)
    more = call.emit(ops.Add(), known, call.scalar(1, known))
    more = call.emit(ops.Where(), is_first, call.scalar(left + 1, known), more)
    is_full = call.emit(ops.Equal(), more, call.scalar(count, known))
    rest = call.emit(ops.Sub(), more, call.scalar(step, known))
    call.remember("count", call.emit(ops.Where(), is_full, rest, more))
    call.remember("frames", frames)
    return [call.made(call.reshape(frames, (count * size,))), is_full]


def overlap_add(call: TfliteCall) -> Tensor:
    """Frames s16 or f32 [..., count, size] → [..., count · step]: adds frames that start a step
    apart; s16 saturates."""
    x = call.plain(0, DType.I16, DType.F32)
    if len(x.shape) < 2 or not 1 <= x.shape[-2] <= _ADDED or not x.elements:
        raise ShapeError(f"expected 1 to {_ADDED} frames, found shape {list(x.shape)}")
    count, size = x.shape[-2:]
    rows, step = x.elements // (count * size), call.custom_whole("frame_step", 1, size)
    _check_sample_count(rows, size)
    frames = call.reshape(x, (rows, count, size))
    zeros = call.filled((rows, step), 0, x.dtype.numpy)
    rest, parts = zeros, []
    if size > step:
        rest = call.remembered("rest", np.zeros((rows, size - step), x.dtype.numpy))
    for i in range(count):
        frame = call.reshape(call.part(frames, 1, i, 1), (rows, size))
        before = rest if size == step else call.emit(ops.Concat(1), rest, zeros)
        total = _saturating_add(call, frame, before)
        parts.append(call.part(total, 1, 0, step))
        if size > step:
            rest = call.part(total, 1, step, size - step)
    if size > step:
        call.remember("rest", rest)
    joined = parts[0] if count == 1 else call.emit(ops.Concat(1), *parts)
    return call.made(call.reshape(joined, (*x.shape[:-2], count * step)))


def _saturating_add(call: TfliteCall, a: Tensor, b: Tensor) -> Tensor:
    if a.dtype is DType.F32:
        return call.emit(ops.Add(), a, b)
    wide = (call.convert(t, DType.I32) for t in (a, b))
    return saturated(call, call.emit(ops.Add(), *wide))


def spectral_subtraction(call: TfliteCall) -> list[Tensor]:
    """u32 [n] → the signal above a running noise estimate, and that estimate."""
    x = call.tensor(0, "channels")
    need_rank(x, 1, "channels")
    need_dtype(x, (DType.U32,), "channels")
    _check_sample_count(*x.shape)
    fraction = call.custom_whole("spectral_subtraction_bits", 0, 63)
    scale = call.custom_whole("smoothing_bits", 0, _BITS - 1)
    keep = [
        call.custom_whole(f"{alternate}smoothing", 0, _WORD) for alternate in ("", "alternate_")
    ]
    fall = [
        call.custom_whole(f"{alternate}one_minus_smoothing", 0, _WORD)
        for alternate in ("", "alternate_")
    ]
    least = np.full(x.shape, call.custom_whole("min_signal_remaining", 0, _WORD))
    noise = call.remembered("noise", np.zeros(x.shape, np.uint32))
    shift = call.constant(np.array(scale, np.uint32))
    scaled = call.emit(ops.LeftShift(), x, shift)
    parts = [
        _scaled_by(call, t, np.resize(np.array(factors), x.shape))
        for t, factors in ((scaled, keep), (noise, fall))
    ]
    estimate = _shift_to_u32(call, call.emit(ops.Add(), *parts), fraction)
    below = call.emit(ops.Minimum(), estimate, scaled)
    kept = below if call.custom_number("clamping", 0) else estimate
    call.remember("noise", kept)
    floor = _shift_to_u32(call, _scaled_by(call, x, least), fraction)
    rest = call.emit(ops.RightShift(), call.emit(ops.Sub(), scaled, below), shift)
    return [call.emit(ops.Maximum(), rest, floor), kept]


def _scaled_by(call: TfliteCall, x: Tensor, factors: Array) -> Tensor:
    """x times `factors` as u64."""
    wide = call.convert(x, DType.U64)
    return call.emit(ops.Mul(), wide, call.constant(factors.astype(np.uint64)))


def _shift_to_u32(call: TfliteCall, x: Tensor, bits: int) -> Tensor:
    return call.convert(call.emit(ops.RightShift(), x, call.scalar(bits, x)), DType.U32)
