"""Fits a graph into a board's memory: split, choose layouts, plan, and split further if needed.

The memory requirement is only known after scheduling and lowering, so each attempt runs `plan_of`:
split → schedule → lower, repeated until the arena is below the limit.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from edgekit.host.compiler.costs.layout_table import LayoutTable
from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.fit.plan import plan_of
from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.host.compiler.lowering.channels_first.pointwise import choose_layouts
from edgekit.host.compiler.lowering.channels_first.regions import channels_last_chains
from edgekit.host.compiler.lowering.conv.chains import chain_for_memory
from edgekit.host.compiler.lowering.groups import Group, MethodGroups
from edgekit.host.compiler.lowering.sparse.pruned import choose_pruned
from edgekit.host.compiler.lowering.sparse_decisions import SparseDecision, sparse_decisions
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.schedule.schedule import schedule
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.compiler.tables.layouts import layout_table_of
from edgekit.host.compiler.tables.spmv import spmv_table_of
from edgekit.host.compiler.transforms.split import SplitGraph, split
from edgekit.host.compiler.transforms.split.cutters import can_be_cut
from edgekit.host.compiler.transforms.split.live import Live
from edgekit.host.compiler.transforms.split.search import BandSearch, BandsOf
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import BoardProfile

_SHARES = (1, 0.85, 0.65)  # fractions of the limit to try as the bound for live bytes
_PARTS = 8  # limits to try are multiples of this part of what the unsplit graph needs
_STRICTER_NODES = 600  # operators in all graphs that are fitted into stricter limits


@dataclass(frozen=True, eq=False)
class FittedGraph:
    """A graph with its layouts chosen.

    `origin` is as in `SplitGraph`; `operators_before` counts the operators before layouts were
    chosen; `groups` are the operators whose layout was chosen together; `sparse` says of each
    pruned layer whether it runs sparse.
    """

    graph: Graph
    origin: Mapping[str, str]
    operators_before: int
    groups: tuple[Group, ...]
    sparse: tuple[SparseDecision, ...]


def fit(
    graph: Graph,
    limit: int | None,
    board: BoardProfile,
    options: CompileOptions,
    rows: KnowledgeBase,
) -> FittedGraph:
    """Fits `graph` into `limit` bytes by chaining convolutions, or else by splitting operators.

    Each split is the first that fits, so those for stricter limits may cost less: some are made,
    too, and the cheapest is returned. `rows` is the board's knowledge base of methods.

    Raises InputError naming the operator with the most live bytes if no split fits.
    """
    if limit is None:
        return _with_layouts(split(graph, None), board, layout_table_of(board), rows, options)
    graph = _ordered(graph, limit, board, options)
    job = (board, options, rows, BandSearch())
    found = _fit_within(graph, limit, *job, math.inf)
    if not found.origin:
        return found
    for stricter in _stricter_limits(graph, limit):
        best = _cost(found.graph, board)
        with suppress(InputError):
            other = _fit_within(graph, stricter, *job, best)
            found = other if _cost(other.graph, board) < best else found
    return found


def _stricter_limits(graph: Graph, limit: int) -> list[int]:
    """Down to half of `limit`, the fewer the larger the graph. They are shares of what it needs
    unsplit, so that what is found for a limit is found for larger limits, too."""
    peak = Live(graph).peak
    shares = (peak * part // _PARTS for part in reversed(range(1, _PARTS)))
    below = [share for share in shares if limit // 2 <= share < limit]
    return below[: _STRICTER_NODES // len(graph.nodes)]


def _cost(graph: Graph, board: BoardProfile) -> float:
    model = CostModel.of(board)
    return sum(model.cost(graph, node) for node in graph.nodes)


def _fit_within(
    graph: Graph,
    limit: int,
    board: BoardProfile,
    options: CompileOptions,
    rows: KnowledgeBase,
    search: BandSearch,
    most: float,
) -> FittedGraph:
    """The first that fits, of those that cost less than `most` before layouts are chosen.

    Chains are tried first because they compute nothing twice. If scratch memory or fragmentation
    still makes the arena too large, the graph is split to a fraction of the limit. Channel-major
    regions need memory for the transposes at their borders; if no split leaves enough for these,
    images stay channels-last.
    """
    chained = _in_chains(graph, limit, board, options, rows)
    if chained is not None:
        return chained
    layouts = layout_table_of(board)
    plain: SplitGraph | None = None
    least = None
    for bands_of in (search.in_bands, search.in_bands_again):
        if plain is not None:
            break  # what computes tensors again costs more than layouts gain
        for divided in _split_variants(graph, limit, bands_of):
            if not (divided.origin or options.memory_limit):
                return _with_layouts(divided, board, layouts, rows, options)
            if most < math.inf and _cost(divided.graph, board) >= most:
                continue
            if plain is None:
                need = _working_bytes(divided.graph, board, options)
                least = min(least or need, need)
                if need > limit:
                    continue
                plain = divided
            laid_out = _with_layouts(divided, board, layouts, rows, options)
            if laid_out.graph.nodes == divided.graph.nodes:
                break
            if _working_bytes(laid_out.graph, board, options) <= limit:
                return laid_out
    if plain is not None:
        return _with_layouts(plain, board, None, rows, options)
    where = divided.graph.nodes[Live(divided.graph).worst].name
    raise InputError(
        f"{graph.name}: operator {divided.origin.get(where, where)}: expected an arena of at most "
        f"{limit} bytes, found {least}, and no way to split the tensors alive there; raise "
        "--memory-limit, or choose a smaller model or a larger board"
    )


def _ordered(graph: Graph, limit: int, board: BoardProfile, options: CompileOptions) -> Graph:
    """The graph in the order of least memory, where the importer's exceeds the limit."""
    alive = Live(graph).peak
    if alive <= limit or options.order == "import":
        return graph
    found = schedule(graph, board, replace(options, order="memory")).graph
    return _outputs_early(found if Live(found).peak < alive else graph)


