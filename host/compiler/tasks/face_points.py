"""Heads of face detectors that also give points, which are left out: RetinaFace (Deng et al., 2019)
in PyTorch's form, CenterFace (Xu et al., 2019), and YuNet of before 2023, which also finds license
plates."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from edgekit.device.runtime.agent.task import BGR, CORNER, STRETCH
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends, InputImage
from edgekit.host.compiler.tasks.faces import ULTRA_SIDES, square_priors
from edgekit.host.compiler.tasks.heads import (
    Head,
    Limits,
    grid_of,
    prior_boxes,
    selected,
    suppressed,
    to_corners,
)

_RETINA_SIDES = {8: (16, 32), 16: (64, 128), 32: (256, 512)}  # by stride
_RETINA_PIXELS = {
    "fit": CORNER,
    "fill": 0,
    "channels": BGR,
    "mean": (104.0, 117.0, 123.0),
    "scale": (1.0,),
}
_RETINA_LIMITS = Limits(0.6, 0.4)  # of its authors' program
_STRIDE = 4  # of CenterFace
_CENTER_PIXELS = {"fit": STRETCH, "mean": (0.0,), "scale": (1.0,)}
_CENTER_LIMITS = Limits(0.5, 0.3)  # of its authors' program
_LABELS = ("face",)
_YUNET_FIELDS = {"loc": 14, "conf": 2, "iou": 1}  # numbers of each prior by the output's name
_YUNET_PIXELS = {"channels": BGR, "mean": (0.0,), "scale": (1.0,)}
_YUNET_LIMITS, _PLATE_LIMITS = Limits(0.9, 0.3), Limits(0.8, 0.3)  # of OpenCV's programs
_Corners = Callable[[Appender, str, Array], str]  # of boxes [1, n, 4], by offsets from priors
_PLATE_CORNERS = (4, 6, 10, 12)  # where x and y of each corner of a plate are among the 14


def retina_face(ends: Ends) -> Iterator[Head]:
    """RetinaFace, and smaller networks of its kind: offsets of boxes [1, n, 4] and of points
    [1, n, 10] from priors, and scores of background and face [1, n, 2]."""
    shapes = [t.shape for t in ends.outputs]
    if len(shapes) != 3 or any(len(shape) != 3 or shape[0] != 1 for shape in shapes):
        return
    by_width = {t.shape[2]: t for t in ends.outputs}
    count = shapes[0][1]
    if {*by_width} != {2, 4, 10} or {shape[1] for shape in shapes} != {count}:
        return
    known = (np.array(list(square_priors(ends.image, s))) for s in (_RETINA_SIDES, ULTRA_SIDES))
    priors = next((each for each in known if len(each) == count), None)
    if priors is None or ends.computes(ops.Exp.kind):  # which decodes them
        return
    scores = by_width[2].name
    done = ends.is_from(scores, ops.Softmax.kind)

    def rows(to: Appender) -> str:
        shares = to.floats(scores) if done else to.add(ops.Softmax(), to.floats(scores))
        _, face = to.add_all(ops.Split(2, (1, 1)), shares)
        box = prior_boxes(to, to.floats(by_width[4].name), priors)
        return selected(to, box, to.add(ops.Transpose((0, 2, 1)), face), _RETINA_LIMITS)

    yield Head("retinaface", "outputs are RetinaFace's", 1, rows, _RETINA_PIXELS, _LABELS)


def center_face(ends: Ends) -> Iterator[Head]:
    """CenterFace: maps of scores [1, 1, h, w], logarithms of height and width and shifts of the
    center down and across [1, 2, h, w], both in cells, and points [1, 10, h, w], in this order."""
    grid = ends.image.grid(_STRIDE)
    if [t.shape for t in ends.outputs] != [(1, n, *grid) for n in (1, 2, 2, 10)]:
        return
    heat, sizes, shifts, _ = ends.outputs
    if not ends.is_from(heat.name, ops.Logistic.kind):
        return
    cells, _ = grid_of(ends.image, (_STRIDE,))

    def rows(to: Appender) -> str:
        size, shift = (_across_first(to, each) for each in (sizes, shifts))
        center = to.add(ops.Add(), shift, to.constant(cells[None] + 0.5))
        box = to.add(ops.Concat(2), center, to.add(ops.Exp(), size))
        box = to.add(ops.Mul(), box, to.constant(np.full((1, 1, 1), _STRIDE)))
        score = to.add(ops.Reshape((1, 1, heat.elements)), to.floats(heat.name))
        return selected(to, box, score, _CENTER_LIMITS)

    yield Head("centerface", "outputs are CenterFace's", 1, rows, _CENTER_PIXELS, _LABELS)


def old_yu_net(ends: Ends) -> Iterator[Head]:
    """YuNet of before 2023: offsets from priors [n, 14], of a box and of five points or of a
    plate's corners, scores of background and object, and how good the box is. Both have the same
    shapes."""
    named = {t.name: t for t in ends.outputs}
    priors = _cut_priors(ends.image)
    fits = {name: (len(priors), width) for name, width in _YUNET_FIELDS.items()}
    if {name: t.shape[-2:] for name, t in named.items()} != fits:
        return
    for name, label, limits, fit, corners in (
        ("face-detection-yunet", "face", _YUNET_LIMITS, {"fit": CORNER, "fill": 0}, _face_corners),
        ("license-plate-detection", "plate", _PLATE_LIMITS, {"fit": STRETCH}, _plate_corners),
    ):

        def rows(to: Appender, limits: Limits = limits, corners: _Corners = corners) -> str:
            conf, iou, loc = (
                to.add(ops.Reshape((1, len(priors), t.shape[-1])), to.floats(t.name))
                for t in (named["conf"], named["iou"], named["loc"])
            )
            _, sure = to.add_all(ops.Split(2, (1, 1)), conf)
            zero, one = (to.constant(np.full((1, 1, 1), value)) for value in (0, 1))
            good = to.add(ops.Minimum(), to.add(ops.Maximum(), iou, zero), one)
            score = to.add(ops.Sqrt(), to.add(ops.Mul(), sure, good))
            score = to.add(ops.Transpose((0, 2, 1)), score)
            return suppressed(to, corners(to, loc, priors), score, limits)

        what = f"outputs are those of YuNet of before 2023 for {label}s"
        family = name.replace("-", "")
        yield Head(name, what, 1, rows, {**_YUNET_PIXELS, **fit}, (label,), family=family)


def _cut_priors(image: InputImage) -> Array:
    """Squares around the centers of cells, of which those that are cut at an edge have none:
    center and size in pixels [n, 4]."""
    made = [
        (x * stride, y * stride, side, side)
        for stride, sides in ULTRA_SIDES.items()
        for y in np.arange(image.height // stride) + 0.5
        for x in np.arange(image.width // stride) + 0.5
        for side in sides
    ]
    return np.array(made)


def _face_corners(to: Appender, loc: str, priors: Array) -> str:
    box, _ = to.add_all(ops.Split(2, (4, _YUNET_FIELDS["loc"] - 4)), loc)
    return to_corners(to, prior_boxes(to, box, priors))


def _plate_corners(to: Appender, loc: str, priors: Array) -> str:
    """The upright box around the four corners."""
    places = []
    for axis in (0, 1):
        numbers = to.constant([first + axis for first in _PLATE_CORNERS], DType.I32)
        shift = to.constant(0.1 * priors[None, :, 2:3])
        shift = to.add(ops.Mul(), to.add(ops.Gather(2), loc, numbers), shift)
        places.append(to.add(ops.Add(), shift, to.constant(priors[None, :, axis : axis + 1])))
    edges = (
        to.add(op((2,), keep_dims=True), place)
        for op in (ops.ReduceMin, ops.ReduceMax)
        for place in places
    )
    return to.add(ops.Concat(2), *edges)


def _across_first(to: Appender, x: Tensor) -> str:
    """Pairs of a map as [1, cells, 2], which are down and across there."""
    flat = to.add(ops.Reshape((1, 2, x.elements // 2)), to.floats(x.name))
    down, across = to.add_all(ops.Split(1, (1, 1)), flat)
    return to.add(ops.Transpose((0, 2, 1)), to.add(ops.Concat(1), across, down))
