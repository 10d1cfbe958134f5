"""What every contender of a comparison can do; standard library and NumPy only, as worker.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

Array = NDArray[Any]
Shapes = Mapping[str, Sequence[int]]


class UnfitError(Exception):
    """This engine cannot run this model, for a reason that its user should read as it is."""


class Contender(Protocol):
    """One model loaded by one engine. `inputs` are whole shapes and NumPy dtype names."""

    version: str
    stateful: bool
    inputs: list[tuple[tuple[int, ...], str]]

    def reset(self) -> None:
        """Sets the model's state back to its initial values."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """One inference."""

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
