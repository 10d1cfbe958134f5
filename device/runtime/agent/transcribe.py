"""Speech to text by a model that scores characters at each place along a window."""

from __future__ import annotations

import math
from array import array
from operator import mul
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence

from edgekit.device.runtime.agent.lines import Line
from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.agent.task import CHARACTER_FIELDS, NORMALIZED, TaskSpec
from edgekit.device.runtime.dtypes import count

_EDGE = 6  # a sixth of the places at each end of a window is heard better in its neighbor
LEAST_VARIANCE = 1e-7  # as Wav2Vec2FeatureExtractor of Hugging Face adds it


class Piece(NamedTuple):
    """A window from sample `start`; its places from `first` to before `last` count."""

    start: int
    first: int
    last: int


def transcribe(
    samples: Sequence[float],
    task: TaskSpec,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    run: Callable[[Dict[str, Any]], Mapping[str, Any]],
    read: Callable[["array[float]"], Line],
) -> Line:
    """The text of `samples`, -1 to 1, of one channel, `task.rate` a second. `run` computes outputs
    from inputs by name, `read` makes a line of what these say of all places."""
    window, places = _extents(task, inputs, outputs)
    sound, found = array("f", samples), array("f")
    for piece in pieces(len(sound), window, places):
        part = sound[piece.start : piece.start + window]
        if task.fit == NORMALIZED:
            part = normalized(part)
        part += array("f", bytes(4 * (window - len(part))))
        rows = array("f", memoryview(run({task.input: part})[task.output]).cast("B").tobytes())
        found += rows[piece.first * CHARACTER_FIELDS : piece.last * CHARACTER_FIELDS]
    line = read(found)
    return Line(" ".join(line.text.split()), line.score)


def pieces(total: int, window: int, places: int) -> Iterator[Piece]:
    """Windows over `total` samples, of which each place is counted once.

    Convolutions without padding have one place less than there are steps in a window, so that a
    step is window / (places + 1), rounded up.
    """
    step = -(-window // (places + 1))
    edge = places // _EDGE if total > window else 0
    start, first = 0, 0
    while start + window < total:
        yield Piece(start, first, places - edge)
        start, first = start + (places - 2 * edge) * step, edge
    yield Piece(start, first, max(min(places, math.ceil((total - start) / step)), first))


def _extents(
    task: TaskSpec, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> List[int]:
    """Samples of a window, and places along it."""
    sound = next(count(spec.shape) for spec in inputs if spec.name == task.input)
    rows = next(count(spec.shape) for spec in outputs if spec.name == task.output)
    return [sound, rows // CHARACTER_FIELDS]


def normalized(part: "array[float]") -> "array[float]":
    """With mean 0 and variance 1."""
    if not part:
        return part
    mean = math.fsum(part) / len(part)
    centered = array("f", (v - mean for v in part))
    variance = math.fsum(map(mul, centered, centered)) / len(part)
    factor = 1 / math.sqrt(variance + LEAST_VARIANCE)
    return array("f", (v * factor for v in centered))
