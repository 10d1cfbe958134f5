"""RetinaNet (Lin et al., 2017) as NVIDIA's program exports it, which ONNX' model zoo has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends, InputImage
from edgekit.host.compiler.tasks.heads import (
    STRETCHED_IMAGENET,
    Head,
    Limits,
    grid_of,
    suppressed,
    to_corners,
)

_STRIDES = (8, 16, 32, 64, 128)
_RATIOS, _SCALES = (
    (1.0, 2.0, 0.5),
    tuple(4 * 2 ** (n / 3) for n in range(3)),
)  # of heights to widths
_ANCHORS = len(_RATIOS) * len(_SCALES)  # of a cell
_LIMITS = Limits(0.5, 0.5)


def retina_net(ends: Ends) -> Iterator[Head]:
    """Of each grid shares of the classes [1, 9 · classes, h, w] by a sigmoid, and then offsets of
    boxes [1, 36, h, w] from anchors. EfficientDet's, which have such shapes, end before it."""
    scores, boxes = ends.outputs[: len(_STRIDES)], ends.outputs[len(_STRIDES) :]
    grids = [(1, ends.image.grid(stride)) for stride in _STRIDES]
    fields = {t.shape[1] for t in scores if len(t.shape) == 4}
    if [t.shape for t in boxes] != [(1, 4 * _ANCHORS, *grid) for _, grid in grids]:
        return
    if [(t.shape[0], t.shape[2:]) for t in scores] != grids or len(fields) != 1:
        return
    classes, rest = divmod(fields.pop(), _ANCHORS)
    if rest or not all(ends.is_from(t.name, ops.Logistic.kind) for t in scores):
        return
    centers, sizes = _anchors(ends.image)

    def rows(to: Appender) -> str:
        offsets = to.add(ops.Concat(1), *(_offsets(to, each) for each in boxes))
        shift, growth = to.add_all(ops.Split(2, (2, 2)), offsets)
        extents = to.constant(sizes)
        middle = to.add(ops.Add(), to.add(ops.Mul(), shift, extents), to.constant(centers))
        size = to.add(ops.Mul(), to.add(ops.Exp(), growth), extents)
        corners = to_corners(to, to.add(ops.Concat(2), middle, size))
        # The last pixel is inside.
        corners = to.add(ops.Sub(), corners, to.constant([[[0, 0, 1, 1]]]))
        return suppressed(to, corners, _scores(to, scores, classes), _LIMITS)

    what = "outputs are RetinaNet's, pixels as PyTorch's models take them"
    yield Head("retinanet", what, classes, rows, STRETCHED_IMAGENET)


def _offsets(to: Appender, x: Tensor) -> str:
    """[1, anchors · cells, 4]."""
    cells = x.shape[2] * x.shape[3]
    flat = to.add(ops.Reshape((_ANCHORS, 4, cells)), to.floats(x.name))
    return to.add(ops.Reshape((1, _ANCHORS * cells, 4)), to.add(ops.Transpose((0, 2, 1)), flat))


def _scores(to: Appender, found: Sequence[Tensor], classes: int) -> str:
    """[1, classes, anchors · cells] of all grids."""
    made = []
    for x in found:
        cells = x.shape[2] * x.shape[3]
        flat = to.add(ops.Reshape((_ANCHORS, classes, cells)), to.floats(x.name))
        flat = to.add(ops.Transpose((1, 0, 2)), flat)
        made.append(to.add(ops.Reshape((1, classes, _ANCHORS * cells)), flat))
    return to.add(ops.Concat(2), *made)


def _anchors(image: InputImage) -> tuple[Array, Array]:
    """Centers and sizes [1, n, 2] in pixels, of which the last is inside: of each grid, those of
    one kind after the other."""
    centers, sizes = [], []
    for stride in _STRIDES:
        cells, _ = grid_of(image, (stride,))
        for scale in _SCALES:
            for ratio in _RATIOS:
                wide = scale * stride / np.sqrt(ratio)
                centers.append((cells + 0.5) * stride + 0.5)
                sizes.append(np.full(cells.shape, (wide + 1, wide * ratio + 1)))
    return np.concatenate(centers)[None], np.concatenate(sizes)[None]
