"""Heads that find the points of one body: SimCC and ViTPose's maps, where it fills the picture, and
PoseNet (Papandreou et al., 2018)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from edgekit.device.runtime.agent.task import LETTERBOX, POINT_FIELDS
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.candidates import with_image
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.heads import Head
from edgekit.host.compiler.tasks.usual_pixels import IMAGENET_SCALING

_PERSON = (17, 26, 133)  # points of COCO, Halpe and COCO-WholeBody
_UPRIGHT, _PART = (3, 4), 4  # proportions of a person, and pixels along a pixel of a map
_LEAST_MAPS, _MOST_POINTS = 4, 256
_PARTS = 2  # of a pixel, for each of which RTMPose has a score
# Names of networks, data and exporters of maps of points; hourglasses take pixels in another way.
_OF_POINTS = re.compile(r"(?=.*((?<!pur)(?<!com)pose|keypoint|mpii|onehand10k|rhd2d|freihand))"
                        r"(?!.*(hourglass|seg|open[-_]?pose|posenet))", re.I)  # fmt: skip
_HRNET = re.compile(r"(?=.*(hrnet|ap[-_]?10k))(?!.*(seg|cityscapes))", re.I)  # finds classes, too
_HAND = re.compile(r"hand|rhd2d", re.I)
_EXACT = 1 << 24  # numbers of places are computed in f32
_PIXELS = {
    "fit": LETTERBOX,
    "fill": 0,
    **IMAGENET_SCALING,
}
# Of PoseNet's outputs: as browsers have it, and as TensorFlow Lite's file for a picture of 257.
_NET_CHANNELS = ((17, 32, 32, 34), (1, 17, 34, 64))
_NET_PIXELS = {"fit": LETTERBOX, "fill": 0, "mean": (127.5,), "scale": (127.5,)}
_FACE, _FACE_POINTS, _FACE_OUTPUT = (256, 256, 3), 68, "landmarks_xyscore"
_FACE_PIXELS = {"fit": LETTERBOX, "fill": 0, "mean": (0.0,), "scale": (255.0,)}
_FAN = re.compile(r"(?<![a-z])(2d)?fan([-_.\d]|$)")
_ANIMALS = re.compile(r"ap[-_]?10k|apt[-_]?36k|animal", re.I)
_SIGMA, _RADIUS = 0.8, 5  # of the blur before ViTPose's maps are read
_TINY = float(np.finfo(np.float32).eps)
_LOW, _HIGH = 0.001, 50.0  # scores whose logarithm is taken
# Of a value and those around it, row by row: both first and all second derivatives.
_DERIVATIVES = np.array(
    [
        [0, 0, 0, -0.5, 0, 0.5, 0, 0, 0],
        [0, -0.5, 0, 0, 0, 0, 0, 0.5, 0],
        [0, 0, 0, 1, -2, 1, 0, 0, 0],
        [0, 1, 0, 0, -2, 0, 0, 1, 0],
        [0.5, -0.5, 0, -0.5, 1, -0.5, 0, -0.5, 0.5],
    ]
).T


def named_bodies(head: Head, stem: str) -> Head:
    """The head with the label of animals where the name of the file says that it was trained with
    AP-10K or APT-36K, whose 17 points are not a person's; of hands, of which it says so, too."""
    is_animal = head.labels == _labels(_PERSON[0]) and _ANIMALS.search(stem)
    is_hand = head.name in ("simcc", "hrnet") and not head.labels and _HAND.search(stem)
    whose = "animal" if is_animal else "hand" if is_hand else ""
    return replace(head, labels=(whose,)) if whose else head


def sim_cc(ends: Ends) -> Iterator[Head]:
    """RTMPose: scores of each column [1, points, columns] and of each row, which are parts of
    pixels, in `simcc_x` and `simcc_y`, or, in pictures that are no squares, halves of pixels."""
    named = {tensor.name: tensor for tensor in ends.outputs}
    if {*named} != {"simcc_x", "simcc_y"}:
        sizes = {tensor.shape[-1]: tensor for tensor in ends.outputs if len(tensor.shape) == 3}
        sides = (_PARTS * ends.image.width, _PARTS * ends.image.height)
        if len(ends.outputs) != 2 or {*sizes} != {*sides} or len(sizes) < 2:
            return
        named = {"simcc_x": sizes[sides[0]], "simcc_y": sizes[sides[1]]}
    across, down = named["simcc_x"], named["simcc_y"]
    if {len(across.shape), len(down.shape)} != {3} or across.shape[0] != 1:
        return
    count, width, height = across.shape[1], across.shape[2], down.shape[2]
    square = width * ends.image.height == height * ends.image.width
    if down.shape[:2] != (1, count) or not square or count > _MOST_POINTS:
        return
    part = ends.image.width / width

    def rows(to: Appender) -> str:
        both = [to.floats(tensor.name) for tensor in (across, down)]
        places = to.add(ops.Concat(2), *(_place(to, each, count) for each in both))
        at = to.add(ops.Mul(), places, _number(to, part))
        best = (_best(to, each, count) for each in both)
        return _row(to, at, to.add(ops.Minimum(), *best))

    yield Head("simcc", "outputs are like RTMPose's, for one body that fills the picture", 1, rows,
               _PIXELS, _labels(count))  # fmt: skip


