"""Element types by their manifest names, with size, .npy code and code of the struct module."""

from __future__ import annotations

from typing import Dict, Tuple

from edgekit.device.runtime.record import Record


class ElementType(Record):
    """`name` in manifests, `npy` in a little-endian .npy header, `bytes` per element, `code` in
    struct formats."""

    name: str
    npy: str
    bytes: int
    code: str


_ALL = (
    ElementType("f16", "<f2", 2, "e"),
    ElementType("f32", "<f4", 4, "f"),
    ElementType("f64", "<f8", 8, "d"),
    ElementType("s8", "|i1", 1, "b"),
    ElementType("s16", "<i2", 2, "h"),
    ElementType("s32", "<i4", 4, "i"),
    ElementType("s64", "<i8", 8, "q"),
    ElementType("u8", "|u1", 1, "B"),
    ElementType("u16", "<u2", 2, "H"),
    ElementType("u32", "<u4", 4, "I"),
    ElementType("u64", "<u8", 8, "Q"),
    ElementType("bool", "|b1", 1, "B"),
)

BY_NAME: Dict[str, ElementType] = {t.name: t for t in _ALL}
BY_NPY: Dict[str, ElementType] = {t.npy: t for t in _ALL}


def count(shape: Tuple[int, ...]) -> int:
    """Returns the number of elements of a shape; 1 for a scalar."""
    total = 1
    for extent in shape:
        total *= extent
    return total
