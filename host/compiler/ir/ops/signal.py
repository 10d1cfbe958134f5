"""Fixed-point operators of audio front ends: scaling, Fourier transform, gain control, logarithm.

They are bit-exact with TensorFlow Lite Micro.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.checks import (
    need_dtype,
    need_positive,
    need_rank,
    need_shape,
    operand,
)
from edgekit.host.compiler.ir.fixed_fourier import Transform
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["AutoScale", "AutomaticGain", "FixedFourier", "FixedLog"]

_SNR_BITS, _OUTPUT_BITS = 12, 6  # fraction bits of the SNR and of the output
_LOG_BITS, _SEGMENT_BITS = 16, 7  # fraction bits of a logarithm; log2 of its table's segments
_LN_2 = 45426  # ln 2 · 2^16
_LARGEST = np.iinfo(np.int16).max


@dataclass(frozen=True)
class AutoScale(Operator):
    """x s16 [n] → x · 2^b, s16 [n], and b, s32 []: the headroom of the largest |x| in bits.

    The maximum magnitude is tracked sequentially in 16 bits, where -(-2^15) overflows to itself:
    after a sample of -2^15 the maximum restarts from there.
    """

    kind: ClassVar[str] = "auto_scale"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "samples")
        need_dtype(x, (DType.I16,), "samples")
        need_rank(x, 1, "samples")
        return [(x.shape, DType.I16), ((), DType.I32)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        samples = required(x, 0)
        bits = max(15 - _bit_length(_max_magnitude(samples)), 0)
        return [(samples.astype(np.int32) << bits).astype(np.int16), np.array(bits, np.int32)]


def _max_magnitude(samples: Array) -> int:
    """Maximum magnitude as defined by `AutoScale`: only of the samples after the last -2^15, if
    there is one."""
    lowest = np.flatnonzero(samples == -(1 << 15))
    if not lowest.size:
        return int(np.abs(samples.astype(np.int32)).max(initial=0))
    largest = -(1 << 15)
    for sample in samples[lowest[-1] + 1 :].tolist():
        largest = sample if sample > largest else max(largest, -sample)
    return largest


def _bit_length(value: int) -> int:
    """Bit length of a 32-bit number; 32 for values below 1, which have no headroom."""
    return value.bit_length() if value > 0 else 32


@dataclass(frozen=True)
class FixedFourier(Operator):
    """Discrete Fourier transform of s16 or s32 rows, in kissfft's fixed-point arithmetic.

    x [..., at most `points`], zero-padded → [..., points + 2]: interleaved real and imaginary parts
    of all frequencies, divided by `points`. `inverse`: from such pairs to `points` values, also
    divided by `points`. `points` is a power of two of at least 4.
    """

    kind: ClassVar[str] = "fixed_fourier"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    LONGEST: ClassVar[int] = 1 << 15  # maximum number of points
    points: int = 4
    inverse: bool = False

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, n = operand(ins, 0, "rows"), self.points
        need_dtype(x, (DType.I16, DType.I32), "rows")
        need_positive(x.shape[:-1], "numbers of rows")
        if not (4 <= n <= self.LONGEST and n & (n - 1) == 0):
            raise ShapeError(f"expected a power of two from 4 to {self.LONGEST} points, found {n}")
        wanted = f"{n + 2}" if self.inverse else f"1 to {n}"
        length = x.shape[-1] if x.shape else 0
        if not (length == n + 2 if self.inverse else 1 <= length <= n):
            raise ShapeError(f"expected rows of {wanted} values, found shape {list(x.shape)}")
        return [((*x.shape[:-1], n if self.inverse else n + 2), x.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values = required(x, 0)
        rows = values.reshape(-1, values.shape[-1])
        transform = Transform(self.points, outs[0].dtype, self.inverse)
        made = transform.backward(rows) if self.inverse else transform.forward(rows)
        return [made.reshape(outs[0].shape)]


@dataclass(frozen=True)
class AutomaticGain(Operator):
    """Per-channel gain control (PCAN).

    ins: x u32 [n], noise u32 [n], table s16 [at least 125]. Output u32 [n]: x times the table's
    gain for the noise, shifted right by `shift`; small results are squared. The table has the gains
    for 0, 1 and 2, then four entries per power of two, of which the first three are the
    coefficients of a quadratic polynomial.
    """

    kind: ClassVar[str] = "automatic_gain"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    shift: int = 0
    ENTRIES: ClassVar[int] = 125  # for all 32-bit values

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, noise, table = (operand(ins, i, n) for i, n in enumerate(("x", "noise", "table")))
        need_rank(x, 1, "x")
        need_dtype(x, (DType.U32,), "x")
        need_dtype(noise, (DType.U32,), "noise")
        need_shape(noise, x.shape, "noise")
        need_rank(table, 1, "table")
        need_dtype(table, (DType.I16,), "table")
        if table.shape[0] < self.ENTRIES:
            raise ShapeError(f"expected a table of {self.ENTRIES}, found {table.shape[0]}")
        if not 0 <= self.shift < 64:
            raise ShapeError(f"expected a shift of 0 to 63 bits, found {self.shift}")
        return [(x.shape, DType.U32)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        table = required(x, 2).astype(np.int64)
        gain = _table_gain(required(x, 1).astype(np.int64), table).astype(np.uint32)
        product = required(x, 0).astype(np.uint64) * gain.astype(np.uint64)
        snr = (product >> np.uint64(self.shift)).astype(np.uint32)
        small = (snr * snr) >> np.uint32(2 + 2 * _SNR_BITS - _OUTPUT_BITS)
        large = (snr >> np.uint32(_SNR_BITS - _OUTPUT_BITS)) - np.uint32(1 << _OUTPUT_BITS)
        return [np.where(snr < 2 << _SNR_BITS, small, large).astype(np.uint32)]


def _table_gain(x: Array, table: Array) -> Array:
    """Gain s16 for 32-bit unsigned integers."""
    length = bit_lengths(x)
    start = np.where(x > 2, 4 * length - 6, 0)
    part = np.where(length < 11, x << np.maximum(11 - length, 0), x >> np.maximum(length - 11, 0))
    part = part & 0x3FF
    made = (table[start + 2] * part >> 5) + (table[start + 1] << 5)
    made = (_wrap_int32(made) * part).astype(np.int32).astype(np.int64)
    made = (_wrap_int32(made + (1 << 14)) >> 15) + table[start]
    return np.where(x > 2, made, table[np.minimum(x, 2)]).astype(np.int16)


def _wrap_int32(x: Array) -> Array:
    return x.astype(np.int32).astype(np.int64)


def bit_lengths(x: Array) -> Array:
    """Bit lengths s64 of integers from 0 to 2^32 - 1, which f64 represents exactly."""
    return np.frexp(x.astype(np.float64))[1].astype(np.int64)


@dataclass(frozen=True)
class FixedLog(Operator):
    """u32 → s16: the natural logarithm of x · 2^`bits` (modulo 2^32), times `scale`; at most 32767,
    and 0 for arguments below 2. It is linear in 128 segments between powers of two."""

    kind: ClassVar[str] = "fixed_log"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    scale: int = 1
    bits: int = 0

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        need_dtype(x, (DType.U32,), "input")
        if not (0 <= self.scale < 1 << 31 and 0 <= self.bits < 32):
            raise ShapeError(
                f"expected a scale from 0 and 0 to 31 bits, found {self.scale} and {self.bits}"
            )
        return [(x.shape, DType.I16)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        scaled = (required(x, 0).astype(np.int64) << self.bits) & 0xFFFFFFFF
        whole = bit_lengths(np.maximum(scaled, 1)) - 1
        part = ((np.maximum(scaled, 1) - (np.int64(1) << whole)) << _LOG_BITS) >> whole
        table = log_table().astype(np.int64)
        at = part >> (_LOG_BITS - _SEGMENT_BITS)
        along = part & ((1 << (_LOG_BITS - _SEGMENT_BITS)) - 1)
        part = part + table[at] + ((table[at + 1] - table[at]) * along >> _LOG_BITS)
        half, log2 = 1 << (_LOG_BITS - 1), (whole << _LOG_BITS) + part
        natural = (_LN_2 * log2 + half) >> _LOG_BITS
        made = ((self.scale * natural + half) & 0xFFFFFFFF) >> _LOG_BITS
        return [np.where(scaled > 1, np.minimum(made, _LARGEST), 0).astype(np.int16)]


def log_table() -> Array:
    """u16 [129]: log2(1 + t) - t at the ends of segments, times 2^16."""
    t = np.arange((1 << _SEGMENT_BITS) + 1) / (1 << _SEGMENT_BITS)
    return np.rint((np.log2(1 + t) - t) * (1 << _LOG_BITS)).astype(np.uint16)
