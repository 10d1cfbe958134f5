"""Heads of detectors for small computers: FastestDet, NanoDet-Plus and PicoDet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from edgekit.device.runtime.agent.task import BGR, STRETCH
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.coco import COCO
from edgekit.host.compiler.tasks.ends import Ends, InputImage
from edgekit.host.compiler.tasks.heads import Head, Limits, grid_of, selected, suppressed
from edgekit.host.compiler.tasks.usual_pixels import IMAGENET_BGR, IMAGENET_SCALING

_FASTEST_PIXELS = {"fit": STRETCH, "channels": BGR}
_FASTEST_STRIDE, _FASTEST_LIMITS = 16, Limits(0.65, 0.45, single=True)  # of its authors' program
_STRIDES = (8, 16, 32, 64)
_NANO_NAMES = ("cls_pred_stride_", "dis_pred_stride_")  # of its exporter
_NANO_LIMITS = Limits(0.35, 0.6)  # of its authors' program
_PICO_LIMITS = Limits(0.4, 0.5)  # of its authors' program
_PICO_PIXELS = {
    "fit": STRETCH,
    **IMAGENET_SCALING,
}
_NANO_PIXELS = {"fit": STRETCH, **IMAGENET_BGR}


def fastest_det(ends: Ends) -> Iterator[Head]:
    """FastestDet: [1, 5 + classes, rows, columns] of one grid with object, box and class scores."""
    output, image = ends.only(4), ends.image
    down, across = image.height // _FASTEST_STRIDE, image.width // _FASTEST_STRIDE
    if output is None or output.shape[2:] != (down, across):
        return
    fields = output.shape[1]
    if fields <= 5 or down * across < 2:
        return
    grid = np.stack(np.meshgrid(np.arange(across), np.arange(down)), -1).reshape(1, -1, 2)

    def rows(to: Appender) -> str:
        x = to.add(ops.Reshape((1, fields, down * across)), to.floats(output.name))
        sure, box, classes = to.add_all(ops.Split(1, (1, 4, fields - 5)), x)
        shift, size = to.add_all(ops.Split(2, (2, 2)), to.add(ops.Transpose((0, 2, 1)), box))
        cells = to.add(ops.Add(), to.add(ops.Tanh(), shift), to.constant(grid))
        centers = to.add(ops.Mul(), cells, to.constant(np.full((1, 1, 2), _FASTEST_STRIDE)))
        extents = to.constant(np.array([[[image.width, image.height]]]))
        box = to.add(
            ops.Concat(2), centers, to.add(ops.Mul(), to.add(ops.Logistic(), size), extents)
        )
        sure = to.add(ops.Pow(), sure, to.constant(np.full((1, 1, 1), 0.6)))
        classes = to.add(ops.Pow(), classes, to.constant(np.full((1, 1, 1), 0.4)))
        return selected(to, box, to.add(ops.Mul(), classes, sure), _FASTEST_LIMITS)

    parts = [size for _, size in ends.parts(output.name)]
    sure = parts == [1, 4, fields - 5] or fields - 5 == len(COCO)
    doubt = "" if sure else f"'{output.name}' may be a map of features, or FastestDet's"
    what = f"'{output.name}' is like FastestDet's"
    yield Head("fastestdet", what, fields - 5, rows, _FASTEST_PIXELS, doubt=doubt)


def nano_det(ends: Ends) -> Iterator[Head]:
    """NanoDet-Plus: [1, cells, classes + 4 distributions of the distance to an edge]. How many
    classes there are is seen where scores and distributions of a grid are joined."""
    output, image = ends.only(3), ends.image
    if output is None or output.shape[1] != sum(map(image.cells, _STRIDES)):
        return
    joined = [ends.parts(name) for name, _ in ends.parts(output.name)]
    sizes = {tuple(size for _, size in level) for level in joined}
    if len(sizes) != 1 or len(one := sizes.pop()) != 2 or sum(one) != output.shape[2]:
        return
    classes, width = one
    certain = all(ends.is_from(level[0][0], ops.Logistic.kind) for level in joined)
    if width % 4 or width < 8 or not certain:
        return

    def rows(to: Appender) -> str:
        scores, spread = to.add_all(ops.Split(2, (classes, width)), to.floats(output.name))
        corners = corners_at(to, spread, image, 0, _STRIDES)
        return suppressed(to, corners, to.add(ops.Transpose((0, 2, 1)), scores), _NANO_LIMITS)

    what = f"'{output.name}' is like NanoDet-Plus's"
    yield Head("nanodet-plus", what, classes, rows, _NANO_PIXELS)


def pico_det(ends: Ends) -> Iterator[Head]:
    """PicoDet: scores [1, cells, classes] of each grid, and distributions of the distances to the
    edges [1, cells, 4 times as many]. NanoDet's outputs have such shapes, too, in three or four
    grids, and names of its own."""
    image, shapes = ends.image, ends.shapes()
    nano = all(name.startswith(_NANO_NAMES) for name in shapes)
    strides = _STRIDES[: len(shapes) // 2] if nano else _STRIDES
    levels = [image.cells(stride) for stride in strides]
    if not all(len(shape) == 3 and shape[0] == 1 for shape in shapes.values()):
        return
    sure = [name for name in shapes if ends.is_from(name, ops.Logistic.kind)]
    spread = [name for name in shapes if name not in sure]
    sure, spread = (sorted(names, key=lambda n: -shapes[n][1]) for names in (sure, spread))
    if not all([shapes[name][1] for name in names] == levels for names in (sure, spread)):
        return
    classes, widths = ({shapes[n][2] for n in names} for names in (sure, spread))
    if len(classes) != 1 or len(widths) != 1 or min(widths) % 4 or min(widths) < 8:
        return

    def rows(to: Appender) -> str:
        scores, spreads = (
            to.add(ops.Concat(1), *map(to.floats, names)) for names in (sure, spread)
        )
        corners = corners_at(to, spreads, image, 0.5, strides)
        scores = to.add(ops.Transpose((0, 2, 1)), scores)
        return suppressed(to, corners, scores, _NANO_LIMITS if nano else _PICO_LIMITS)

    whose, pixels = ("NanoDet", _NANO_PIXELS) if nano else ("PicoDet", _PICO_PIXELS)
    what = f"scores and distances of each grid are like {whose}'s"
    yield Head(whose.lower(), what, min(classes), rows, pixels)


def corners_at(
    to: Appender, spread: str, image: InputImage, middle: float, strides: Sequence[int]
) -> str:
    """Corners of boxes from distributions of the distances to their edges, in strides; the center
    of a cell is `middle` from its top left."""
    cells, sides = grid_of(image, strides)
    _, count, width = to.shape(spread)
    steps = np.arange(width // 4)
    spread = to.add(ops.Reshape((1, count, 4, len(steps))), spread)
    weighted = to.add(ops.Mul(), to.add(ops.Softmax(), spread), to.constant(steps))
    distance = to.add(ops.ReduceSum(axes=(3,)), weighted)
    distance = to.add(ops.Mul(), distance, to.constant(sides[None]))
    low, high = to.add_all(ops.Split(2, (2, 2)), distance)
    centers = to.constant(((cells + middle) * sides)[None])
    return to.add(ops.Concat(2), to.add(ops.Sub(), centers, low), to.add(ops.Add(), centers, high))
