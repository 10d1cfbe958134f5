"""Heads that find people or animals with the points of their bodies."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from edgekit.device.runtime.agent.task import FIELDS, LETTERBOX, POINT_FIELDS, STRETCH
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.candidates import best_rows, with_image, with_scores
from edgekit.host.compiler.tasks.center_net_lite import lite_center_poses
from edgekit.host.compiler.tasks.distances import raw_poses
from edgekit.host.compiler.tasks.ends import Ends, InputImage
from edgekit.host.compiler.tasks.given import found_before, lengths_of, only_found
from edgekit.host.compiler.tasks.heads import Head, in_pixels, sizes_of
from edgekit.host.compiler.tasks.instances import without_object_score
from edgekit.host.compiler.tasks.landmarks import landmarks
from edgekit.host.compiler.tasks.persons import pose_net, sim_cc
from edgekit.host.compiler.tasks.yolo import (
    MOST_ROWS,
    X_PIXELS,
    behind_boxes,
    behind_selected,
    box_counts,
    numbers_of_points,
)

PERSON_POINTS = (17, 3)  # of COCO: points, and numbers of each
_FACE_POINTS = 5  # eyes, nose and corners of the mouth


def pose_heads(ends: Ends, points: tuple[int, int]) -> Iterator[Head]:
    """YOLO's poses: [1, 4 + classes + numbers of points, boxes], or [1, rows, 6 + numbers of
    points] of models that select. `points` and the numbers of each are from the file's metadata.
    """
    output, image = ends.only(3), ends.image
    if output is not None and output.shape[1:] == (image.height, image.width):
        return  # a map, such as a depth
    yield from _move_net(ends)
    yield from landmarks(ends)
    yield from sim_cc(ends)
    yield from pose_net(ends)
    yield from _rtmo(ends)
    yield from _decoded(ends)
    yield from lite_center_poses(ends)
    yield from _anchored(ends)
    yield from raw_poses(ends)
    if output is None:
        return
    numbers = points[0] * points[1]
    _, fields, boxes = output.shape
    if fields > 4 + numbers and boxes in box_counts(ends.image, 1):
        yield Head(
            "yolo-pose",
            f"'{output.name}' is like YOLOv8's poses",
            fields - 4 - numbers,
            lambda to: _selected_rows(to, ends.image, output.name, points),
            labels=("person",) if fields == 5 + numbers and points == PERSON_POINTS else (),
        )
    elif boxes == 6 + numbers and 1 < fields <= MOST_ROWS:
        yield Head(
            "yolo-pose",
            f"'{output.name}' is like YOLO26's poses, which it selects",
            0,
            lambda to: _given_rows(to, ends.image, output.name, points),
            labels=("person",) if points == PERSON_POINTS else (),
        )


def points_behind(ends: Ends) -> tuple[int, int] | None:
    """The points that follow boxes and scores in the output, and the numbers of each; None if there
    are none, or if these may be two or three."""
    output = ends.only(3)
    if output is None:
        return None
    numbers = numbers_of_points(ends, output) or behind_selected(ends, output)
    if not numbers or numbers % 6 == 0 or (numbers % 2 and numbers % 3):
        return None
    each = 2 if numbers % 3 else 3
    return numbers // each, each


def _move_net(ends: Ends) -> Iterator[Head]:
    """MoveNet: [1, 1, 17, 3] of y, x and score of each point, or [1, persons, 56] with top, left,
    bottom, right and score of the person behind them; all relative to the picture."""
    if len(ends.outputs) != 1:
        return
    output, (count, _) = ends.outputs[0], PERSON_POINTS
    several = len(output.shape) == 3 and output.shape[2] == 3 * count + 5
    if output.shape != (1, 1, count, 3) and not several:
        return
    if output.shape[0] != 1 or output.dtype is not DType.F32:
        return
    persons = output.shape[1]

    def rows(to: Appender) -> str:
        x = to.add(ops.Reshape((1, persons, math.prod(output.shape[2:]))), output.name)
        if several:
            x, edges, score = to.add_all(ops.Split(2, (3 * count, 4, 1)), x)
            edges = to.add(ops.Reshape((1, persons, 2, 2)), edges)
        points = to.add(ops.Reshape((1, persons, count, 3)), x)
        at, sure = to.add_all(ops.Split(3, (2, 1)), points)
        if not several:
            low, high = (to.add(op, at) for op in (ops.ReduceMin((2,)), ops.ReduceMax((2,))))
            edges = to.add(
                ops.Concat(2),
                *(to.add(ops.Reshape((1, persons, 1, 2)), each) for each in (low, high)),
            )
            score = to.add(ops.Reshape((1, persons, 1)), to.add(ops.ReduceSum((2,)), sure))
            score = to.add(ops.Mul(), score, to.constant(np.full((1, 1, 1), 1 / count)))
        unit = to.constant(sizes_of(ends.image)[0, 0, :2][None, None, None])
        flip = to.constant(np.array([1, 0]), DType.I64)
        at, edges = (to.add(ops.Mul(), to.add(ops.Gather(3), v, flip), unit) for v in (at, edges))
        found = to.add(ops.Reshape((1, persons, 3 * count)), to.add(ops.Concat(3), at, sure))
        corners = to.add(ops.Reshape((1, persons, 4)), edges)
        none = to.constant(np.zeros((1, persons, 2)))
        made = to.add(ops.Concat(2), none, score, corners, found)
        return to.add(ops.Reshape((1, 1, persons, FIELDS + 3 * count)), made)

    pixels = {"fit": LETTERBOX, "fill": 0, "mean": (0.0,), "scale": (1.0,)}
    what = f"'{output.name}' is like MoveNet's"
    yield Head("movenet", what, 1, rows, pixels, ("person",))


def _rtmo(ends: Ends) -> Iterator[Head]:
    """RTMO: corners and score of each person [1, n, 5], and x, y and score of their points
    [1, n, points, 3], both in pixels."""
    named = {t.name: t for t in ends.outputs if t not in lengths_of(ends)}
    if {*named} != {"dets", "keypoints"}:
        return
    boxes, points = named["dets"], named["keypoints"]
    count = boxes.elements // 5
    if boxes.shape != (1, count, 5) or points.shape[:2] != (1, count):
        return
    if points.shape[3:] != (POINT_FIELDS,) or count > MOST_ROWS:
        return

    def rows(to: Appender) -> str:
        corners, score = to.add_all(ops.Split(2, (4, 1)), to.floats(boxes.name))
        numbers = POINT_FIELDS * points.shape[2]
        found = to.add(ops.Reshape((1, count, numbers)), to.floats(points.name))
        label = only_found(to, ends, to.constant(np.zeros((1, count, 1))), count)
        return with_image(to, label, score, corners, found)

    labels = ("person",) if points.shape[2] == PERSON_POINTS[0] else ()
    yield Head("rtmo", "outputs are RTMO's", 1, rows, X_PIXELS, labels)


def _decoded(ends: Ends) -> Iterator[Head]:
    """Coral's PoseNet, which ends in PosenetDecoderOp: y and x of the points of each person in
    pixels, their scores, that of the person, and how many are found."""
    nodes = [node for node in ends.graph.nodes if isinstance(node.op, ops.DecodePoses)]
    if len(nodes) != 1 or not {*nodes[0].outputs} <= {*ends.graph.outputs}:
        return
    places, sure, scores, number = nodes[0].outputs
    _, count, each, _ = ends.graph.tensors[places].shape

    def rows(to: Appender) -> str:
        points = to.add(ops.Gather(3), places, to.constant(np.array([1, 0]), DType.I64))
        edges = [to.add(op, points) for op in (ops.ReduceMin((2,)), ops.ReduceMax((2,)))]
        edges = [to.add(ops.Reshape((1, count, 2)), edge) for edge in edges]
        certain = to.add(ops.Reshape((1, count, each, 1)), sure)
        flat = to.add(ops.Concat(3), points, certain)
        flat = to.add(ops.Reshape((1, count, POINT_FIELDS * each)), flat)
        label = found_before(to, number, to.constant(np.zeros((1, count, 1))), count)
        score = to.add(ops.Reshape((1, count, 1)), scores)
        return with_image(to, label, score, *edges, flat)

    pixels = {"fit": STRETCH}
    yield Head("posenet-decoded", "it ends in PosenetDecoderOp", 1, rows, pixels, ("person",))


def _anchored(ends: Ends) -> Iterator[Head]:
    """YOLOv7's poses and faces: [1, boxes, 5 + classes + numbers of points], with how visible each
    is; YOLOv5's faces, whose points are before the classes."""
    output = ends.only(3)
    if output is None or output.shape[1] not in box_counts(ends.image, 3):
        return
    behind = behind_boxes(ends, output)
    if len(behind) == 2 and behind[0] > 1 and behind[1] % POINT_FIELDS == 0:
        classes, points = behind[0] - 1, (behind[1] // POINT_FIELDS, POINT_FIELDS)
    elif len(behind) > 2 and behind[:-1] == (1, *(2,) * (len(behind) - 2)):
        classes, points = behind[-1], (len(behind) - 2, 2)
    else:
        return
    numbers = points[0] * points[1]

    def rows(to: Appender) -> str:
        x = to.floats(output.name)
        if points[1] == 2:
            box, found, score = to.add_all(ops.Split(2, (5, numbers, classes)), x)
            x = to.add(ops.Concat(2), box, score, found)
        x = without_object_score(to, x, classes)
        return best_rows(
            to, ends.image, x, numbers, lambda v: _points_in_pixels(to, ends.image, v, points)
        )

    person = classes == 1 and points == PERSON_POINTS
    label = "person" if person else "face" if points[0] == _FACE_POINTS else ""
    what = f"'{output.name}' is like YOLOv{'5' if points[1] == 2 else '7'}'s, with points"
    yield Head("yolo-anchored-pose", what, classes, rows, labels=(label,) if label else ())


def _selected_rows(to: Appender, image: InputImage, name: str, points: tuple[int, int]) -> str:
    rest = points[0] * points[1]
    return best_rows(
        to, image, to.floats(name), rest, lambda found: _points_in_pixels(to, image, found, points)
    )


def _given_rows(to: Appender, image: InputImage, name: str, points: tuple[int, int]) -> str:
    x = to.floats(name)
    box, score, label, found = to.add_all(ops.Split(2, (4, 1, 1, points[0] * points[1])), x)
    return with_image(
        to,
        label,
        score,
        in_pixels(to, image, box, sizes_of(image)),
        _points_in_pixels(to, image, found, points),
    )


def _points_in_pixels(to: Appender, image: InputImage, found: str, points: tuple[int, int]) -> str:
    """POINT_FIELDS of each point [1, n, …]: in pixels of the input, and certain if the model does
    not say how visible it is."""
    count, size = points
    found = with_scores(to, found, size)
    unit = np.tile([image.width, image.height, 1], count)
    return in_pixels(to, image, found, unit[None, None])
