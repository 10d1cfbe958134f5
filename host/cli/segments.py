"""Classes of pixels, listed and laid over the picture, and pictures that a model makes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.device.runtime.agent.images import Image
from edgekit.device.runtime.agent.segments import Segments
from edgekit.host.cli.boxes import write_png
from edgekit.host.common.optional import optional

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

_LEAST = 0.0005  # share that is listed
_COVER = 0.5  # of the palette's color in the result


def share_lines(segments: Segments) -> list[str]:
    """The classes as a table: percent of the pixels, label."""
    return [f"  {100 * s.share:5.1f}%  {s.name}" for s in segments.shares if s.share >= _LEAST]


def overlay(picture: Picture, segments: Segments, target: Path) -> None:
    """Writes the picture as PNG, each pixel tinted in the color of its class."""
    _, images = optional("PIL", "PIL.Image")
    size = (segments.width, segments.height)
    tint = images.frombytes("P", size, segments.classes)
    tint.putpalette([part for number in range(256) for part in _color(number)])
    write_png(images.blend(picture, tint.convert("RGB"), _COVER), target)


def write_image(image: Image, target: Path) -> None:
    """Writes a picture that a model made as PNG."""
    _, images = optional("PIL", "PIL.Image")
    mode = "L" if image.channels == 1 else "RGB"
    write_png(images.frombytes(mode, (image.width, image.height), image.pixels), target)


def _color(number: int) -> tuple[int, int, int]:
    """The color of a class in Pascal VOC's palette: its bits, from the highest of each color."""
    red = green = blue = 0
    for bit in range(8):
        red |= (number & 1) << (7 - bit)
        green |= (number >> 1 & 1) << (7 - bit)
        blue |= (number >> 2 & 1) << (7 - bit)
        number >>= 3
    return red, green, blue
