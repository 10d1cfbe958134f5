"""Selects a release's variant: the one of a signature and of the input arrays' shapes."""

from __future__ import annotations

from typing import Any, Mapping, Protocol, Sequence, Tuple, TypeVar

from edgekit.device.runtime.errors import InputError

_LISTED = 16


class HasSignature(Protocol):
    """What distinguishes a variant of a release from others."""

    @property
    def shapes(self) -> Mapping[str, Tuple[int, ...]]:
        """The input shapes by name."""

    @property
    def signature(self) -> str:
        """The signature it computes, as the model names it; empty if there is only one."""


Shaped = TypeVar("Shaped", bound=HasSignature)


def variant_for(
    variants: Sequence[Shaped], inputs: Mapping[str, Any], signature: str = ""
) -> Shaped:
    """Returns the variant of `signature` for the shapes of `inputs`. Without a signature, the
    inputs decide; InputError if several signatures fit, or none.

    If names differ, or there is only one variant, returns the first, whose own check reports the
    expected inputs.
    """
    of_signature = chosen(variants, signature) if signature else variants
    found = {name: tuple(array.shape) for name, array in inputs.items()}
    matching = [v for v in of_signature if v.shapes == found]
    if len(matching) > 1:
        names = " or ".join(v.signature for v in matching)
        raise InputError(f"expected a signature, since {names} take these inputs, found none")
    several = len(names_of(of_signature)) > 1
    first = of_signature[0]
    alone = len(of_signature) == 1 or (not several and set(found) != set(first.shapes))
    if matching or alone:
        return (matching or of_signature)[0]
    there = " or ".join(variant_text(v) for v in of_signature[:_LISTED])
    more = f" or {len(of_signature) - _LISTED} more" if len(of_signature) > _LISTED else ""
    advice = "" if several else "; compile the model for that shape too: repeat --input-shape"
    raise InputError(
        f"expected inputs of shapes {there}{more}, found {shapes_text(found) or 'none'}{advice}"
    )


def chosen(variants: Sequence[Shaped], signature: str) -> Tuple[Shaped, ...]:
    """Returns the variants of `signature`; InputError if there is none, or if it is empty although
    there are several."""
    known = names_of(variants)
    if signature in known or (not signature and len(known) < 2):
        return tuple(v for v in variants if signature in ("", v.signature))
    expected = f"--signature with one of {', '.join(known)}" if known else "no --signature"
    raise InputError(f"expected {expected}, found {signature or 'none'}")


def names_of(variants: Sequence[Shaped]) -> Tuple[str, ...]:
    """The signatures of a release, each once; empty if its model has only one."""
    return tuple(dict.fromkeys(v.signature for v in variants if v.signature))


def variant_text(variant: Shaped) -> str:
    """Signature and shapes of a variant: encode (x=1,8)."""
    shapes = shapes_text(variant.shapes)
    return f"{variant.signature} ({shapes})" if variant.signature else shapes


def numbered(variants: Sequence[Shaped], number: int) -> Shaped:
    """Returns the variant `number`, counted from 0; InputError if there are fewer."""
    if not 0 <= number < len(variants):
        raise InputError(f"expected a variant from 0 to {len(variants) - 1}, found {number}")
    return variants[number]


def shapes_text(shapes: Mapping[str, Tuple[int, ...]]) -> str:
    """Formats shapes like --input-shape: x=1,3,48,320."""
    return " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in shapes.items())