def pose_net(ends: Ends) -> Iterator[Head]:
    """PoseNet: maps of 17 points [1, h, w, 17], and how far down, and then across, each is from the
    corner of its cell [1, h, w, 34], in pixels. Cells of the edges end at those of the picture.
    Maps of limbs, by which several persons are told apart, and of who is where are left out."""
    points = _PERSON[0]
    by_size = {t.shape[3]: t for t in ends.outputs if len(t.shape) == 4}
    channels = tuple(sorted(t.shape[-1] for t in ends.outputs))
    if channels not in _NET_CHANNELS or len(by_size) != len({*channels}):
        return
    heat, shifts = by_size[points], by_size[2 * points]
    _, height, width, _ = heat.shape
    if shifts.shape != (1, height, width, 2 * points) or min(height, width) < 2:
        return
    count = height * width
    unit = [[[(ends.image.width - 1) / (width - 1), (ends.image.height - 1) / (height - 1)]]]

    def rows(to: Appender) -> str:
        maps = to.add(ops.Transpose((0, 2, 1)), _flat(to, heat))
        place = _place(to, maps, points)
        cells = to.add(ops.Mul(), to.add(ops.Concat(2), *_cells(to, place, width)),
                       to.constant(np.array(unit)))  # fmt: skip
        first = to.constant(count * np.arange(2 * points).reshape(2, points, 1))
        number = to.add(ops.Convert(DType.I64), to.add(ops.Add(), place, first))
        values = to.add(ops.Transpose((0, 2, 1)), _flat(to, shifts))
        values = to.add(ops.Reshape((2 * points * count,)), values)
        found = to.add(ops.Gather(0), values, to.add(ops.Reshape((2 * points,)), number))
        found = to.add(ops.Reshape((2, points, 1)), found)
        down, across = to.add_all(ops.Split(0, (1, 1)), found)
        at = to.add(ops.Add(), cells, to.add(ops.Concat(2), across, down))
        return _row(to, at, to.add(ops.Logistic(), _best(to, maps, points)))

    yield Head("posenet", "outputs are PoseNet's, of which one person is found", 1, rows,
               _NET_PIXELS, _labels(points))  # fmt: skip


def vit_pose(ends: Ends) -> Iterator[Head]:
    """Maps [1, points, rows, columns] of how likely each point is where, read as ViTPose's authors
    do: by the derivatives of their logarithm, without bias (Huang et al., 2020)."""
    output, image = ends.only(4), ends.image
    if output is None:
        return
    _, count, height, width = output.shape
    fits = width * image.height == height * image.width and min(height, width) > 2
    if not fits or count > _MOST_POINTS or output.elements > _EXACT:
        return

    unit = np.array([[[(image.width - 1) / (width - 1), (image.height - 1) / (height - 1)]]])
    what = f"'{output.name}' is like ViTPose's, for one body that fills the picture"
    yield _of_maps("vitpose", what, output, unit)


