"""The matrix products of kernel benchmarks: from the specification, from networks, and random."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from edgekit.host.errors import InputError
from edgekit.kb.features import GemmShape

Group = Literal["square", "irregular", "random", "file"]
Side = Literal["a", "b"]
GROUPS: tuple[Group, ...] = ("square", "irregular", "random", "file")

RANDOM_SEED = 20
RANDOM_COUNT = 200
_SQUARES = (128, 256, 384, 512, 768, 1024)
_IRREGULAR = (  # m, n, k, the usual notation for products in CNN inference
    (64, 3136, 64), (128, 784, 1152), (500, 30, 1600), (32, 12544, 27), (1000, 1, 1024),
    (17, 33, 65), (96, 49, 576), (24, 3136, 144), (512, 49, 4608), (1280, 1, 320), (10, 1, 64),
    (1, 1024, 1024),
)  # fmt: skip
_CHANNELS = (8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 144, 192, 240, 256, 320, 384, 480, 512)
_IMAGES = (4, 5, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112)
_WINDOWS = (1, 1, 1, 1, 9, 9, 9, 25)
_FEATURES = (10, 12, 32, 64, 100, 128, 256, 320, 512, 640, 1000, 1024, 1280, 2048)
_BATCHES = (1, 1, 1, 2, 4, 8, 16, 49)
_MOST_REPEATS = 200  # in a row, of random products
_MOST_OPERATIONS = 400_000_000  # tens of milliseconds on a small core
_LARGEST = 4096  # of m and k of a random product
_MOST_ELEMENTS = 1 << 27  # of one matrix: an acceptable memory demand for a benchmark


@dataclass(frozen=True)
class GemmCase:
    """One product; `weights` is the operand known at compile time, which may be packed ahead."""

    shape: GemmShape
    group: Group
    weights: Side


TRANSPOSED = (
    " transposed"  # suffix of a contender's name when it computes `transposed(case)` instead
)


def transposed(case: GemmCase) -> GemmCase | None:
    """The same product with activations as rows and weights as columns, as in channels-last
    convolution; None if the case already has that form."""
    shape = GemmShape(m=case.shape.n, k=case.shape.k, n=case.shape.m)
    return GemmCase(shape, case.group, "b") if case.weights == "a" else None


def standard_cases(random_count: int = RANDOM_COUNT, seed: int = RANDOM_SEED) -> list[GemmCase]:
    """The square and irregular products, and `random_count` random ones determined by the seed."""
    squares = [GemmCase(GemmShape(n, n, n), "square", "b") for n in _SQUARES]
    irregular = [
        GemmCase(GemmShape(m=m, k=k, n=n), "irregular", "b" if m == 1 else "a")
        for m, n, k in _IRREGULAR
    ]
    return [*squares, *irregular, *random_cases(random_count, seed)]


def random_cases(count: int, seed: int) -> list[GemmCase]:
    """Products typical of inference: three quarters convolutions, the rest fully connected."""
    return list(itertools.islice(distinct_cases(seed), count))


def distinct_cases(seed: int) -> Iterator[GemmCase]:
    """Such products in random order, each once; ends when nearly all have been found."""
    found: set[GemmCase] = set()
    repeats = 0
    for case in _random_cases(random.Random(seed)):
        repeats = repeats + 1 if case in found else 0
        if repeats == _MOST_REPEATS:
            return
        if not repeats:
            found.add(case)
            yield case


def _random_cases(source: random.Random) -> Iterator[GemmCase]:
    while True:
        if source.random() < 0.75:
            side, window = source.choice(_IMAGES), source.choice(_WINDOWS)
            inputs = 3 if source.random() < 0.1 else source.choice(_CHANNELS)
            m, k, n = source.choice(_CHANNELS), inputs * window, side * side
        else:
            m, k, n = (source.choice(s) for s in (_FEATURES, _FEATURES, _BATCHES))
        if 2 * m * k * n <= _MOST_OPERATIONS and max(m, k) <= _LARGEST:
            yield GemmCase(GemmShape(m=m, k=k, n=n), "random", "a")


def given_cases(shapes: list[GemmShape]) -> list[GemmCase]:
    """Cases for the shapes of a file; shapes of standard cases become those cases, so that a subset
    can be measured alone. Raises InputError for one too large for a benchmark's memory."""
    standard = {case.shape: case for case in reversed(standard_cases())}
    for shape in shapes:
        if max(shape.m * shape.k, shape.k * shape.n, shape.m * shape.n) > _MOST_ELEMENTS:
            raise InputError(
                f"expected matrices of at most {_MOST_ELEMENTS} elements, found "
                f"m={shape.m} k={shape.k} n={shape.n}; leave it out"
            )
    return [
        standard.get(shape) or GemmCase(shape, "file", "a" if shape.n == 1 else "b")
        for shape in shapes
    ]
