"""Group scales stored in as few bytes as represent them exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.ir.types import Array

_FRACTION_BITS = 23  # of an f32
_SHORT_FRACTION, _SHORT_EXPONENT = 3, 4  # of the one-byte format, besides the sign


@dataclass(frozen=True, eq=False)
class StoredScales:
    """Scales in `bits` bits each: f32, bfloat16 as u16, or u8.

    A u8 holds the sign, the low exponent bits relative to `least` (the bits of an f32), and the top
    fraction bits.
    """

    values: Array
    bits: int
    least: int = 0


def stored_scales(scale: Array, fewest: int) -> StoredScales:
    """Encodes f32 scales in 8, 16 or 32 bits, but no fewer than `fewest`."""
    bits = np.ascontiguousarray(scale, np.float32).view(np.uint32)
    size = bits & np.uint32(0x7FFFFFFF)
    dropped = _FRACTION_BITS - _SHORT_FRACTION
    least = int(size.min(initial=0x7F800000)) >> _FRACTION_BITS << _FRACTION_BITS
    short = (size - np.uint32(least)) >> dropped
    fits = short.max(initial=0) < 1 << _SHORT_EXPONENT + _SHORT_FRACTION
    if fewest <= 8 and fits and not np.any(bits & np.uint32((1 << dropped) - 1)):
        return StoredScales((short | bits >> 31 << 7).astype(np.uint8), 8, least)
    if fewest <= 16 and not np.any(bits & np.uint32(0xFFFF)):
        return StoredScales((bits >> 16).astype(np.uint16), 16)
    return StoredScales(scale, 32)
