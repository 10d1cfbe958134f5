"""The cost model: how long an operator keeps a unit, without a board.

Load time and compute time of what an operator has to do (`work.py`), each amount at its own speed.
The speeds come from the board's profile, or were measured on a board (`calibration.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from edgekit.host.compiler.ir.nna import fits_nna
from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.host.compiler.schedule.calibration import Calibration, calibration_of
from edgekit.host.compiler.schedule.nna_cost import nna_work
from edgekit.host.compiler.schedule.work import AMOUNTS, Work, work_of
from edgekit.kb.targets.board import CPU, BoardProfile
from edgekit.kb.targets.units import ComputeUnit

NNA = "nna"
_RUN_CYCLES = 8.0  # to go to another run of memory
_TILE_CYCLES = 16.0  # around the products of a register tile
_CURVE_STEPS = 16.0  # elements of plain work that one of a function is worth
_LOADED = AMOUNTS.index("loaded")


@dataclass(frozen=True)
class CostModel:
    """The costs of operators on one board; `measured` replaces what its profile assumes."""

    board: BoardProfile
    measured: Calibration | None = None
    _speeds: dict[tuple[str, str], tuple[float, ...] | None] = field(
        default_factory=dict, compare=False, repr=False
    )

    @staticmethod
    def of(board: BoardProfile) -> CostModel:
        """A board's cost model, with what this host measured on such boards, if it did."""
        return CostModel(board, calibration_of(board))

    @property
    def units(self) -> Mapping[str, ComputeUnit]:
        """Units that run operators, NNA aside."""
        return {u.name: u for u in self.board.speeds if u.kind != "memory"}

    @property
    def memory(self) -> ComputeUnit | None:
        """The unit that loads constants for the others, if there is one."""
        return next((u for u in self.board.speeds if u.kind == "memory"), None)

    def work(self, graph: Graph, node: Node) -> Work:
        return work_of(graph, node, self.board.isa.vl)

    def cost(self, graph: Graph, node: Node, unit: str = CPU) -> float:
        """Microseconds that `node` keeps `unit`; infinite if it does no such work."""
        if unit == NNA and self.board.nna:
            return self._nna_cost(graph, node)
        return self.cost_of(self.work(graph, node), unit)

    def cost_of(self, work: Work, unit: str = CPU) -> float:
        """The cost of what an operator has to do, the NNA aside."""
        if work.kind == "none":
            return 0.0
        speeds = self._speeds_of(work, unit)
        if speeds is None:
            return math.inf
        return sum(a * s for a, s in zip(work.amounts.values(), speeds, strict=True))

    def load(self, graph: Graph, node: Node) -> float:
        """Microseconds that the memory unit loads constants for `node`; 0 without such a unit."""
        loaded = self.work(graph, node).amounts.loaded
        if self.memory is None or not loaded:
            return 0.0
        rate = self.memory.bytes_per_cycle * self.memory.clock_mhz
        return self.memory.start_us + loaded / rate

    def _nna_cost(self, graph: Graph, node: Node) -> float:
        """The cost of the NNA, of the core before it (bytes into groups of channels) and after it
        (sums into bytes), and of rearranged weights, which come from memory as the core's do."""
        assert self.board.nna is not None
        if not fits_nna(graph, node):
            return math.inf
        core, moved = self.board.speeds[0], self.work(graph, node).amounts.moved
        out = graph.tensors[node.outputs[0]].elements
        work = nna_work(self.board.nna.chip, graph, node)
        moved += work.weight_bytes
        around = moved / core.bytes_per_cycle + (out + work.handled) / core.elements_per_cycle
        return core.start_us + (work.cycles + around) / core.clock_mhz

    def _speeds_of(self, work: Work, name: str) -> tuple[float, ...] | None:
        """Microseconds of each amount of a family on a unit; None if it does no such work."""
        key = (work.family, name)
        if key not in self._speeds:
            self._speeds[key] = self._new_speeds(work, self.units[name])
        return self._speeds[key]

    def _new_speeds(self, work: Work, unit: ComputeUnit) -> tuple[float, ...] | None:
        assumed = _assumed(work, unit)
        if assumed is None:
            return None
        if self.memory is not None:
            assumed = (*assumed[:_LOADED], 0.0, *assumed[_LOADED + 1 :])
        if self.measured is None:
            return assumed
        first = _assumed(work, self.board.speeds[0])
        known = self.measured.families.get(work.family)
        if known is None or first is None:
            return tuple(self.measured.scale * speed for speed in assumed)
        # What was measured on the first unit, in the proportion that the profile tells.
        return tuple(
            k * (a / f if f else 1.0) for k, a, f in zip(known, assumed, first, strict=True)
        )


def _assumed(work: Work, unit: ComputeUnit) -> tuple[float, ...] | None:
    """Microseconds of each amount by the unit's profile; None if it does no such work."""
    if work.kind == "matrix":
        rate = unit.s8_per_cycle if work.dtype in ("s8", "u8") else unit.f32_per_cycle
    elif work.kind == "function":
        rate = unit.elements_per_cycle / _CURVE_STEPS
    else:
        rate = unit.elements_per_cycle
    if rate == 0:
        return None
    steps = 0.0 if work.kind == "move" else 1.0 / rate
    per_byte = 1.0 / unit.bytes_per_cycle
    per_float = 1.0 / unit.f32_per_cycle if unit.f32_per_cycle else 0.0
    cycles = (steps, _RUN_CYCLES, _TILE_CYCLES, per_byte, per_byte, per_float)
    return (unit.start_us, *(c / unit.clock_mhz for c in cycles))
