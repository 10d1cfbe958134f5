"""CenterNet (Zhou et al., 2019): boxes around the peaks of a map for each class; FOMO, whose peaks
are cells with objects; and DetectNet_v2 of NVIDIA's TAO, with boxes for each cell and class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgekit.device.runtime.agent.task import BGR, LETTERBOX, STRETCH
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Padding, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.heads import (
    KEEP,
    TOP,
    Head,
    Limits,
    grid_of,
    selected,
    suppressed,
)

_STRIDE = 4
_LIMITS = Limits(0.3, 1.0)  # of its authors' program, which suppresses no boxes
_PIXELS = {
    "fit": LETTERBOX,
    "fill": 0,
    "channels": BGR,
    "mean": (0.408 * 255, 0.447 * 255, 0.470 * 255),
    "scale": (0.289 * 255, 0.274 * 255, 0.278 * 255),
}
_CELL, _TINY = 8, 1e-7  # pixels of FOMO, and between scores that are taken for equal
_FOMO_LIMITS = Limits(0.5, 1.0, single=True)  # of Edge Impulse's program
_FOMO_PIXELS = {"fit": STRETCH}
_COVERED, _EDGES, _UNIT = (
    "output_cov",
    "output_bbox",
    35.0,
)  # of DetectNet_v2, whose unit is 35 pixels
_COVERED_STRIDE, _COVERED_LIMITS = 16, Limits(0.4, 0.5)
_SIZES, _SHIFTS = ("wh", "size"), ("reg", "offset", "off")


def center_net(ends: Ends) -> Iterator[Head]:
    """Maps of the classes [1, classes, h, w], perhaps before the sigmoid, and width and height, and
    the place of the center in its cell [1, 2, h, w], both in cells. Their names tell which is
    which."""
    grid = ends.image.grid(_STRIDE)
    maps = {t.name.lower(): t for t in ends.outputs if t.shape[:1] + t.shape[2:] == (1, *grid)}
    sizes, shifts = (next((maps[n] for n in known if n in maps), None)
                     for known in (_SIZES, _SHIFTS))  # fmt: skip
    if sizes is None or shifts is None or len(maps) != 3 or len(ends.outputs) != 3:
        return
    (heat,) = (t for t in maps.values() if t not in (sizes, shifts))
    if sizes.shape[1] != 2 or shifts.shape[1] != 2:
        return
    cells, sides = grid_of(ends.image, (_STRIDE,))
    done = ends.is_from(heat.name, ops.Logistic.kind)

    def rows(to: Appender) -> str:
        scores = to.floats(heat.name)
        scores = scores if done else to.add(ops.Logistic(), scores)
        shift, size = (_rows(to, each) for each in (shifts, sizes))
        box = to.add(ops.Concat(2), to.add(ops.Add(), shift, to.constant(cells[None])), size)
        box = to.add(ops.Mul(), box, to.constant(sides[None]))
        return selected(to, box, _peaks(to, scores), _LIMITS)

    yield Head("centernet", "outputs are those of CenterNet", heat.shape[1], rows, _PIXELS)


def fomo(ends: Ends) -> Iterator[Head]:
    """FOMO of Edge Impulse: shares [1, h, w, 1 + classes] of nothing and of an object of each class
    whose center is in the cell. Neighboring cells are of one object."""
    output, grid = ends.only(4), ends.image.grid(_CELL)
    if output is None or output.shape[1:3] != grid or output.shape[3] < 2:
        return
    whole = (ends.image.height, ends.image.width) == tuple(n * _CELL for n in grid)
    if not whole or not ends.is_from(output.name, ops.Softmax.kind):
        return
    cells, _ = grid_of(ends.image, (_CELL,))
    corners = _CELL * np.concatenate([cells, cells + 1], 1)[None]
    # Of equal neighbors, the first one counts.
    order = _TINY * np.arange(len(cells)).reshape(1, 1, *grid)

    def rows(to: Appender) -> str:
        shares = to.add(ops.Transpose((0, 3, 1, 2)), to.floats(output.name))
        _, scores = to.add_all(ops.Split(1, (1, output.shape[3] - 1)), shares)
        scores = to.add(ops.Sub(), scores, to.constant(order))
        return suppressed(to, to.constant(corners), _peaks(to, scores), _FOMO_LIMITS)

    what = f"'{output.name}' is like FOMO's, and boxes are the cells with the centers of objects"
    # FOMO is the first half of a MobileNet: nothing is enlarged or joined.
    joins = any(
        map(ends.computes, (ops.ResizeBilinear.kind, ops.Concat.kind, ops.TransposeConv2D.kind))
    )
    is_known = ends.computes(ops.DepthwiseConv2D.kind) and not joins
    doubt = f"'{output.name}' may be FOMO's cells with centers of objects, or a map of classes"
    yield Head(
        "fomo", what, output.shape[3] - 1, rows, _FOMO_PIXELS, doubt="" if is_known else doubt
    )


def detect_net(ends: Ends) -> Iterator[Head]:
    """DetectNet_v2: scores [1, classes, h, w], and for each class [1, 4 · classes, h, w] how far
    the edges are from the center of the cell, in units of 35 pixels."""
    named = {t.name.partition("/")[0]: t for t in ends.outputs}
    grid = ends.image.grid(_COVERED_STRIDE)
    if {*named} != {_COVERED, _EDGES} or len(ends.outputs) != len(named):
        return
    scores, edges = named[_COVERED], named[_EDGES]
    classes, count = scores.elements // (grid[0] * grid[1]), grid[0] * grid[1]
    if scores.shape != (1, classes, *grid) or edges.shape != (1, 4 * classes, *grid):
        return
    cells, _ = grid_of(ends.image, (_COVERED_STRIDE,))
    centers = np.tile(cells * _COVERED_STRIDE + 0.5, (1, 2))[None, :, None]

    def rows(to: Appender) -> str:
        far = to.add(ops.Reshape((1, classes, 4, count)), to.floats(edges.name))
        far = to.add(ops.Transpose((0, 3, 1, 2)), far)
        unit = to.constant(np.reshape([-_UNIT, -_UNIT, _UNIT, _UNIT], (1, 1, 1, 4)))
        corners = to.add(ops.Add(), to.add(ops.Mul(), far, unit), to.constant(centers))
        each = to.add(ops.Reshape((1, classes, count)), to.floats(scores.name))
        limits = _COVERED_LIMITS
        op = ops.DetectionOutput(KEEP, min(TOP, count), limits.least, limits.overlap)
        return to.add(op, corners, each)

    what = "outputs are those of DetectNet_v2"
    yield Head("detectnet", what, classes, rows, {"fit": STRETCH})


def _rows(to: Appender, x: Tensor) -> str:
    """[1, cells, 2]."""
    moved = to.add(ops.Transpose((0, 2, 3, 1)), to.floats(x.name))
    return to.add(ops.Reshape((1, x.elements // 2, 2)), moved)


def _peaks(to: Appender, scores: str) -> str:
    """Scores [1, classes, cells], which are 0 where a neighbor's is larger."""
    _, classes, *grid = to.shape(scores)
    image = to.add(ops.Transpose((0, 2, 3, 1)), scores)
    pool = ops.MaxPool2D((3, 3), padding=Padding(1, 1, 1, 1))
    is_peak = to.add(ops.Equal(), to.add(pool, image), image)
    kept = to.add(ops.Where(), is_peak, image, to.constant(np.zeros((1, 1, 1, 1))))
    return to.add(
        ops.Reshape((1, classes, grid[0] * grid[1])), to.add(ops.Transpose((0, 3, 1, 2)), kept)
    )
