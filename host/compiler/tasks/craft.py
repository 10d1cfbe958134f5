"""CRAFT (Baek et al., 2019): maps of how likely each pixel is the middle of a character, or between
two of the same word."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgekit.device.runtime.agent.task import CORNER, OBB
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.heads import KEEP, Head
from edgekit.host.compiler.tasks.usual_pixels import IMAGENET_SCALING

_PART = 2  # pixels along a pixel of the maps
_FEATURES = 32  # channels of what may be another output, for a network that refines
_CORNERS = 4
_THRESHOLD, _NARROWEST = 0.4, 2  # of its authors' program
_SURE = 0.52  # the mean in the box of a word whose largest value is 0.7, which its authors ask for
_FILLED = 0.85  # of that box
_TINY = 1e-6
_PIXELS = {"fit": CORNER, "fill": 0, **IMAGENET_SCALING}


def craft(ends: Ends) -> Iterator[Head]:
    """Both maps [1, h / 2, w / 2, 2], and perhaps features, of a picture with the colors first."""
    if not is_craft(ends.graph):
        return
    maps = ends.outputs[0]
    _, height, width, _ = maps.shape

    def rows(to: Appender) -> str:
        best = to.add(ops.ReduceMax((3,)), to.floats(maps.name))
        flat = to.add(ops.Reshape((1, height, width)), best)
        flat = to.add(ops.Minimum(), flat, _number(to, 1))  # which some pixels exceed
        found = to.add(ops.AreaBoxes(KEEP, _THRESHOLD, _SURE, _NARROWEST, 0.0), flat)
        return _grown(to, found, (width, height))

    yield Head("craft", f"'{maps.name}' may be CRAFT's", 1, rows, _PIXELS, ("text",), kind=OBB)


def is_craft(graph: Graph) -> bool:
    """Whether input and outputs have such shapes."""
    given, (maps, *others) = (
        [graph.tensors[name].shape for name in names] for names in (graph.inputs, graph.outputs)
    )
    if len(given) != 1 or len(given[0]) != 4 or given[0][:2] != (1, 3):
        return False
    halves = tuple(n // _PART for n in given[0][2:])
    return maps == (1, *halves, 2) and others in ([], [(1, _FEATURES, *halves)])


def _grown(to: Appender, found: str, size: tuple[int, int]) -> str:
    """Rows of AreaBoxes in pixels of the input. Each side moves outwards by the square root of how
    many pixels of the maps the shorter one has, as far as they are of the word."""
    x = to.add(ops.Reshape((1, KEEP, to.shape(found)[-1])), found)
    head, _, *points = to.add_all(ops.Split(2, (3, 4, *(2, 1) * _CORNERS)), x)
    corners, ones = points[::2], points[1::2]
    first, second, _, last = corners
    sides = [to.add(ops.Sub(), each, first) for each in (second, last)]
    lengths = [_length(to, side) for side in sides]
    away = to.add(ops.Mul(), to.add(ops.Minimum(), *lengths), _number(to, _FILLED))
    away = to.add(ops.Sqrt(), away)
    along, across = (
        to.add(ops.Mul(), side, to.add(ops.Div(), away, length))
        for side, length in zip(sides, lengths, strict=True)
    )
    moved = []
    for corner, signs in zip(corners, ((-1, -1), (1, -1), (1, 1), (-1, 1)), strict=True):
        for step, sign in zip((along, across), signs, strict=True):
            corner = to.add(ops.Add() if sign > 0 else ops.Sub(), corner, step)
        moved.append(to.add(ops.Mul(), corner, _number(to, _PART)))
    low, high = moved[0], moved[0]
    for corner in moved[1:]:
        low, high = to.add(ops.Minimum(), low, corner), to.add(ops.Maximum(), high, corner)
    low = to.add(ops.Maximum(), low, _number(to, 0))
    high = to.add(ops.Minimum(), high, to.constant(_PART * np.reshape(size, (1, 1, 2))))
    parts = (part for pair in zip(moved, ones, strict=True) for part in pair)
    made = to.add(ops.Concat(2), head, low, high, *parts)
    return to.add(ops.Reshape(to.shape(found)), made)


def _length(to: Appender, side: str) -> str:
    """Of vectors [1, n, 2]: [1, n, 1]."""
    squares = to.add(ops.ReduceSum((2,), keep_dims=True), to.add(ops.Mul(), side, side))
    return to.add(ops.Maximum(), to.add(ops.Sqrt(), squares), _number(to, _TINY))


def _number(to: Appender, value: float) -> str:
    return to.constant(np.full((1, 1, 1), value))
