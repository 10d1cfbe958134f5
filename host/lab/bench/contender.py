"""The interface of a benchmark contender; standard library and NumPy only, like worker.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

Array = NDArray[Any]
Shapes = Mapping[str, Sequence[int]]


class UnfitError(Exception):
    """This engine cannot run this model; the message is shown to the user verbatim."""


class ModelContender(Protocol):
    """One model loaded by one engine. `inputs`: fully specified shapes and NumPy dtype names."""

    version: str
    stateful: bool
    inputs: list[tuple[tuple[int, ...], str]]

    def reset(self) -> None:
        """Resets the model's state to its initial values."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Runs one inference."""

    def time(self, count: int) -> list[int]:
        """Nanoseconds of each of `count` inferences on the inputs of the last run."""


def time_calls(call: Callable[[], object], count: int) -> list[int]:
    """Nanoseconds of each of `count` calls of `call()`."""
    clock = time.perf_counter_ns
    times = []
    for _ in range(count):
        start = clock()
        call()
        times.append(clock() - start)
    return times
