"""Element types by their manifest names, with size and .npy code."""

from __future__ import annotations

from typing import Dict, Tuple

from edgekit.device.runtime.record import Record


class ElementType(Record):
    """`name` in manifests, `npy` in a little-endian .npy header, `bytes` per element."""

    name: str
    npy: str
    bytes: int


_ALL = (
    ElementType("f16", "<f2", 2),
    ElementType("f32", "<f4", 4),
    ElementType("f64", "<f8", 8),
    ElementType("s8", "|i1", 1),
    ElementType("s16", "<i2", 2),
    ElementType("s32", "<i4", 4),
    ElementType("s64", "<i8", 8),
    ElementType("u8", "|u1", 1),
    ElementType("u16", "<u2", 2),
    ElementType("u32", "<u4", 4),
    ElementType("u64", "<u8", 8),
    ElementType("bool", "|b1", 1),
)

BY_NAME: Dict[str, ElementType] = {t.name: t for t in _ALL}
BY_NPY: Dict[str, ElementType] = {t.npy: t for t in _ALL}


def count(shape: Tuple[int, ...]) -> int:
    """Returns the number of elements of a shape; 1 for a scalar."""
    total = 1
    for extent in shape:
        total *= extent
    return total
