"""Runs chains of operators in bands whose images stay in the caches.

Between two convolutions at a high resolution, an image goes to memory and back: four cores wait for
it half of their time. In bands of a few rows, the next operator reads what was just written.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from edgekit.host.compiler.costs.methods.rule import LINE
from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.costs.sharing import HANDOVER_CYCLES
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node
from edgekit.host.compiler.ir.views import joins_runs, view_sources
from edgekit.host.compiler.transforms.split.bands import ChainInBands, Parts, find_chain
from edgekit.host.compiler.transforms.split.build import even_cuts
from edgekit.host.compiler.transforms.split.cut import Cut
from edgekit.host.compiler.transforms.split.live import Live
from edgekit.host.compiler.transforms.split.rolling import run_in_turns
from edgekit.host.compiler.transforms.split.split import SplitGraph
from edgekit.kb.targets.board import BoardProfile, last_cache
from edgekit.kb.targets.clusters import clusters_of, timed_core
from edgekit.kb.targets.core import Core

_LONGEST = 16  # operators per chain
_COUNTS = (2, 4, 8, 16, 32)  # bands per chain
_KEPT = 0.375  # of the last cache, for what is alive in a band; twice as much is touched
_IN_PLACE = (ops.Concat, ops.Reshape, ops.Split, ops.StridedSlice)  # usually move nothing
_COPIED = 0.1  # of the time to move a concatenation to memory and back, for its rows in caches
_LEAST = 0.05  # of the time of a chain, that bands must save
_SURE = 0.5  # of the time to move an image, which computing may hide


def bands_for_time(
    graph: Graph, board: BoardProfile, threads: int | None, stems: Collection[str] = ()
) -> SplitGraph:
    """Convert chains to bands where that saves time: `threads` by default are all of the fastest
    cores. Peak memory does not grow. Nodes in `stems` become parts of stems, which read any rows
    of an image in place. Only f32 on several threads of cores out of order with a third-level
    cache gets bands, as nobody has compared other times; separate units for products get none."""
    core = timed_core(board)
    units = board.nna is not None or any(u.kind in ("matrix", "vector") for u in board.speeds)
    threads = threads or clusters_of(board)[0].cores
    if core is None or core.l3 is None or core.order == "in" or units or threads == 1:
        return SplitGraph(graph, {})
    return _Search(graph, board, core, threads, stems).run()


@dataclass(frozen=True)
class _Found:
    """A chain from node `first` on in bands, which saves `gain` microseconds."""

    first: int
    chain: tuple[Node, ...]
    cuts: tuple[Cut, ...]
    gain: float


class _Search:
    def __init__(
        self,
        graph: Graph,
        board: BoardProfile,
        core: Core,
        threads: int,
        stems: Collection[str],
    ) -> None:
        self._graph, self._threads, self._stems = graph, threads, stems
        self._model = CostModel.of(board)
        self._live = Live(graph)
        self._parts = Parts(graph)
        self._room = _KEPT * last_cache(board)
        self._line_us = _line_ns(core, threads) * 1e-3
        self._call_us = HANDOVER_CYCLES / core.clock_mhz
        own = core.l2.bytes * threads if core.l3 and core.l2.per_core else 0
        self._saved = _times_apart(graph, last_cache(board) + own, self._line_us)

    def run(self) -> SplitGraph:
        graph, origin = self._graph, dict[str, str]()
        for each in reversed(self._best()):
            own = dict(origin)
            made = run_in_turns(graph, each.chain, each.cuts, own)
            if made is not None and Live(made).peak <= self._live.peak:
                graph, origin = made, own
        return SplitGraph(graph, origin)

    def _best(self) -> list[_Found]:
        """The plans that save most time together, in the order of the graph."""
        count = len(self._graph.nodes)
        best: list[tuple[float, tuple[_Found, ...]]] = [(0.0, ())]
        for end in range(1, count + 1):
            choices = [best[-1]]
            for each in self._ending_at(end):
                before, plans = best[each.first]
                choices.append((before + each.gain, (*plans, each)))
            best.append(max(choices, key=lambda choice: choice[0]))
        return list(best[-1][1])

    def _ending_at(self, end: int) -> Iterator[_Found]:
        """The best plan of each chain that ends before node `end`."""
        last = self._graph.nodes[end - 1]
        shape = self._graph.tensors[last.outputs[0]].shape if len(last.outputs) == 1 else ()
        axis = next((a for a, size in enumerate(shape) if size > 1), None)
        if axis is None or isinstance(last.op, _IN_PLACE):
            return
        if not any(name in self._saved for name in last.inputs):
            return
        for first in range(end - 2, max(end - _LONGEST, 0) - 1, -1):
            chain = find_chain(self._graph, self._live, first, end)
            if chain is None:
                return
            if chain[0] is not self._graph.nodes[first] or not self._gains_by(chain[0]):
                continue
            plans = (self._plan(chain, first, axis, n) for n in _COUNTS if n <= shape[axis])
            found = max((p for p in plans if p), key=lambda p: p.gain, default=None)
            if found is not None:
                yield found

    def _gains_by(self, node: Node) -> bool:
        return any(name in self._saved for name in node.outputs)

    def _plan(self, chain: tuple[Node, ...], first: int, axis: int, count: int) -> _Found | None:
        size = self._graph.tensors[chain[-1].outputs[0]].shape[axis]
        cuts = even_cuts(axis, size, math.ceil(size / count))
        made = self._parts.chain_in_bands(chain, cuts)
        if made is None or made.chain != chain:
            return None
        tensors = [self._graph.tensors[t] for node in chain for t in node.inputs if t is not None]
        weights = sum(t.bytes for t in tensors if t.data is not None)
        if made.peak + weights > self._room:
            return None
        inside = {name for node in chain[:-1] for name in node.outputs}
        saved = sum(self._saved.get(name, 0.0) for name in inside)
        cost = self._copying_us(made) + self._call_us * (made.calls - len(chain))
        gain, now = _SURE * saved - cost, sum(self._us(node) for node in chain)
        return _Found(first, chain, tuple(cuts), gain) if gain > _LEAST * now else None

    def _us(self, node: Node) -> float:
        """The time of a node with its data in the caches."""
        return self._model.cost_of(self._model.work(self._graph, node)) / self._threads

    def _copying_us(self, made: ChainInBands) -> float:
        """The time to copy what whole operators read or write in place."""
        copied = float(sum(n for name, n in made.copied.items() if name not in self._stems))
        for node in made.chain:
            whole = self._graph.tensors[node.outputs[0]]
            if isinstance(node.op, ops.Concat) and not joins_runs(node, whole):
                copied += whole.bytes * _COPIED
        return 2 * copied / LINE * self._line_us


def _line_ns(core: Core, threads: int) -> float:
    """Nanoseconds to read or write a cache line, on average of both."""
    if threads > 1:
        return LINE / core.dram.gb_s + core.dram.turn_ns
    return LINE / core.dram.core_gb_s


def _times_apart(graph: Graph, cache: int, line_us: float) -> Mapping[str, float]:
    """The time to write and to read each tensor that `cache` bytes cannot hold until it is read,
    because of what its producer and its readers touch."""
    tensors, producer, consumers = graph.tensors, graph.producer(), graph.consumers()
    touched = {
        node.name: sum(
            tensors[name].bytes
            for name in {*node.inputs, *node.outputs}
            if name is not None and tensors[name].data is None
        )
        for node in graph.nodes
    }
    found: dict[str, float] = {}
    for name, node in producer.items():
        readers = consumers[name]
        if not readers or view_sources(tensors, node) or tensors[name].dtype is not DType.F32:
            continue
        near = min(touched[node.name] + touched[r.name] - tensors[name].bytes for r in readers)
        left = max(1 - cache / near, 0.0) if near else 0.0
        times = sum(not isinstance(each.op, _IN_PLACE) for each in (node, *readers))
        if left > 0 and times:
            found[name] = left * times * tensors[name].bytes / LINE * line_us
    return found
