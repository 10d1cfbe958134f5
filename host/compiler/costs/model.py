"""The cost model: predicts, without a board, how long an operator occupies a compute unit.

Each amount of work (`work.py`) is multiplied by the core's rate for it; the lower bound is the
time to transfer what exceeds the caches (`memory.py`). Every microsecond figure that the compiler
prints or bases a decision on comes from here.

Core rates are fitted to recorded cycles (kb/tables/rates). Units without recorded cycles, and x86,
use rates from the board's profile. Board measurements (`calibration.py`) replace both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from edgekit.host.compiler.costs.calibration import Calibration, calibration_of
from edgekit.host.compiler.costs.memory import MemoryUse, memory_of
from edgekit.host.compiler.costs.nna import nna_work
from edgekit.host.compiler.costs.work import AMOUNTS, Amounts, Work, work_of
from edgekit.host.compiler.ir.nna import fits_nna
from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.kb.tables.core_rates import CoreRates, rates_of
from edgekit.kb.targets.board import CPU, BoardProfile
from edgekit.kb.targets.clusters import core_of_unit
from edgekit.kb.targets.core import Core, load_core
from edgekit.kb.targets.units import ComputeUnit

NNA = "nna"
_RUN_CYCLES = 8.0  # to move to the next contiguous run of memory
_TILE_CYCLES = 16.0  # overhead per register tile, products excluded
_CURVE_STEPS = 16.0  # plain element operations that cost as much as one function evaluation
_LOADED = AMOUNTS.index("loaded")
Speeds = tuple[float, ...]  # microseconds per unit of each amount


@dataclass(frozen=True)
class _Known:
    """Caches of `CostModel`."""

    cores: dict[str, Core | None] = field(default_factory=dict)
    speeds: dict[tuple[tuple[str, ...], str], Speeds | None] = field(default_factory=dict)
    memories: WeakKeyDictionary[Graph, dict[str, MemoryUse]] = field(
        default_factory=WeakKeyDictionary
    )


@dataclass(frozen=True)
class CostModel:
    """The costs of operators on one board; `measured` overrides the built-in rates."""

    board: BoardProfile
    measured: Calibration | None = None
    _known: _Known = field(default_factory=lambda: _Known(), compare=False, repr=False)

    @staticmethod
    def of(board: BoardProfile) -> CostModel:
        """A board's cost model, with this host's measurements of its platform if there are any."""
        return CostModel(board, calibration_of(board))

    @property
    def units(self) -> Mapping[str, ComputeUnit]:
        """Units that run operators, without the NNA."""
        return {u.name: u for u in self.board.speeds if u.kind != "memory"}

    @property
    def memory(self) -> ComputeUnit | None:
        """The unit that prefetches constants for the others, if the board has one."""
        return next((u for u in self.board.speeds if u.kind == "memory"), None)

    def work(self, graph: Graph, node: Node) -> Work:
        return work_of(graph, node, self.board.isa.vl, self.board)

    def memory_of(self, graph: Graph, unit: str = CPU) -> MemoryUse:
        """Memory parameters of a unit for a graph."""
        known = self._known.memories.setdefault(graph, {})
        if unit not in known:
            known[unit] = memory_of(graph, self.core(unit))
        return known[unit]

    def core(self, unit: str = CPU) -> Core | None:
        """The core behind a unit, or None if it has no recorded cycles."""
        if unit not in self._known.cores:
            core = core_of_unit(self.board, unit)
            self._known.cores[unit] = core if core and _rates_of(core) else None
        return self._known.cores[unit]

    def cost(self, graph: Graph, node: Node, unit: str = CPU) -> float:
        """Microseconds that `node` occupies `unit`; infinite if the unit cannot run it."""
        if unit == NNA and self.board.nna:
            return self._nna_cost(graph, node)
        return self.cost_within(self.memory_of(graph, unit), graph, node, unit)

    def cost_within(self, memory: MemoryUse, graph: Graph, node: Node, unit: str = CPU) -> float:
        """Like `cost`, with explicit memory parameters; `unit` must not be the NNA."""
        work = self.work(graph, node)
        return max(self.cost_of(work, unit), memory.us(memory.far(work.amounts)))

    def cost_of(self, work: Work, unit: str = CPU) -> float:
        """Compute time of an operator with its data in cache; `unit` must not be the NNA."""
        assumed = self._unmeasured_cost(work, unit)
        if self.measured is None or assumed in (0.0, math.inf):
            return assumed
        known = self.measured.families.get(work.family)
        first = self.board.speeds[0].name
        if known is None:
            return self.measured.scale * assumed
        # The first unit's measurement, scaled by the ratio of both units' assumed costs.
        return _weighted_sum(work.amounts, known) * assumed / self._unmeasured_cost(work, first)

    def load(self, graph: Graph, node: Node) -> float:
        """Microseconds that the memory unit loads constants for `node`; 0 without that unit."""
        loaded = self.work(graph, node).amounts.loaded
        if self.memory is None or not loaded:
            return 0.0
        rate = self.memory.bytes_per_cycle * self.memory.clock_mhz
        return self.memory.start_us + loaded / rate

    def _nna_cost(self, graph: Graph, node: Node) -> float:
        """Cost of the NNA and of the core before it (packing bytes into channel groups) and after
        it (requantizing sums), including the core's traffic for rearranged weights."""
        assert self.board.nna is not None
        if not fits_nna(graph, node):
            return math.inf
        work = nna_work(self.board.nna.chip, graph, node)
        moved = self.work(graph, node).amounts.moved + work.weight_bytes
        out = graph.tensors[node.outputs[0]].elements
        around = Amounts(calls=1.0, steps=float(out + work.handled), moved=moved)
        core = self.core()
        clock = core.clock_mhz if core else self.board.speeds[0].clock_mhz
        return self.cost_of(Work("simple", NNA, "s8", around)) + work.cycles / clock

    def _unmeasured_cost(self, work: Work, unit: str) -> float:
        """The cost without measurements, summed over members if the core is known."""
        if work.kind == "none":
            return 0.0
        if work.members and self.core(unit):
            return work.times * sum(self._unmeasured_cost(member, unit) for member in work.members)
        speeds = self._speeds_of(work, unit)
        return math.inf if speeds is None else _weighted_sum(work.amounts, speeds)

    def _speeds_of(self, work: Work, unit: str) -> Speeds | None:
        """Microseconds per amount for a work group on a unit; None if it cannot run it."""
        known, key = self._known.speeds, (work.groups, unit)
        if key not in known:
            core = self.core(unit)
            speeds = (
                _measured_speeds(work, core) if core else _profile_speeds(work, self.units[unit])
            )
            if self.memory is not None and speeds is not None:
                speeds = (*speeds[:_LOADED], 0.0, *speeds[_LOADED + 1 :])
            known[key] = speeds
        return known[key]


def _weighted_sum(amounts: Amounts, speeds: Speeds) -> float:
    return sum(a * s for a, s in zip(amounts.values(), speeds, strict=True))


def _rates_of(core: Core) -> CoreRates | None:
    """The rates of a core, or of the nearest one that it inherits from; None if none were
    fitted."""
    rates = rates_of(core.name)
    return rates if rates or not core.inherits else _rates_of(load_core(core.inherits))


def _measured_speeds(work: Work, core: Core) -> Speeds:
    """Rates of a core with recorded cycles."""
    rates = _rates_of(core)
    assert rates is not None
    cycles = rates.of(work.groups)
    return tuple(cycles.get(name, 0.0) / core.clock_mhz for name in AMOUNTS)


def _profile_speeds(work: Work, unit: ComputeUnit) -> Speeds | None:
    """Rates from a unit's profile; None if it cannot run this work."""
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
