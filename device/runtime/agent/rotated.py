"""Rotated boxes that a model found in a picture."""

from __future__ import annotations

import math
from typing import List, NamedTuple, Sequence, Tuple

from edgekit.device.runtime.agent.fitting import Box, Placed, found_rows
from edgekit.device.runtime.agent.task import POINT_FIELDS, TaskSpec

Corner = Tuple[float, float]  # x, y


class Rotated(NamedTuple):
    """A rotated box in pixels of the picture: the upright box around it, and its corners, one after
    the other around it, which may lie outside the picture."""

    box: Box
    corners: Tuple[Corner, ...]

    @property
    def angle(self) -> float:
        """Degrees by which its longer sides are turned clockwise from the horizontal, 0 to 180."""
        (x0, y0), (x1, y1), (x2, y2) = self.corners[:3]
        sides = (x1 - x0, y1 - y0), (x2 - x1, y2 - y1)
        across, down = max(sides, key=lambda side: math.hypot(*side))
        return math.degrees(math.atan2(down, across)) % 180


def upright(box: Box) -> Rotated:
    """A box that is not rotated."""
    _, _, left, top, right, bottom, _ = box
    return Rotated(box, ((left, top), (right, top), (right, bottom), (left, bottom)))


def rotated_of(
    values: Sequence[float], width: int, task: TaskSpec, placed: Placed, given: Sequence[str] = ()
) -> List[Rotated]:
    """The rotated boxes in rows of `width` values (TaskSpec), best first; `given` labels replace
    those of the task."""
    found = [
        Rotated(box, tuple(_corners(rest, placed)))
        for _, box, rest in found_rows(values, width, task, placed, given)
    ]
    return sorted(found, key=lambda each: -each.box.score)


def _corners(values: Sequence[float], placed: Placed) -> List[Corner]:
    across, down = placed.width / placed.picture[0], placed.height / placed.picture[1]
    return [
        ((values[at] - placed.left) / across, (values[at + 1] - placed.top) / down)
        for at in range(0, len(values), POINT_FIELDS)
    ]
