"""What the caches of a core have no room for, and how long memory takes to bring it."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.host.compiler.costs.work import Amounts
from edgekit.host.compiler.ir.types import Graph
from edgekit.kb.costs.sharing import FAR_PART
from edgekit.kb.targets.core import Core


@dataclass(frozen=True)
class Memory:
    """The part of a model's constants and tensors that caches have no room for, and the bytes in a
    microsecond that memory gives one core, and all; nothing is known where these are 0. A byte of
    tensors, half of which are written, takes as long as `tensors` bytes that are read."""

    beyond: float = 0.0
    own: float = 0.0
    shared: float = 0.0
    tensors: float = 1.0

    def far(self, amounts: Amounts) -> float:
        """The bytes of an operator that come from memory or go there."""
        moved = FAR_PART * self.tensors * amounts.moved
        return self.beyond * (amounts.loaded + moved)

    def us(self, far: float, threads: int = 1) -> float:
        """The microseconds of so many bytes."""
        return far / min(threads * self.own, self.shared) if self.own else 0.0


def memory_of(graph: Graph, core: Core | None) -> Memory:
    """The memory of a core while it runs a graph, in whatever order."""
    if core is None:
        return Memory()
    held = core.l3.bytes if core.l3 else core.l2.bytes
    used = _bytes_used(graph)
    beyond = 1 - held / used if used > held else 0.0
    own, shared, write = core.dram.core_gb_s, core.dram.gb_s, core.dram.write_gb_s
    return Memory(beyond, own * 1e3, shared * 1e3, (1 + shared / write) / 2 if write else 1.0)


def _bytes_used(graph: Graph) -> int:
    """All constants, and the tensors of the operator that has most of them."""
    tensors = graph.tensors
    read = {name for node in graph.nodes for name in node.inputs if name is not None}
    constants = sum(tensors[name].bytes for name in read if tensors[name].data is not None)
    alive = (
        sum(
            tensors[name].bytes
            for name in {*node.inputs, *node.outputs}
            if name is not None and tensors[name].data is None
        )
        for node in graph.nodes
    )
    return constants + max(alive, default=0)
