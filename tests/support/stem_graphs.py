"""Random stems of image networks, for `op_graphs`."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Operator, Padding, Tensor
from tests.support.op_cases import Case, Rng, constant, pick, tensor

_SIZES = (5, 7, 9, 14, 17, 31, 40)
_ACTIVATIONS = list(Activation)


def members(rng: Rng) -> list[tuple[Operator, tuple[Tensor | None, ...]]]:
    """The operators of a stem, each with its operands other than the image."""
    form = int(rng.integers(3))  # leading transpose to channels-last, trailing pool, or both
    kernel = [(3, 3), (3, 3), (7, 7), (1, 1), (5, 2)][rng.integers(5)]
    channels = pick(rng, (1, 2, 3, 4)) if form != 1 else pick(rng, (1, 3, 8, 17))
    filters = pick(rng, (3, 8, 17, 24))
    pad = Padding(*(int(rng.integers(0, k)) for k in (kernel[0], kernel[0], kernel[1], kernel[1])))
    stride = [(1, 1), (2, 2), (2, 1)][rng.integers(3)]
    conv = ops.Conv2D(stride, (1, 1), pad, _ACTIVATIONS[rng.integers(len(_ACTIVATIONS))])
    weights = rng.standard_normal((filters, *kernel, channels)).astype(np.float32)
    bias = constant(rng.standard_normal(filters)) if rng.random() < 0.7 else None
    found: list[tuple[Operator, tuple[Tensor | None, ...]]] = [(conv, (constant(weights), bias))]
    if form != 1:
        found.insert(0, (ops.Transpose((0, 2, 3, 1)), ()))
    if form != 0:
        window = [(2, 2), (3, 3), (1, 4)][rng.integers(3)]
        around = Padding(*(int(rng.integers(0, k)) for k in (*window[:1] * 2, *window[1:] * 2)))
        step = [(1, 1), (2, 2), (3, 2)][rng.integers(3)]
        found.append((ops.MaxPool2D(window, step, around), ()))
    return found


def image_of(rng: Rng, found: list[tuple[Operator, tuple[Tensor | None, ...]]]) -> Tensor:
    """The input image of those operators."""
    conv = next(ins for op, ins in found if isinstance(op, ops.Conv2D))
    assert conv[0] is not None
    h, w, c = pick(rng, _SIZES) + 7, pick(rng, _SIZES) + 7, conv[0].shape[3]
    first = isinstance(found[0][0], ops.Transpose)
    return tensor((1, c, h, w) if first else (1, h, w, c))


def stem(rng: Rng) -> Case:
    """Half of the channels-first images are some rows of a taller one."""
    found = members(rng)
    image = image_of(rng, found)
    if isinstance(found[0][0], ops.Transpose) and rng.random() < 0.5:
        rows, (above, below) = image.shape, rng.integers(0, 6, 2)
        cut = ops.StridedSlice((0, 0, int(above), 0), (1,) * 4, rows, rows)
        found.insert(0, (cut, ()))
        image = tensor((*rows[:2], above + rows[2] + below, rows[3]))
    operands = [[*own, *[None] * (4 - len(own))] for _, own in found]
    op = ops.ImageStem(tuple(op for op, _ in found), (None,) * (len(found) - 1))
    return Case(op, (image, *(t for own in operands for t in own)))


FAMILIES = {"image_stem": (stem, (None,))}
