"""Models of the points of one hand, face, eye or person, which fills the picture: MediaPipe's,
InsightFace's and PFLD (Guo et al., 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from edgekit.device.runtime.agent.task import BGR, FIELDS, LETTERBOX, POINT_FIELDS
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.heads import Head

_PRESENT = 0.5  # MediaPipe's default: least score
_PIXELS = {"fit": LETTERBOX, "fill": 0}


@dataclass(frozen=True)
class _Landmarks:
    """What a model finds in a picture of `side` pixels: the first `points` of the `given` ones,
    each of `numbers` values that begin with x and y in pixels of the input. With `seen`, the fourth
    is the logit of how visible it is."""

    label: str
    side: int
    points: int
    given: int
    numbers: int
    seen: bool = False


_KNOWN = (
    _Landmarks("hand", 224, 21, 21, 3),
    _Landmarks("face", 192, 468, 468, 3),
    _Landmarks("face", 256, 478, 478, 3),
    _Landmarks("person", 256, 33, 39, 5, seen=True),
)
_INSIGHT_SIDE, _INSIGHT = 192, "fc1"  # and the output, as MXNet's exporter names it
# By how many numbers the output has: points, of which the last ones count, and numbers of each.
_INSIGHT_POINTS = {212: (106, 106, 2), 3309: (1103, 68, 3)}
_INSIGHT_PIXELS = {"fit": LETTERBOX, "fill": 0, "mean": (127.5,), "scale": (128.0,)}
_PFLD_SIDE, _PFLD_POINTS = 112, 98
PFLD_NUMBERS = 2 * _PFLD_POINTS
_PFLD_PIXELS = {**_PIXELS, "channels": BGR, "mean": (0.0,), "scale": (255.0,)}
_EYE_SIDE, _EYE_POINTS = 64, (71, 5)  # of the contour of an eye with its brow, and of its iris


def landmarks(ends: Ends) -> Iterator[Head]:
    """Points [1, …, n], and after them in the outputs [1, …, 1] of the score of what is there."""
    yield from _eye(ends)
    yield from _insight(ends)
    sizes = [math.prod(tensor.shape) for tensor in ends.outputs]
    for known in _KNOWN:
        size = known.given * known.numbers
        square = ends.image.height == ends.image.width == known.side
        if not square or size not in sizes or sizes.count(1) not in (1, 2):
            continue
        points, score = (ends.outputs[sizes.index(n)] for n in (size, 1))
        if points.shape[-1] != size or points.dtype is not DType.F32:
            continue
        is_share = ends.is_from(score.name, ops.Logistic.kind)
        names = points.name, score.name
        yield Head(
            "landmarks",
            f"outputs are MediaPipe's landmarks of a {known.label}, which fills the picture",
            1,
            partial(_rows, known, names, is_share),
            _PIXELS,
            (known.label,),
        )


def _rows(known: _Landmarks, names: tuple[str, str], is_share: bool, to: Appender) -> str:
    """One row, of class -1 if the score is too low."""
    points = to.add(ops.Reshape((1, known.given, known.numbers)), to.floats(names[0]))
    rest = [(1, (known.points, known.given - known.points)), (2, (2, known.numbers - 2))]
    for axis, parts in rest:
        if parts[1]:
            points, *others = to.add_all(ops.Split(axis, parts), points)
    score = to.add(ops.Reshape((1, 1, 1)), to.floats(names[1]))
    if not is_share:
        score = to.add(ops.Logistic(), score)
    if known.seen:
        seen, _ = to.add_all(ops.Split(2, (2, 1)), others[0])
        _, seen = to.add_all(ops.Split(2, (1, 1)), seen)
        sure = to.add(ops.Logistic(), seen)
    else:
        sure = to.add(ops.Mul(), score, to.constant(np.ones((1, known.points, 1))))
    shifted = to.add(ops.Add(), score, to.constant(np.full((1, 1, 1), 1 - _PRESENT)))
    label = to.add(ops.Sub(), to.add(ops.Floor(), shifted), to.constant(np.ones((1, 1, 1))))
    return _row(to, label, score, points, sure)


def _insight(ends: Ends) -> Iterator[Head]:
    """2d106det and 1k3d68: points from -1 to 1, without a score."""
    output, side = ends.outputs[0], _INSIGHT_SIDE
    known = _INSIGHT_POINTS.get(output.elements)
    square = ends.image.height == ends.image.width == side
    if not square or known is None or len(ends.outputs) > 1 or output.name != _INSIGHT:
        return
    given, count, numbers = known

    def rows(to: Appender) -> str:
        points = to.add(ops.Reshape((1, given, numbers)), to.floats(output.name))
        if given > count:
            _, points = to.add_all(ops.Split(1, (given - count, count)), points)
        if numbers > 2:
            points, _ = to.add_all(ops.Split(2, (2, numbers - 2)), points)
        points = to.add(ops.Add(), points, to.constant(np.ones((1, 1, 1))))
        return _certain(to, to.add(ops.Mul(), points, to.constant(np.full((1, 1, 1), side / 2))))

    what = f"'{output.name}' is like InsightFace's {count} points of a face, which fills the"
    what += " picture and is not looked for"
    yield Head("landmarks", what, 1, rows, _INSIGHT_PIXELS, ("face",))


def pfld(ends: Ends) -> Iterator[Head]:
    """PFLD's 98 points, relative to the picture, and perhaps the maps that they are from."""
    found = [t for t in ends.outputs if t.elements == max(t.shape, default=0) == PFLD_NUMBERS]
    rest = [t for t in ends.outputs if t not in found]
    square = ends.image.height == ends.image.width == _PFLD_SIDE
    if not square or len(found) != 1 or len(rest) > 1 or any(len(t.shape) != 4 for t in rest):
        return
    (output,) = found

    def rows(to: Appender) -> str:
        points = to.add(ops.Reshape((1, _PFLD_POINTS, 2)), to.floats(output.name))
        whole = to.constant(np.full((1, 1, 1), _PFLD_SIDE))
        return _certain(to, to.add(ops.Mul(), points, whole))

    what = f"'{output.name}' may be PFLD's points of a face, which fills the picture and is not"
    what += " looked for, pixels as PFLD takes them"
    yield Head("landmarks", what, 1, rows, _PFLD_PIXELS, ("face",))


