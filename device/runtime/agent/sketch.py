"""Sketches of the values of a tensor: 34 bytes, whatever the tensor's size.

A bin holds the values of one sign between 2^e and 1.5 x 2^e, or from there to 2^(e + 1): sign,
exponent and the highest bit of the mantissa of an f32 are its number. A sketch keeps the 16 highest
bins of each sign that has values, all lower values in the last of them: these are less than 1/256
of the largest, so an 8-bit scale rounds them to 0. A count n is kept as 1 + 6 log2 n, within 6%.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from typing import List, Sequence, Tuple

from edgekit.device.runtime.agent.strict import bad
from edgekit.device.runtime.record import Record

BINS = 1024  # of a tensor, before they are sketched
KEPT = 16  # of each sign
TEXT_CHARACTERS = 48
_OF_SIGN = BINS // 2
_FIRST_ODD = 510  # bins of one sign from here on are infinite or NaN
_STEPS = 6.0
_LAYOUT = struct.Struct(f"<H{2 * KEPT}B")


class Sketch(Record):
    """`counts` are those of bins `top` - 15 to `top`, first of positive values, then of negative
    ones. Zeros are not counted."""

    top: int
    counts: Tuple[int, ...]


def sketch_of(bins: Sequence[int]) -> Sketch:
    """The sketch of a tensor's BINS counts."""
    signs = [list(bins[at : at + _FIRST_ODD]) for at in (0, _OF_SIGN)]
    for each in signs:
        each[0] = 0  # zeros, and values as good as zero
    top = max((i for each in signs for i, count in enumerate(each) if count), default=KEPT - 1)
    top = max(top, KEPT - 1)
    counts: List[int] = []
    for each in signs:
        first = top - KEPT + 1
        counts += [sum(each[: first + 1]), *each[first + 1 : top + 1]]
    return Sketch(top, tuple(counts))


def odd_values(bins: Sequence[int]) -> int:
    """The number of values that are infinite or NaN."""
    return sum(bins[_FIRST_ODD:_OF_SIGN]) + sum(bins[_OF_SIGN + _FIRST_ODD : BINS])


def edges(bin_number: int) -> Tuple[float, float]:
    """The magnitudes between which the values of a bin of one sign are."""
    low, high = struct.unpack("<2f", struct.pack("<2I", bin_number << 22, (bin_number + 1) << 22))
    return float(low), float(high)


def sketch_text(sketch: Sketch) -> str:
    """TEXT_CHARACTERS characters."""
    codes = (round(_STEPS * math.log2(n)) + 1 if n else 0 for n in sketch.counts)
    data = _LAYOUT.pack(sketch.top, *(min(code, 255) for code in codes))
    return base64.b64encode(data).decode("ascii")


def parse_sketch(text: str) -> Sketch:
    """The sketch in a text, with rounded counts; InputError if it is none."""
    try:
        top, *codes = _LAYOUT.unpack(base64.b64decode(text.encode("ascii"), validate=True))
    except (binascii.Error, UnicodeEncodeError, struct.error):
        raise bad("sketch", f"{TEXT_CHARACTERS} characters of base64", repr(text)) from None
    if not KEPT - 1 <= top < _FIRST_ODD:
        raise bad("sketch", f"a highest bin from {KEPT - 1} to {_FIRST_ODD - 1}", top)
    return Sketch(top, tuple(round(2 ** ((code - 1) / _STEPS)) if code else 0 for code in codes))
