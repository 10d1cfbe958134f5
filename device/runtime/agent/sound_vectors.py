"""The vector of a sound, such as a speaker's, by a model that takes a window of samples."""

from __future__ import annotations

import math
from array import array
from operator import add, mul
from typing import Any, Callable, Dict, List, Mapping, Sequence

from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.agent.task import TaskSpec
from edgekit.device.runtime.dtypes import count
from edgekit.device.runtime.errors import InputError


def vector_of_sound(
    samples: Sequence[float],
    task: TaskSpec,
    inputs: Sequence[TensorSpec],
    run: Callable[[Dict[str, Any]], Mapping[str, Any]],
) -> List[float]:
    """The mean of the vectors of all windows, with length 1. A sound that is shorter than one is
    repeated; the last window ends where the sound does."""
    window = next(count(spec.shape) for spec in inputs if spec.name == task.input)
    sound = array("f", samples)
    if not sound:
        raise InputError("expected sound, found no samples")
    if len(sound) < window:
        sound = (sound * -(-window // len(sound)))[:window]
    starts = [*range(0, len(sound) - window, window), len(sound) - window]
    total: List[float] = []
    for start in starts:
        made = memoryview(run({task.input: sound[start : start + window]})[task.output])
        vector = array("f", made.cast("B").tobytes()).tolist()
        total = [*map(add, total, vector)] if total else vector
    length = math.sqrt(math.fsum(map(mul, total, total))) or 1.0
    return [value / length for value in total]
