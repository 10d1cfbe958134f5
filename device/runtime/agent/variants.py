"""Selects a release's variant: the one compiled for the input arrays' shapes."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Protocol, Sequence, Tuple, TypeVar

from edgekit.device.runtime.errors import InputError

_LISTED = 16


class _Shaped(Protocol):
    @property
    def shapes(self) -> Dict[str, Tuple[int, ...]]:
        """The input shapes by name."""


Shaped = TypeVar("Shaped", bound=_Shaped)


def variant_for(variants: Sequence[Shaped], inputs: Mapping[str, Any]) -> Shaped:
    """Returns the matching variant; InputError lists the available shapes.

    If names differ, or there is only one variant, returns the first, whose own check reports the
    expected inputs.
    """
    first = variants[0]
    found = {name: tuple(array.shape) for name, array in inputs.items()}
    if len(variants) == 1 or set(found) != set(first.shapes):
        return first
    for variant in variants:
        if variant.shapes == found:
            return variant
    there = " or ".join(shapes_text(v.shapes) for v in variants[:_LISTED])
    more = f" or {len(variants) - _LISTED} more" if len(variants) > _LISTED else ""
    raise InputError(
        f"expected inputs of shapes {there}{more}, found {shapes_text(found)}; compile the model "
        "for that shape too: repeat --input-shape"
    )


def numbered(variants: Sequence[Shaped], number: int) -> Shaped:
    """Returns the variant `number`, counted from 0; InputError if there are fewer."""
    if not 0 <= number < len(variants):
        raise InputError(f"expected a variant from 0 to {len(variants) - 1}, found {number}")
    return variants[number]


def shapes_text(shapes: Mapping[str, Tuple[int, ...]]) -> str:
    """Formats shapes like --input-shape: x=1,3,48,320."""
    return " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in shapes.items())
