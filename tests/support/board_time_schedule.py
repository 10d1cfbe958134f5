"""A schedule that a virtual board's kernel made, in a real board's time.

The virtual board's clock counts instructions: who had its one core, and for how long, is known to
the instruction. What each program's instructions take comes from the simulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from edgekit.host.simulator.run import SimulatedCost
from edgekit.kb.targets.core import Core

# Cycles of an instruction of Linux or of Python, which the simulator does not run. Cores like
# these take one to three.
OTHER_CYCLES = 5
_LINE = 64


@dataclass(frozen=True)
class Frame:
    """One inference on the virtual board, in nanoseconds of its clock, which are instructions:
    from when it was due to when the program had the core, then what the program executed, and what
    others did before the inference was complete."""

    lag: int
    own: int
    others: int


def responses(
    frames: Iterable[Frame], model: SimulatedCost, other: SimulatedCost, core: Core, step: float
) -> Iterator[float]:
    """Seconds from when each frame is due, every `step` seconds, to its result.

    `model` and `other` are estimated with the cache and DRAM that they leave each other. A frame
    begins when the one before is complete. It finds none of its lines in L1. Time in which others
    had the core passes no faster than on the virtual board, since a kernel may wait for a tick.
    """
    hertz = core.clock_mhz * 1e6
    lines = (core.l1d.bytes + core.l1i.bytes) // _LINE
    per_other = max(OTHER_CYCLES, other.cycles / other.instructions)
    behind = 0.0
    for frame in frames:
        besides = max(frame.own - model.instructions, 0)
        cycles = model.cycles + besides * OTHER_CYCLES + lines * core.l2.latency
        took = behind + cycles / hertz
        took += (frame.lag + frame.others) * max(1e-9, per_other / hertz)
        yield took
        behind = max(took - step, 0.0)