def person_maps(ends: Ends, stem: str) -> Iterator[Head]:
    """Such maps of a person's 17 points, whose pixels are 4 x 4 of the input's, in an upright one,
    as networks after Xiao et al. (2018) have them, such as HRNet; in others, and of other points,
    where the name of the file says that they are points. TinyPose's files also give the places of
    the largest values."""
    maps, image = [t for t in ends.outputs if not ends.choices(t.name)], ends.image
    output = maps[0] if len(maps) == 1 and len(maps[0].shape) == 4 else None
    if output is None or image.channels != 3:
        return
    sides, count = (image.height // _PART, image.width // _PART), output.shape[1]
    upright = image.width * _UPRIGHT[1] == image.height * _UPRIGHT[0] and count == _PERSON[0]
    known = _OF_POINTS.match(stem) or (_HRNET.match(stem) and count == _PERSON[0])
    named = known and _LEAST_MAPS < count <= _MOST_POINTS
    if output.shape == (1, count, *sides) and min(sides) > 2 and (upright or named):
        what = f"'{output.name}' may be maps of the points of one body that fills the picture"
        yield _of_maps("hrnet", what, output, np.full((1, 1, 2), _PART))


def face_maps(ends: Ends, stem: str) -> Iterator[Head]:
    """FAN (Bulat and Tzimiropoulos, 2017), which is known by its name, since others after it take
    pixels in other ways: maps of 68 points of a face, which are a quarter of a pixel towards the
    larger neighbor. Files with the points, in pixels of the maps, name both outputs."""
    image, maps = ends.image, next((t for t in ends.outputs if len(t.shape) == 4), None)
    if maps is None or (image.height, image.width, image.channels) != _FACE:
        return
    if maps.shape != (1, _FACE_POINTS, *(n // _PART for n in _FACE[:2])):
        return
    points = next((t for t in ends.outputs if t.name == _FACE_OUTPUT), None)
    if points is None and not (len(ends.outputs) == 1 and _FAN.search(stem.lower())):
        return
    _, count, height, width = maps.shape

    def rows(to: Appender) -> str:
        flat = to.add(ops.Reshape((1, count, height * width)), to.floats(maps.name))
        if points is not None:
            found = to.add(ops.Reshape((1, count, POINT_FIELDS)), to.floats(points.name))
            at, _ = to.add_all(ops.Split(2, (2, 1)), found)
        else:
            column, row = _cells(to, _place(to, flat, count), width)
            values = to.add(ops.Reshape((maps.elements,)), flat)
            slope = _derivatives(to, values, (height, width), column, row)
            slope, _ = to.add_all(ops.Split(2, (2, 3)), slope)
            step = to.add(ops.Mul(), to.add(ops.Sign(), slope), _number(to, 0.25))
            middle = to.add(ops.Add(), to.add(ops.Concat(2), column, row), _number(to, 0.5))
            at = to.add(ops.Add(), middle, step)
        return _row(to, to.add(ops.Mul(), at, _number(to, _PART)), _best(to, flat, count))

    what = f"'{maps.name}' is like FAN's maps of the points of a face, which fills the picture and "
    what += "is not looked for"
    yield Head("fan", what, 1, rows, _FACE_PIXELS, ("face",))


def undecided_maps(ends: Ends) -> str:
    """What is missing where the only output may be maps of points, or of classes; else empty."""
    output = ends.only(4)
    if output is None or output.shape[1] < _LEAST_MAPS or not any(vit_pose(ends)):
        return ""
    return (
        f"'{output.name}' may be {output.shape[1]} maps of points, for --task pose, or of classes, "
        "for --task segment"
    )


def _of_maps(name: str, what: str, output: Tensor, unit: Array) -> Head:
    """The head whose `output` are maps of points; a pixel of them is `unit` of the input's."""
    _, count, height, width = output.shape

    def rows(to: Appender) -> str:
        maps = to.floats(output.name)
        flat = to.add(ops.Reshape((1, count, height * width)), maps)
        place = _place(to, flat, count)
        column, row = _cells(to, place, width)
        shift = _shift(to, _logarithms(to, maps), (height, width), column, row)
        at = to.add(ops.Sub(), to.add(ops.Concat(2), column, row), shift)
        at = to.add(ops.Mul(), at, to.constant(unit))
        return _row(to, at, _best(to, flat, count))

    return Head(name, what, 1, rows, _PIXELS, _labels(count))


def _labels(count: int) -> tuple[str, ...]:
    return ("person",) if count in _PERSON else ()


def _place(to: Appender, x: str, count: int) -> str:
    """Numbers [1, points, 1] of the largest values [1, points, n]."""
    best = to.add(ops.Convert(DType.F32), to.add(ops.ArgExtreme(2), x))
    return to.add(ops.Reshape((1, count, 1)), best)


def _flat(to: Appender, maps: Tensor) -> str:
    """Maps [1, h, w, n] as [1, h · w, n]."""
    _, height, width, count = maps.shape
    return to.add(ops.Reshape((1, height * width, count)), to.floats(maps.name))


def _cells(to: Appender, place: str, width: int) -> tuple[str, str]:
    """Columns and rows of places [1, points, 1] in maps of that width."""
    middle = to.add(ops.Add(), place, _number(to, 0.5))  # far from where rounding matters
    row = to.add(ops.Floor(), to.add(ops.Mul(), middle, _number(to, 1 / width)))
    return to.add(ops.Sub(), place, to.add(ops.Mul(), row, _number(to, width))), row


def _best(to: Appender, x: str, count: int) -> str:
    return to.add(ops.Reshape((1, count, 1)), to.add(ops.ReduceMax((2,)), x))


def _logarithms(to: Appender, maps: str) -> str:
    """Those of the blurred maps, in one row."""
    _, count, height, width = to.shape(maps)
    blurred = to.add(ops.MatMul(), maps, to.constant(_blur(width).T[None, None]))
    blurred = to.add(ops.MatMul(), to.constant(_blur(height)[None, None]), blurred)
    safe = _between(to, blurred, _LOW, _HIGH)
    return to.add(ops.Reshape((count * height * width,)), to.add(ops.Log(), safe))


def _blur(size: int) -> Array:
    """The matrix that blurs a line of so many values, which is mirrored at its ends."""
    weights = np.exp(-0.5 * (np.arange(-_RADIUS, _RADIUS + 1) / _SIGMA) ** 2)
    made = np.zeros((size, size))
    for step, weight in zip(range(-_RADIUS, _RADIUS + 1), weights / weights.sum(), strict=True):
        at = (np.arange(size) + step) % (2 * size)
        np.add.at(made, (np.arange(size), np.minimum(at, 2 * size - 1 - at)), weight)
    return made


def _shift(to: Appender, values: str, size: tuple[int, int], column: str, row: str) -> str:
    """How far the largest values, which are in these columns and rows, are behind the extremum of
    the parabola through them and their neighbors: x and y [1, points, 2], at most 1."""
    made = _derivatives(to, values, size, column, row)
    dx, dy, dxx, dyy, dxy = to.add_all(ops.Split(2, (1,) * 5), made)
    dxx, dyy = (to.add(ops.Add(), each, _number(to, _TINY)) for each in (dxx, dyy))

    def crossed(a: str, b: str, c: str, d: str) -> str:
        return to.add(ops.Sub(), to.add(ops.Mul(), a, b), to.add(ops.Mul(), c, d))

    area = crossed(dxx, dyy, dxy, dxy)
    across, down = crossed(dyy, dx, dxy, dy), crossed(dxx, dy, dxy, dx)
    shift = to.add(ops.Concat(2), *(to.add(ops.Div(), each, area) for each in (across, down)))
    return _between(to, shift, -1, 1)


def _derivatives(to: Appender, values: str, size: tuple[int, int], column: str, row: str) -> str:
    """Those of maps in one row, across and down, twice of each and of both, at these columns and
    rows [1, points, 5]."""
    count, (height, width) = to.shape(column)[1], size
    y, x = (
        _between(to, to.add(ops.Add(), at, to.constant(step.reshape(1, 1, 9))), 0, last - 1)
        for at, step, last in zip((row, column), np.mgrid[-1:2, -1:2], size, strict=True)
    )
    first = to.constant(height * width * np.arange(count)[None, :, None])
    number = to.add(ops.Add(), to.add(ops.Mul(), y, _number(to, width)), x)
    number = to.add(ops.Convert(DType.I64), to.add(ops.Add(), number, first))
    around = to.add(ops.Gather(0), values, to.add(ops.Reshape((9 * count,)), number))
    around = to.add(ops.Reshape((1, count, 9)), around)
    return to.add(ops.MatMul(), around, to.constant(_DERIVATIVES[None]))


def _between(to: Appender, x: str, low: float, high: float) -> str:
    x = to.add(ops.Maximum(), x, to.constant(np.full((1,) * len(to.shape(x)), low)))
    return to.add(ops.Minimum(), x, to.constant(np.full((1,) * len(to.shape(x)), high)))


def _number(to: Appender, value: float) -> str:
    return to.constant(np.full((1, 1, 1), value))


def _row(to: Appender, at: str, sure: str) -> str:
    """One row of points [1, points, 2] and their scores [1, points, 1]. The box is that of all
    points, and its score their mean."""
    count = to.shape(at)[1]
    sure = _between(to, sure, 0, 1)
    total = to.add(ops.Reshape((1, 1, 1)), to.add(ops.ReduceSum((1,)), sure))
    edges = [
        to.add(ops.Reshape((1, 1, 2)), to.add(op, at))
        for op in (ops.ReduceMin((1,)), ops.ReduceMax((1,)))
    ]
    points = to.add(ops.Concat(2), at, sure)
    points = to.add(ops.Reshape((1, 1, POINT_FIELDS * count)), points)
    mean = to.add(ops.Mul(), total, _number(to, 1 / count))
    return with_image(to, _number(to, 0), mean, *edges, points)
