"""Pictures that a model makes of pictures."""

from __future__ import annotations

from typing import NamedTuple, Tuple

from edgekit.device.runtime.agent.fitting import Placed
from edgekit.device.runtime.agent.segments import places


class Image(NamedTuple):
    """A picture as `channels` bytes for each pixel, row by row: 1, or 3 with red first."""

    width: int
    height: int
    channels: int
    pixels: bytes


def image_of(
    values: bytes, shape: Tuple[int, int, int], size: Tuple[int, int], placed: Placed
) -> Image:
    """The part of a model's picture of `shape` (rows, columns, channels) that is of the one it was
    given, whose input has `size` (rows, columns). It has the proportions of that one, and at least
    its size, but no less pixels than the model made."""
    rows, columns, channels = shape
    part = columns * placed.width / size[1], rows * placed.height / size[0]
    times = max(1.0, *(made / own for made, own in zip(part, placed.picture)))
    width, height = (round(own * times) for own in placed.picture)
    across = places(width, placed.width, placed.left, size[1], columns)
    down = places(height, placed.height, placed.top, size[0], rows)
    lines = {}
    for row in set(down):
        line = values[row * columns * channels : (row + 1) * columns * channels]
        planes = [bytes(map(line[c::channels].__getitem__, across)) for c in range(channels)]
        made = bytearray(width * channels)
        for channel, plane in enumerate(planes):
            made[channel::channels] = plane
        lines[row] = bytes(made)
    return Image(width, height, channels, b"".join(map(lines.__getitem__, down)))
