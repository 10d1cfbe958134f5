"""The cost model: how long an operator keeps a unit, without a board."""

from __future__ import annotations

from edgekit.host.graph.types import Graph, Node
from edgekit.host.lower.isa import ISAS
from edgekit.host.schedule.work import work_of
from edgekit.kb.board import CPU, BoardProfile

_MEGAHERTZ = 1000.0  # of a core whose profile says nothing: 1 GHz
_BYTES_PER_CYCLE = 4.0
_START_US = 0.5
# Operations a cycle per 32-bit lane of the vector unit, by kind of work.
_PER_LANE = {"matrix": 1.0, "window": 0.5, "function": 0.05, "simple": 0.25, "move": 0.25}


def operator_cost(graph: Graph, node: Node, board: BoardProfile, unit: str = CPU) -> float:
    """Microseconds that `node` keeps a unit of a board: load time and compute time."""
    work = work_of(graph, node)
    if work.kind == "none":
        return 0.0
    if board.nna and unit == "nna" and work.kind == "matrix":
        per_cycle = float(board.nna.chip.macs_per_cycle)
    else:
        lanes = ISAS[board.simd].vl * (2 if work.dtype in ("s8", "u8") else 1)
        per_cycle = lanes * _PER_LANE[work.kind]
    compute = work.operations / per_cycle
    load = (work.loaded + work.moved) / _BYTES_PER_CYCLE
    return _START_US + (compute + load) / _MEGAHERTZ
