"""Masks of objects that a model found: laid over the picture, and in COCO's form."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgekit.device.runtime.agent.instances import Instance
from edgekit.host.cli.boxes import color_of
from edgekit.host.common.optional import optional

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

_COVER = 0.45  # of the color in the result
_BITS, _MORE, _SIGN, _FIRST = 5, 32, 16, 48  # of a character of COCO's run lengths


def tinted(picture: Picture, instances: Sequence[Instance]) -> Picture:
    """The picture with each object in the color of its class, the best on top."""
    _, images = optional("PIL", "PIL.Image")
    made = picture.copy()
    for instance in reversed(instances):
        cover = images.new("RGB", picture.size, color_of(instance.box))
        made.paste(images.blend(picture, cover, _COVER), mask=_bitmap(instance, picture.size))
    return made


def _bitmap(instance: Instance, size: tuple[int, int]) -> Picture:
    _, images = optional("PIL", "PIL.Image")
    flat = bytes(instance.mask(*size)).replace(b"\1", b"\xff")
    made: Picture = images.frombytes("L", size, flat)
    return made


def run_lengths(instance: Instance, size: tuple[int, int]) -> dict[str, Any]:
    """A mask as pycocotools encodes it: lengths of runs along columns, of others first.

    `size`: width and height of the picture.
    """
    import numpy as np

    width, height = size
    bits = np.frombuffer(instance.mask(width, height), np.uint8).reshape(height, width).T.ravel()
    changes = np.flatnonzero(np.diff(bits)) + 1
    starts = [0, *([0] if bits[:1].any() else []), *changes.tolist(), bits.size]
    counts = [end - start for start, end in itertools.pairwise(starts)]
    return {"size": [height, width], "counts": _packed(counts)}


def _packed(counts: Sequence[int]) -> str:
    """Five bits in a character, the lowest first; from the fourth on, what a length is longer than
    that of two before."""
    made = []
    for i, count in enumerate(counts):
        value = count - counts[i - 2] if i > 2 else count
        more = True
        while more:
            part = value & (_MORE - 1)
            value >>= _BITS
            more = value != (-1 if part & _SIGN else 0)
            made.append(chr(_FIRST + part + (_MORE if more else 0)))
    return "".join(made)
