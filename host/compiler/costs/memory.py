"""Memory traffic that exceeds a core's caches, and the time it takes."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.host.compiler.costs.sharing import FAR_PART
from edgekit.host.compiler.costs.work import Amounts
from edgekit.host.compiler.ir.types import Graph
from edgekit.kb.targets.core import Core


@dataclass(frozen=True)
class MemoryUse:
    """`beyond`: the fraction of a model's constants and tensors that does not fit in the caches.
    `own`, `shared`: bytes per microsecond of one core and of all cores, 0 if unknown.
    `tensors`: the time per tensor byte (half of these are written) relative to a byte read."""

    beyond: float = 0.0
    own: float = 0.0
    shared: float = 0.0
    tensors: float = 1.0

    def far(self, amounts: Amounts) -> float:
        """Bytes that an operator moves to or from memory."""
        moved = FAR_PART * self.tensors * amounts.moved
        return self.beyond * (amounts.loaded + moved)

    def us(self, far: float, threads: int = 1) -> float:
        """Microseconds to move that many bytes."""
        return far / min(threads * self.own, self.shared) if self.own else 0.0


def memory_of(graph: Graph, core: Core | None) -> MemoryUse:
    """Memory parameters of a core that runs a graph, independent of the order of operators."""
    if core is None:
        return MemoryUse()
    held = core.l3.bytes if core.l3 else core.l2.bytes
    used = _bytes_used(graph)
    beyond = 1 - held / used if used > held else 0.0
    own, shared, write = core.dram.core_gb_s, core.dram.gb_s, core.dram.write_gb_s
    return MemoryUse(beyond, own * 1e3, shared * 1e3, (1 + shared / write) / 2 if write else 1.0)


def _bytes_used(graph: Graph) -> int:
    """Bytes of all constants plus the tensors of the operator with the largest working set."""
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
