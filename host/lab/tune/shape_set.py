"""The shapes that tables are made for by estimate: those of networks and of programs.

Convolutions are products of im2col: pixels x (window * channels) x outputs where channels are
last, outputs x (window * channels) x pixels where they are first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from edgekit.kb.features import GemmShape

_PATENT = GemmShape(500, 1600, 30)  # the example of "improving GEMM performance"
_SQUARES = (16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024)
# Outputs of MobileNet v1's pointwise layers, and of v2's blocks, by the image's side.
_POINTWISE = ((112, 32, 64), (56, 64, 128), (56, 128, 128), (28, 128, 256), (28, 256, 256),
              (14, 256, 512), (14, 512, 512), (7, 512, 1024), (7, 1024, 1024))  # fmt: skip
_INVERTED = ((112, 16), (56, 24), (28, 32), (14, 64), (14, 96), (7, 160), (7, 320))
_EXPANSION = 6
_WIDTHS = (0.25, 0.5, 1.0)  # of MobileNets on small boards
_RESIDUAL = ((56, 64), (28, 128), (14, 256), (7, 512))  # stages of ResNet-18, and of 50
_RESIDUAL_SMALL = ((32, 16), (16, 32), (8, 64))  # of ResNet-8 and 20 for CIFAR
_DETECTOR = ((80, 32), (40, 64), (20, 128), (10, 256))  # of YOLO-like necks
_STEMS = ((112, 27, 16), (112, 27, 32), (112, 147, 64), (64, 27, 8), (48, 75, 24))
_LENGTHS = (16, 49, 64, 128, 197, 256)  # of sequences
_HEADS = (32, 64)
_EMBEDDINGS = (64, 128, 192, 256, 384, 512, 768)
_QUERIES, _FEATURES, _STORED = (1, 4, 16, 64, 256), (32, 64, 128, 256, 512), (256, 1000, 4096)
_STATES, _BATCHES = (32, 64, 128, 256, 512), (1, 2, 4, 8, 16)
_TALL, _THIN = (500, 1000, 3000, 10000), ((3, 3), (4, 16), (8, 8), (16, 4), (32, 32), (64, 10))
_VECTORS = (10, 32, 64, 100, 128, 256, 320, 512, 640, 1000, 1024, 1280, 2048)


def shape_set(most_operations: int | None = None) -> list[GemmShape]:
    """All shapes, the same on every call, those with fewest operations first; optionally none with
    more operations."""
    families = (
        (_PATENT, *(GemmShape(size, size, size) for size in _SQUARES)),
        (either for shape in _convolutions() for either in (shape, _swapped(shape))),
        _attention(),
        _neighbors(),
        _recurrent(),
        _tall(),
        _with_vectors(),
    )
    found = dict.fromkeys(itertools.chain.from_iterable(families))
    kept = (s for s in found if most_operations is None or s.operations <= most_operations)
    return sorted(kept, key=lambda shape: (shape.operations, shape))


def _swapped(shape: GemmShape) -> GemmShape:
    return GemmShape(shape.n, shape.k, shape.m)


def _convolutions() -> Iterator[GemmShape]:
    for width, (side, inputs, outputs) in itertools.product(_WIDTHS, _POINTWISE):
        yield GemmShape(side * side, round(inputs * width), round(outputs * width))
    for width, (side, channels) in itertools.product(_WIDTHS, _INVERTED):
        inner = max(round(channels * width), 8)
        yield GemmShape(side * side, inner, _EXPANSION * inner)
        yield GemmShape(side * side, _EXPANSION * inner, inner)
    for side, channels in (*_RESIDUAL, *_RESIDUAL_SMALL, *_DETECTOR):
        yield GemmShape(side * side, 9 * channels, channels)
        yield GemmShape(side * side, channels, channels)
    for side, channels in _RESIDUAL:
        yield GemmShape(side * side, channels, 4 * channels)
        yield GemmShape(side * side, 4 * channels, channels)
    for side, depth, outputs in _STEMS:
        yield GemmShape(side * side, depth, outputs)


def _attention() -> Iterator[GemmShape]:
    for length, head in itertools.product(_LENGTHS, _HEADS):
        yield GemmShape(length, head, length)
        yield GemmShape(length, length, head)
    for length, size in itertools.product(_LENGTHS, _EMBEDDINGS):
        yield GemmShape(length, size, size)
        yield GemmShape(length, size, 4 * size)
        yield GemmShape(length, 4 * size, size)


def _neighbors() -> Iterable[GemmShape]:
    """Distances of queries to stored vectors."""
    sizes = itertools.product(_QUERIES, _FEATURES, _STORED)
    return (GemmShape(queries, features, stored) for queries, features, stored in sizes)


def _recurrent() -> Iterator[GemmShape]:
    """The gates of LSTMs and GRUs."""
    for batch, state in itertools.product(_BATCHES, _STATES):
        yield GemmShape(batch, state, 4 * state)
        yield GemmShape(batch, 2 * state, 4 * state)
        yield GemmShape(batch, state, 3 * state)


def _tall() -> Iterator[GemmShape]:
    for rows, (depth, columns) in itertools.product(_TALL, _THIN):
        yield GemmShape(rows, depth, columns)
        yield GemmShape(columns, rows, depth)


def _with_vectors() -> Iterator[GemmShape]:
    for depth, length in itertools.pairwise(_VECTORS):
        yield GemmShape(1, depth, length)
        yield GemmShape(length, depth, 1)
