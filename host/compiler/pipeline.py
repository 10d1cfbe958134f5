"""The transforms between import and code generation, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from edgekit.device.runtime.agent.specs import LossSpec
from edgekit.device.runtime.agent.task import TaskSpec
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.costs.work import multiply_adds
from edgekit.host.compiler.fit import FittedGraph as InMemory
from edgekit.host.compiler.fit import fit
from edgekit.host.compiler.golden.half import sample_note, unfitted_note
from edgekit.host.compiler.ir.types import Array, Graph
from edgekit.host.compiler.lowering.conv.chains import chain_for_time
from edgekit.host.compiler.lowering.conv.grouped_conv import join_groups
from edgekit.host.compiler.lowering.conv.stems import stems_of, with_stems
from edgekit.host.compiler.lowering.gemm.epilogues import fuse_additions, fuse_epilogues
from edgekit.host.compiler.lowering.gemm.packed import with_views
from edgekit.host.compiler.lowering.gemm.row_tables import with_tables
from edgekit.host.compiler.lowering.groups import Group, MethodGroups
from edgekit.host.compiler.lowering.sparse_decisions import SparseDecision
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.precision import choose_precision
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.compiler.target import Target
from edgekit.host.compiler.transforms.passes.calibrate import Cost, calibrate, repeated
from edgekit.host.compiler.transforms.passes.compress import compress_weights
from edgekit.host.compiler.transforms.passes.mixed import mixed, mixed_note
from edgekit.host.compiler.transforms.passes.pipeline import PASSES, PassCount, run_in_bodies
from edgekit.host.compiler.transforms.passes.quantized import integer_form
from edgekit.host.compiler.transforms.passes.thresholds import FittedSplit, fixed_note, split_note
from edgekit.host.compiler.transforms.passes.tie import from_beginning, tie_states
from edgekit.host.compiler.transforms.passes.upsample import upsample_late
from edgekit.host.compiler.transforms.split import memory_limit
from edgekit.host.compiler.transforms.split.near import bands_for_time
from edgekit.kb.targets.board import BoardProfile

_HELD_OUT = 4  # one in so many samples is held out from fitting


@dataclass(frozen=True, eq=False)
class PreparedGraph:
    """A graph between import and scheduling, with its history.

    `imported` is the graph that defines the golden outputs. `exact` is its f32 version if it
    computes in half precision; `floats` is the version with float weights if some are quantized.
    `notes` are for users; `counts` are operator counts after each transform; `origin` maps parts to
    the operators they were split from; `groups` are operators whose method was chosen together;
    `sparse` says of each pruned layer whether it runs sparse;
    `base` is the float graph from which a model was quantized with samples, and `base_names` are
    the names of its tensors by those of the quantized ones.
    `splits` are the outlier splits of products fitted to samples. `limit` is the memory it had to
    fit into; `lost` is the accuracy lost to quantization before the import; `task` is what the
    model is for, which needs `files` in the release. `output_names`: as in Graph.
    """

    graph: Graph
    imported: Graph
    exact: Graph | None = None
    base: Graph | None = None
    base_names: Mapping[str, str] = field(default_factory=dict)
    floats: Graph | None = None
    notes: tuple[str, ...] = ()
    counts: tuple[PassCount, ...] = ()
    origin: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    sparse: tuple[SparseDecision, ...] = ()
    splits: Mapping[str, FittedSplit] = field(default_factory=dict)
    limit: int | None = None
    lost: LossSpec | None = None
    task: TaskSpec | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    output_names: Mapping[str, str] = field(default_factory=dict)

    def then(self, name: str, graph: Graph, before: int | None = None) -> PreparedGraph:
        """This state with `graph` as the result of the transform `name`."""
        had = len(self.graph.nodes) if before is None else before
        count = PassCount(name, had, len(graph.nodes))
        return replace(self, graph=graph, counts=(*self.counts, count))


Transform = Callable[[PreparedGraph, Target], PreparedGraph]


def _graph_pass(name: str, apply: Callable[[Graph], Graph]) -> Transform:
    return lambda work, _: work.then(name, apply(work.graph))


def _integer_form(work: PreparedGraph, _: Target) -> PreparedGraph:
    graph = integer_form(work.graph)
    return replace(work, graph=graph, imported=graph)


def _in_bodies(work: PreparedGraph, _: Target) -> PreparedGraph:
    return replace(work, graph=run_in_bodies(work.graph))


def _compress_weights(work: PreparedGraph, target: Target) -> PreparedGraph:
    """Compresses weights if requested; golden outputs then use the compressed weights."""
    if target.options.weights is None:
        return work
    bits = target.options.weights
    graph = compress_weights(work.graph, bits, target.options.group_size)
    if graph.nodes == work.graph.nodes:
        return work.then("compress_weights", graph)
    if target.fitted is not None:
        graph = repeated(work.graph, graph, bits, target.fitted)
    if target.samples:
        held_out = target.samples[::_HELD_OUT]
        shown = [each for i, each in enumerate(target.samples) if i % _HELD_OUT]
        graph, added, splits = _fit_quantized(work.graph, graph, target, shown, held_out)
        added = (*added, sample_note(work.graph, graph, held_out))
        # No splits if only lookup tables were compressed
        added += (split_note(splits),) if splits else ()
        work = replace(work, notes=(*work.notes, *added), splits=splits)
    return replace(work.then("compress_weights", graph), imported=graph, floats=work.graph)


def _fit_quantized(
    floats: Graph,
    compressed: Graph,
    target: Target,
    shown: Sequence[Mapping[str, Array]],
    held_out: Sequence[Mapping[str, Array]],
) -> tuple[Graph, tuple[str, ...], Mapping[str, FittedSplit]]:
    """Fits `compressed` to the samples `shown`; some weights get 8 bits if the options set a
    target.

    Returns the graph, a note on the 8-bit weights, and the outlier splits of its products.
    """
    options, cost = target.options, _cost_function(compressed, target.board)
    bits = options.weights
    assert bits is not None
    if options.min_cosine is None:
        graph, splits = calibrate(floats, compressed, bits, shown, cost)
        return graph, (), splits
    tried = []

    def fit(eight: frozenset[str]) -> Graph:
        made = compress_weights(floats, bits, options.group_size, eight)
        tried.append(calibrate(floats, made, bits, shown, cost, eight, accurate=True))
        return tried[-1][0]

    made = mixed(floats, compressed, fit, shown, held_out, options.min_cosine)
    splits = next(splits for graph, splits in tried if graph is made.graph)
    return made.graph, (mixed_note(made, options.min_cosine),), splits


def _cost_function(graph: Graph, board: BoardProfile) -> Cost:
    """A cost function for the nodes of `graph` and of its variants."""
    model = CostModel.of(board)
    memory = model.memory_of(graph)
    return lambda tensors, node: model.cost_within(memory, replace(graph, tensors=tensors), node)


def _tie_states(work: PreparedGraph, target: Target) -> PreparedGraph:
    """Ties outputs to inputs as states, after all uses of samples, which include these."""
    ties = target.options.states
    if not ties:
        return work
    tied = partial(tie_states, ties=ties, output_names=work.output_names)
    graph, imported = tied(work.graph), tied(work.imported)
    floats = None if work.floats is None else tied(work.floats)
    return replace(work.then("tie_states", graph), imported=imported, floats=floats)


def _half_precision(work: PreparedGraph, target: Target) -> PreparedGraph:
    """Converts to half precision if requested and supported; golden outputs are then f16. Cores
    that do not compute in it may store weights in it."""
    graph, note = choose_precision(work.graph, target)
    work = replace(work, notes=(*work.notes, note)) if note else work
    if graph is work.graph:
        return work
    return replace(work.then("to_half", graph), imported=graph, exact=work.graph)


def _with_tables(work: PreparedGraph, target: Target) -> PreparedGraph:
    """Lets products look sums up where that is faster; golden outputs then have their rounding."""
    graph = with_tables(work.graph, target.board)
    return work if graph is work.graph else replace(work, graph=graph, imported=graph)


def _fit_to_memory(work: PreparedGraph, target: Target) -> PreparedGraph:
    fitted = fit(work.graph, target.limit, target.board, target.options, target.table)
    done = work.then("choose_channels_first", fitted.graph, fitted.operators_before)
    notes = (*done.notes, _split_note(work.graph, fitted, target)) if fitted.origin else done.notes
    return replace(
        done, origin=fitted.origin, groups=fitted.groups, sparse=fitted.sparse, notes=notes
    )


def _split_note(graph: Graph, fitted: InMemory, target: Target) -> str:
    """The cost of the split, relative to the unsplit graph with its own layouts and chains."""
    whole = fit(graph, None, target.board, target.options, target.table).graph
    both = [_in_chains(each, target)[0] for each in (whole, fitted.graph)]
    work = [sum(multiply_adds(g, node) for node in g.nodes) for g in both]
    model = CostModel.of(target.board)
    time = [sum(model.cost(g, node) for node in g.nodes) for g in both]
    split = len({*fitted.origin.values()})
    return (
        f"split to fit into memory: {split} of {len(graph.nodes)} operators became "
        f"{len(fitted.origin)}; {_more(*work)} multiply-adds, {_more(*time)} estimated time"
    )


def _more(before: float, after: float) -> str:
    return f"{after / before - 1:+.1%}" if before else "+0.0%"


def _join_groups(work: PreparedGraph, target: Target) -> PreparedGraph:
    return work.then("join_groups", join_groups(work.graph, target.board, target.table))


def _fuse_into_products(work: PreparedGraph, target: Target) -> PreparedGraph:
    """Fuses transposes and factors into products; does nothing on boards without the kernel."""
    graph = with_views(work.graph, target.board)
    return work if graph is work.graph else work.then("fuse_views", graph)


def _chain_convolutions(work: PreparedGraph, target: Target) -> PreparedGraph:
    chained, groups = _in_chains(work.graph, target)
    done = work.then("chain_convolutions", chained)
    return replace(done, groups=(*done.groups, *groups.made.values()))


def _in_chains(graph: Graph, target: Target) -> tuple[Graph, MethodGroups]:
    board, table = target.board, target.table
    groups = MethodGroups(board, table, target.options.threads or 1)
    return chain_for_time(graph, board, table, groups), groups


def _in_bands(work: PreparedGraph, target: Target) -> PreparedGraph:
    stems = stems_of(work.graph, target.board, target.table)
    found = bands_for_time(work.graph, target.board, target.options.threads, stems)
    done = work.then("bands_for_time", found.graph)
    if not found.origin:
        return done
    count = len({*found.origin.values()})
    note = f"{count} operators run a few rows at a time, so that their images stay in the caches"
    origin = {name: work.origin.get(of, of) for name, of in found.origin.items()}
    return replace(done, origin={**work.origin, **origin}, notes=(*work.notes, note))


def _begin_with_stems(work: PreparedGraph, target: Target) -> PreparedGraph:
    return work.then("with_stems", with_stems(work.graph, target.board, target.table))


PIPELINE: tuple[Transform, ...] = (
    _integer_form,
    *(_graph_pass(name, apply) for name, apply in PASSES),
    _in_bodies,  # PASSES again, inside loops
    _compress_weights,
    _tie_states,
    _graph_pass("upsample_late", upsample_late),
    _with_tables,
    _half_precision,
    # chain_for_memory, split, choose_layouts, choose_pruned, repeated until the plan fits
    _fit_to_memory,
    _join_groups,
    _graph_pass("fuse_epilogues", fuse_epilogues),
    _join_groups,  # also those whose functions were before the concatenation
    _fuse_into_products,
    _chain_convolutions,
    _in_bands,
    _begin_with_stems,
    _graph_pass("fuse_additions", fuse_additions),
)


def fit_from_beginning(source: Graph, target: Target) -> PreparedGraph:
    """A graph with states, fitted to samples that each begin with the initial states. Notes say
    how accurate it is, and would be without them."""
    work = PreparedGraph(source, source)
    for transform in PIPELINE[: PIPELINE.index(_compress_weights)]:
        work = transform(work, target)
    floats, options = from_beginning(work.graph), target.options
    made = _compress_weights(replace(work, graph=floats, notes=()), target)
    assert options.weights is not None
    plain = compress_weights(floats, options.weights, options.group_size)
    note = unfitted_note(floats, plain, target.samples[::_HELD_OUT])
    return replace(made, notes=(*made.notes, note))


def fixed_thresholds(made: PreparedGraph, inputs: Sequence[Array]) -> tuple[str, ...]:
    """A note on outlier thresholds that are defaults because no samples were given."""
    if made.splits:
        return ()
    note = fixed_note(made.imported, dict(zip(made.imported.inputs, inputs, strict=True)))
    return () if note is None else (note,)


def run_pipeline(source: Graph, target: Target) -> PreparedGraph:
    """Runs all transforms. Raises InputError if the graph cannot be made to fit the target."""
    work = PreparedGraph(
        source,
        source,
        notes=tuple(source.notes),
        limit=target.limit,
        output_names=source.output_names,
    )
    for transform in PIPELINE:
        work = transform(work, target)
    return work


def target_of(
    board: BoardProfile,
    options: CompileOptions,
    table: KnowledgeBase | None = None,
    cache: Path | None = None,
) -> Target:
    """With methods of `table`, by default the board's."""
    rows = table_of(board) if table is None else table
    golden = (cache or cache_folder()) / "golden"
    return Target(board, options, memory_limit(board, options), rows, golden)
