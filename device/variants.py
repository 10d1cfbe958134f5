"""Which variant of a release runs: the one compiled for the shapes of the arrays that come in."""

from __future__ import annotations

from typing import Mapping, Sequence, Tuple

from edgekit.device.errors import InputError
from edgekit.device.manifest import Variant
from edgekit.device.npz import Array

_LISTED = 16


def variant_for(variants: Sequence[Variant], inputs: Mapping[str, Array]) -> Variant:
    """InputError lists the shapes that there are. With arrays of other names, or with only one
    variant, it is the first, which says what it expects."""
    first = variants[0]
    found = {name: array.shape for name, array in inputs.items()}
    if len(variants) == 1 or set(found) != set(first.shapes):
        return first
    for variant in variants:
        if variant.shapes == found:
            return variant
    there = " or ".join(shapes_text(v.shapes) for v in variants[:_LISTED])
    more = f" or {len(variants) - _LISTED} more" if len(variants) > _LISTED else ""
    raise InputError(
        f"expected inputs of shapes {there}{more}, found {shapes_text(found)}; "
        "compile the model for that shape as well: --input-shape, several times"
    )


def numbered(variants: Sequence[Variant], number: int) -> Variant:
    """The variant `number`, counted from 0; InputError if there are fewer."""
    if not 0 <= number < len(variants):
        raise InputError(f"expected a variant from 0 to {len(variants) - 1}, found {number}")
    return variants[number]


def shapes_text(shapes: Mapping[str, Tuple[int, ...]]) -> str:
    """As --input-shape takes them: x=1,3,48,320."""
    return " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in shapes.items())