def _eye(ends: Ends) -> Iterator[Head]:
    """Points of the contour and of the iris, without a score: an eye is taken to be there."""
    sizes = [math.prod(tensor.shape) for tensor in ends.outputs]
    wanted = [3 * count for count in _EYE_POINTS]
    square = ends.image.height == ends.image.width == _EYE_SIDE
    if square and sorted(sizes, reverse=True) == wanted:
        names = [ends.outputs[sizes.index(size)].name for size in wanted]
        yield Head(
            "landmarks",
            "outputs are MediaPipe's points of a left eye, which fills the picture and is not "
            "looked for, and then of its iris",
            1,
            partial(_eye_rows, names),
            _PIXELS,
            ("eye",),
        )


def _eye_rows(names: Sequence[str], to: Appender) -> str:
    """The points of both, of which the third number is left out."""
    parts = [
        to.add(ops.Reshape((1, count, 3)), to.floats(name))
        for name, count in zip(names, _EYE_POINTS, strict=True)
    ]
    points, _ = to.add_all(ops.Split(2, (2, 1)), to.add(ops.Concat(1), *parts))
    return _certain(to, points)


def _certain(to: Appender, points: str) -> str:
    """One row of score 1 of points [1, n, 2] that have no scores."""
    zero, one = (to.constant(np.full((1, 1, 1), value)) for value in (0, 1))
    return _row(to, zero, one, points, to.constant(np.ones((1, to.shape(points)[1], 1))))


def _row(to: Appender, label: str, score: str, points: str, sure: str) -> str:
    """One row, whose box is that of all points. label, score: [1, 1, 1]; points: [1, n, 2], and
    sure: [1, n, 1], their scores."""
    count = to.shape(points)[1]
    edges = (
        to.add(ops.Reshape((1, 1, 2)), to.add(op, points))
        for op in (ops.ReduceMin((1,)), ops.ReduceMax((1,)))
    )
    found = to.add(ops.Concat(2), points, sure)
    found = to.add(ops.Reshape((1, 1, POINT_FIELDS * count)), found)
    image = to.constant(np.zeros((1, 1, 1)))
    row = to.add(ops.Concat(2), image, label, score, *edges, found)
    return to.add(ops.Reshape((1, 1, 1, FIELDS + POINT_FIELDS * count)), row)
