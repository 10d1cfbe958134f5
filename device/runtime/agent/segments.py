"""Classes of the pixels of a picture."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple

from edgekit.device.runtime.agent.fitting import Placed
from edgekit.device.runtime.agent.task import TaskSpec


class Share(NamedTuple):
    """How much of a picture is of a class, 0 to 1; `label` is empty if unknown."""

    label: str
    share: float
    number: int

    @property
    def name(self) -> str:
        """The label, or the number of the class."""
        return self.label or f"class {self.number}"


class Segments(NamedTuple):
    """The class of each pixel, row by row, and the shares of the classes, largest first."""

    width: int
    height: int
    classes: bytes
    shares: List[Share]


def segments_of(
    values: bytes,
    extents: Tuple[int, int],
    size: Tuple[int, int],
    task: TaskSpec,
    placed: Placed,
    given: Sequence[str] = (),
) -> Segments:
    """The classes of the picture's pixels from those of a map of `extents` (rows, columns), which
    covers an input of `size` (rows, columns); `given` labels replace those of the task."""
    width, height = placed.picture
    columns = places(width, placed.width, placed.left, size[1], extents[1])
    rows = places(height, placed.height, placed.top, size[0], extents[0])
    lines = {}
    for row in set(rows):
        line = values[row * extents[1] : (row + 1) * extents[1]]
        lines[row] = bytes(map(line.__getitem__, columns))
    classes = b"".join(map(lines.__getitem__, rows))
    labels = tuple(given) or task.labels
    shares = [
        Share(labels[number] if number < len(labels) else "", count / len(classes), number)
        for number, count in ((n, classes.count(n)) for n in set(classes))
    ]
    return Segments(width, height, classes, sorted(shares, key=lambda each: -each.share))


def places(pixels: int, fitted: int, start: int, side: int, cells: int) -> List[int]:
    """The cell of the map below the center of each pixel along an edge. The picture's `pixels` are
    `fitted` of the input's `side`, from `start`."""
    made = []
    for pixel in range(pixels):
        at = start + (pixel + 0.5) * fitted / pixels
        made.append(min(max(int(at * cells / side), 0), cells - 1))
    return made