def _outputs_early(graph: Graph) -> Graph:
    """Operators that only make outputs run as soon as they can: outputs take no memory, and what
    they read is freed where the peak may be once the graph is split."""
    consumers = graph.consumers()
    nodes: list[Node] = []
    made: dict[str, int] = {}  # the place after the producer of a tensor
    for node in graph.nodes:
        ends = {*node.outputs} <= {*graph.outputs} and not any(consumers[t] for t in node.outputs)
        if ends and can_be_cut(node.op):
            at = max((made.get(t or "", 0) for t in node.inputs), default=0)
            nodes.insert(at, node)
            made = {t: place + (place > at) for t, place in made.items()}
        else:
            nodes.append(node)
        made.update(dict.fromkeys(node.outputs, len(nodes)))
    return replace(graph, nodes=tuple(nodes))


def _in_chains(
    graph: Graph,
    limit: int,
    board: BoardProfile,
    options: CompileOptions,
    rows: KnowledgeBase,
) -> FittedGraph | None:
    """Chains convolutions where too much is alive, then splits only as far as necessary.

    Returns None if that does not fit or if chains do not help.
    """
    if Live(graph).peak <= limit:
        return None
    chained = chain_for_memory(graph, board, rows, limit)
    if Live(chained).peak > limit:
        return None
    try:
        divided = split(chained, limit)
    except InputError:
        return None
    for layouts in (layout_table_of(board), None):
        fitted = _with_layouts(divided, board, layouts, rows, options)
        if _working_bytes(fitted.graph, board, options) <= limit:
            return fitted
    return None


def _split_variants(graph: Graph, limit: int, bands_of: BandsOf) -> Iterator[SplitGraph]:
    """Splits to try, without repetitions: operators and bands, then bands only, because parts of
    an operator and their join may need more memory than the operator."""
    tried: set[tuple[str, ...]] = set()
    bands_of = functools.cache(bands_of)
    for operators in (True, False):
        for share in _SHARES:
            try:
                divided = split(graph, limit, int(limit * share), operators, bands_of)
            except InputError:
                break  # an operator has no axis
            names = tuple(node.name for node in divided.graph.nodes)
            if names not in tried:
                tried.add(names)
                yield divided


def _with_layouts(
    divided: SplitGraph,
    board: BoardProfile,
    table: LayoutTable | None,
    rows: KnowledgeBase,
    options: CompileOptions,
) -> FittedGraph:
    """Chooses channels-first and sparse layouts where `rows`, or else `table`, predict a speedup.

    Without a table, all images stay channels-last.
    """
    threads = options.threads or 1
    groups = MethodGroups(board, rows, threads)
    saved = channels_last_chains(divided.graph, board, table, rows, threads)
    laid_out = choose_layouts(divided.graph, table, board.isa.vl, groups, saved)
    chosen = choose_pruned(laid_out, board, table, spmv_table_of(board), groups)
    made = tuple(groups.made.values())
    sparse = sparse_decisions(divided.graph, chosen, board, table)
    return FittedGraph(chosen, divided.origin, len(divided.graph.nodes), made, sparse)


def _working_bytes(graph: Graph, board: BoardProfile, options: CompileOptions) -> int:
    _, plan = plan_of(graph, board, options)
    return plan.memory.arena_bytes + plan.state_bytes
