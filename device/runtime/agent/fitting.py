"""Maps a picture into a model's input, and the results back to the picture."""

from __future__ import annotations

import math
from typing import Iterator, List, NamedTuple, Sequence, Tuple

from edgekit.device.runtime.agent.task import (
    CORNER,
    CROP,
    LINE,
    POINT_FIELDS,
    STRETCH,
    TaskSpec,
)
from edgekit.device.runtime.errors import InputError

LEAST = 0.25  # score of a box, where the model selects boxes without a threshold
_MOST_SCORE = 1.05  # quantized shares may be a little above 1
_TINY = 1e-6  # of a pixel
_MOST_PART = 0.01  # by which a number of a class is not whole
_MOST_TURNED = (
    1 / 16
)  # of a picture: by which edges of boxes may be in the wrong order, as of 8 bits
_MOST_CLASSES = 1 << 24  # f32 counts no further

Corners = Tuple[float, float, float, float]  # left, top, right, bottom


class Placed(NamedTuple):
    """A picture resized to `width` x `height`, its corner at `left`, `top` of the input. Both are
    negative where a crop cuts the picture. `picture` is its own size."""

    width: int
    height: int
    left: int
    top: int
    picture: Tuple[int, int]

    def to_picture(self, corners: Corners) -> Corners:
        """Corners in pixels of the picture, cut at its edges."""
        size_x, size_y = self.picture
        scale_x, scale_y = self.width / size_x, self.height / size_y
        left, top, right, bottom = corners

        def across(x: float) -> float:
            return min(max((x - self.left) / scale_x, 0.0), float(size_x))

        def down(y: float) -> float:
            return min(max((y - self.top) / scale_y, 0.0), float(size_y))

        return across(left), down(top), across(right), down(bottom)


def place(picture: Tuple[int, int], width: int, height: int, fit: str, zoom: float = 1.0) -> Placed:
    """Places a picture of `picture` pixels in an input of width x height, by a fit of TaskSpec."""
    if fit == LINE:
        across = min(width, max(1, math.ceil(height * picture[0] / picture[1])))
        return Placed(across, height, 0, 0, picture)
    wide, high = picture
    # Cut off, not rounded, as in PyTorch's and timm's programs.
    across, down = int(width * zoom + _TINY), int(height * zoom + _TINY)
    if fit == CROP and width * high >= height * wide:
        down = high * across // wide
    elif fit == CROP:
        across = wide * down // high
    elif fit != STRETCH:
        scale = min(width / wide, height / high) * zoom
        across, down = max(1, round(wide * scale)), max(1, round(high * scale))
    if fit == CORNER:
        return Placed(across, down, 0, 0, picture)
    # Halves go to the right and to the bottom, as in Ultralytics' letterbox and in crops.
    return Placed(across, down, int((width - across) / 2), int((height - down) / 2), picture)


class Box(NamedTuple):
    """A detection, in pixels of the picture: `number` of its class, whose `label` is empty if
    unknown."""

    label: str
    score: float
    left: float
    top: float
    right: float
    bottom: float
    number: int

    @property
    def name(self) -> str:
        """The label, or the number of the class."""
        return self.label or f"class {self.number}"


class Point(NamedTuple):
    """A point of a body in pixels of the picture; `score` says how visible it is, 0 to 1."""

    x: float
    y: float
    score: float


class Pose(NamedTuple):
    """A person or an animal that was found: its box, and its points in the model's order."""

    box: Box
    points: Tuple[Point, ...]


def boxes_of(
    values: Sequence[float], width: int, task: TaskSpec, placed: Placed, given: Sequence[str] = ()
) -> List[Box]:
    """The detections in rows of `width` values (TaskSpec), best first; `given` labels replace those
    of the task."""
    found = [box for _, box, _ in found_rows(values, width, task, placed, given)]
    return sorted(found, key=lambda box: -box.score)


def poses_of(
    values: Sequence[float], width: int, task: TaskSpec, placed: Placed, given: Sequence[str] = ()
) -> List[Pose]:
    """The poses in rows of `width` values, best first; see `boxes_of`."""
    rows = found_rows(values, width, task, placed, given)
    found = [Pose(box, _points_of(rest, placed)) for _, box, rest in rows]
    return sorted(found, key=lambda pose: -pose.box.score)


def found_rows(
    values: Sequence[float], width: int, task: TaskSpec, placed: Placed, given: Sequence[str] = ()
) -> Iterator[Tuple[int, Box, Sequence[float]]]:
    """The number of each row that is not empty, its box, and what follows; see `boxes_of`.
    InputError for scores, classes and edges that are none: places of points, for example, scores
    where another head has classes, or sizes where it has corners."""
    labels = tuple(given) or task.labels
    for start in range(0, len(values), width):
        _, index, score, x0, y0, x1, y1, *rest = values[start : start + width]
        if not 0 <= index < _MOST_CLASSES or not score >= LEAST:
            continue
        number = round(index)
        if score > _MOST_SCORE:
            raise _misread("scores from 0 to 1", score)
        if abs(index - number) > _MOST_PART:
            raise _misread("whole numbers of classes", index)
        if x0 - x1 > _MOST_TURNED * placed.width or y0 - y1 > _MOST_TURNED * placed.height:
            raise _misread("boxes of a width and height above 0", min(x1 - x0, y1 - y0))
        left, top, right, bottom = placed.to_picture((x0, y0, x1, y1))
        if right > left and bottom > top:
            label = labels[number] if number < len(labels) else ""
            yield start // width, Box(label, score, left, top, right, bottom, number), rest


def _misread(expected: str, found: float) -> InputError:
    return InputError(
        f"expected {expected}, found {found:g}: these outputs are not decoded as the model means "
        "them; name its --head, or compile it with --task none"
    )


def _points_of(values: Sequence[float], placed: Placed) -> Tuple[Point, ...]:
    made = []
    for start in range(0, len(values), POINT_FIELDS):
        x, y, score = values[start : start + POINT_FIELDS]
        made.append(Point(*placed.to_picture((x, y, x, y))[:2], score))
    return tuple(made)
