"""Heads of face detectors that also give points, which are left out: RetinaFace (Deng et al., 2019)
in PyTorch's form, and CenterFace (Xu et al., 2019)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgekit.device.runtime.agent.task import BGR, CORNER, STRETCH
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.faces import ULTRA_SIDES, square_priors
from edgekit.host.compiler.tasks.heads import Head, Limits, grid_of, prior_boxes, selected

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


def _across_first(to: Appender, x: Tensor) -> str:
    """Pairs of a map as [1, cells, 2], which are down and across there."""
    flat = to.add(ops.Reshape((1, 2, x.elements // 2)), to.floats(x.name))
    down, across = to.add_all(ops.Split(1, (1, 1)), flat)
    return to.add(ops.Transpose((0, 2, 1)), to.add(ops.Concat(1), across, down))
