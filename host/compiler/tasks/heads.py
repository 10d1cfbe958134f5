"""Heads of detectors: what recognizers find, and what their decoders share.

A decoder is a sequence of operators that ends in rows as those of `DetectionOutput`: image, class,
score and corners in pixels of the model's input.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from edgekit.device.runtime.agent.task import DETECT, FIELDS, LETTERBOX, STRETCH
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import InputImage
from edgekit.host.compiler.tasks.usual_pixels import IMAGENET_SCALING

_SIDES = 4  # numbers of a box
KEEP, TOP = 100, 300  # detections of a picture; candidates of each class
UNNAMED = -1  # classes
SCALES = (ops.Mul, ops.Sub, ops.Div, ops.Add)  # first, if a model scales pixels itself
TOP_OF_ALL = 1000  # candidates, where those of different classes compete


class Limits(NamedTuple):
    """How boxes are selected: the least score, and the most overlap with a better box of the same
    class. With `single`, a box is only of its best class; with `across`, too, a better box of any
    class counts."""

    least: float
    overlap: float
    single: bool = False
    across: bool = False


YOLO_LIMITS = Limits(0.25, 0.7, single=True)  # Ultralytics' defaults
# How pictures become inputs: as the authors of each family do.
YOLO_PIXELS: Mapping[str, Any] = {"fit": LETTERBOX, "fill": 114}
STRETCHED_IMAGENET: Mapping[str, Any] = {
    "fit": STRETCH,
    **IMAGENET_SCALING,
}


@dataclass(frozen=True)
class Head:
    """A recognized head. `rows` appends its decoder and returns the tensor of rows; `classes` is 0
    if unknown, and UNNAMED if labels may be another model's; labels begin with number `first`.
    `pixels` are fields of the TaskSpec: how the picture becomes the input. `likely`: of several
    heads with such outputs, it is the one that the network shows. `doubt`: what else the outputs
    may be, unless labels or an option show that they are not. `kind` is the TaskSpec's. `usual` are
    fields for pixels whose values nothing states, taken `usual_of` whom; `counted`: classes that
    the file states, where labels may be fewer or more. `family`: how files of such networks are
    named, where the name decides between heads; not how their outputs are decoded."""

    name: str
    what: str
    classes: int
    rows: Callable[[Appender], str]
    pixels: Mapping[str, Any] = field(default_factory=lambda: YOLO_PIXELS)
    labels: tuple[str, ...] = ()
    first: int = 0
    likely: bool = False
    doubt: str = ""
    kind: str = DETECT
    usual: Mapping[str, Any] = field(default_factory=dict)
    usual_of: str = ""
    counted: int = 0
    family: str = ""


def of_that_name(heads: Sequence[Head], stem: str) -> list[Head]:
    """The head whose family begins the name of the file, in which separators do not count; empty if
    none does. Of two, as yolov7 and yolov7-tiny, that of the longer name."""
    plain = re.sub(r"[-_. ]", "", stem.lower())
    fits = [head for head in heads if head.family and plain.startswith(head.family)]
    found = sorted(fits, key=lambda head: len(head.family))[-1:]
    return [replace(head, what=f"{head.what}, by the file's name") for head in found]


def selected(to: Appender, boxes: str, scores: str, limits: Limits = YOLO_LIMITS) -> str:
    """Rows of boxes [1, n, 4], given by centers and sizes in pixels, and scores [1, c, n]."""
    return suppressed(to, to_corners(to, boxes), scores, limits)


def to_corners(to: Appender, boxes: str) -> str:
    """Corners of boxes [1, n, 4] that are centers and sizes."""
    centers, sizes = to.add_all(ops.Split(2, (2, 2)), boxes)
    half = to.add(ops.Mul(), sizes, to.constant(np.full((1, 1, 1), 0.5)))
    low, high = to.add(ops.Sub(), centers, half), to.add(ops.Add(), centers, half)
    return to.add(ops.Concat(2), low, high)


def prior_boxes(to: Appender, offsets: str, priors: Array) -> str:
    """Centers and sizes [1, n, 4] from SSD's offsets to priors [n, 4], which are such, too."""
    shift, size = to.add_all(ops.Split(2, (2, 2)), offsets)
    centers, extents = priors[None, :, :2], priors[None, :, 2:]
    shift = to.add(ops.Mul(), shift, to.constant(0.1 * extents))
    size = to.add(ops.Exp(), to.add(ops.Mul(), size, to.constant(np.full((1, 1, 1), 0.2))))
    return to.add(
        ops.Concat(2),
        to.add(ops.Add(), shift, to.constant(centers)),
        to.add(ops.Mul(), size, to.constant(extents)),
    )


def suppressed(to: Appender, corners: str, scores: str, limits: Limits) -> str:
    """Rows of boxes [1, n, 4], given by their corners in pixels, and scores [1, c, n]."""
    boxes = to.shape(corners)[1]
    op = ops.DetectionOutput(
        KEEP,
        min(TOP_OF_ALL if limits.across else TOP, boxes),
        limits.least,
        limits.overlap,
        single=limits.single,
        across=limits.across,
    )
    return to.add(op, to.add(ops.Reshape((1, boxes, 1, 4)), corners), scores)


def as_rows(to: Appender, label: str, score: str, corners: Sequence[str]) -> str:
    """Rows of boxes that the model has selected: label and score [1, n, 1]."""
    _, count, _ = to.shape(label)
    first = to.constant(np.zeros((1, count, 1)))
    made = to.add(ops.Concat(2), first, label, score, *corners)
    return to.add(ops.Reshape((1, 1, count, FIELDS)), made)


def sizes_of(image: InputImage) -> Array:
    """What boxes relative to the picture are multiplied by."""
    return np.array([[[image.width, image.height] * 2]], np.float32)


def in_pixels(to: Appender, image: InputImage, x: str, whole: Array) -> str:
    """Places [1, n, k] in pixels of the input, where a model may give them relative to it; `whole`
    [1, 1, k] is what these are multiplied by. Converters to .tflite keep pixels, Ultralytics'
    exporter does not: if any number is larger than relative ones are, all are pixels. Of boxes the
    centers, or first corners, count: an anchor may be larger than the picture, and a box of it,
    which nothing shows, several times as large. Points may be far out of the picture, too."""
    if not image.relative:
        return x
    places, *_ = to.add_all(ops.Split(2, (2, 2)), x) if to.shape(x)[2] == _SIDES else (x,)
    largest = to.add(ops.Reshape((1, 1, 1)), to.add(ops.ReduceMax((1, 2)), places))
    most = np.full((1, 1, 1), math.sqrt(max(image.height, image.width)))  # between 1 and an edge
    are_relative = to.add(ops.Less(), largest, to.constant(most))
    ones = to.constant(np.ones(whole.shape))
    unit = to.add(ops.Where(), are_relative, to.constant(whole), ones)
    return to.add(ops.Mul(), x, unit)


def grid_of(image: InputImage, strides: Sequence[int]) -> tuple[Array, Array]:
    """Column and row [n, 2] and stride [n, 1] of the cells of all grids, row by row."""
    cells, sides = [], []
    for stride in strides:
        rows, columns = image.grid(stride)
        across, down = np.meshgrid(np.arange(columns), np.arange(rows))
        cells.append(np.stack([across, down], -1).reshape(-1, 2))
        sides.append(np.full((rows * columns, 1), stride))
    return np.concatenate(cells), np.concatenate(sides)
