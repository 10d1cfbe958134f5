"""Post-training quantization: compares recipes and keeps layers in float where accuracy requires.

Each optional step (clipping, equalization, bias correction, keeping a layer in float) is kept only
if it improves the outputs on a part of the calibration samples. The report is measured on held-out
samples that no step has used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.inputs import InputOptions
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array, Graph
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.pipeline import run_pipeline
from edgekit.host.compiler.placement import placements
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.compiler.target import Target
from edgekit.host.compiler.transforms.quantize.build import (
    QuantizedGraph,
    UnquantizableError,
    build,
)
from edgekit.host.compiler.transforms.quantize.center import center
from edgekit.host.compiler.transforms.quantize.correct import Means, correct_biases, float_means
from edgekit.host.compiler.transforms.quantize.equalize import equalize
from edgekit.host.compiler.transforms.quantize.field import (
    FieldRanges,
    field_histograms,
    narrow_inputs,
)
from edgekit.host.compiler.transforms.quantize.labels import read_labels
from edgekit.host.compiler.transforms.quantize.measure import compared, worst
from edgekit.host.compiler.transforms.quantize.observe import Observed, Sample, observe
from edgekit.host.compiler.transforms.quantize.prepare import float_form
from edgekit.host.compiler.transforms.quantize.ranges import Method
from edgekit.host.compiler.transforms.quantize.report import QuantizeReport, report_of
from edgekit.host.compiler.transforms.quantize.rounding import WeightRounding
from edgekit.host.compiler.transforms.quantize.rules import quantized_nodes, rounded_layers
from edgekit.host.compiler.transforms.quantize.samples import (
    is_held_out,
    samples_of,
    spread,
    spread_for_memory,
)
from edgekit.host.compiler.transforms.quantize.scales import scales_of
from edgekit.host.compiler.transforms.quantize.sensitive import next_in_floats, noises
from edgekit.host.compiler.transforms.quantize.tails import float_tails
from edgekit.host.compiler.transforms.split import memory_limit
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import BoardProfile

Cost = Callable[[Graph], float]
_LOG = logging.getLogger(__name__)
TARGET = 0.995  # cosine of every output
_MARGIN = 0.9  # of the loss that the target allows, since other samples are slightly worse
_CORRECTORS = 16  # maximum number of samples for bias correction
_VALIDATION = 12  # samples that recipes are compared on


@dataclass(frozen=True)
class Recipe:
    """Options of quantization; `floats`: names of nodes that stay in float."""

    method: Method = "least_squares"
    corrected: bool = True
    equalized: bool = False
    compensated: bool = True
    floats: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Quantized:
    """A quantized graph with the original float inputs and outputs, a report of its loss, and what
    it was built from: `base`, the float graph with channels centered and equalized, and `tensors`,
    the quantized tensors by the names of its tensors."""

    graph: Graph
    report: QuantizeReport
    base: Graph
    tensors: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class _Trial:
    recipe: Recipe
    base: Graph  # the float graph
    quantized: QuantizedGraph
    noise: float  # mean of all outputs, relative to their power
    cosine: float  # of the worst output


@dataclass
class _Evaluator:
    """The float graphs and their statistics on the `fit` samples; trials run on `validation`."""

    plain: Graph
    fit: Sequence[Sample]
    validation: Sequence[Sample]
    cost: Cost
    ranges: FieldRanges | None = None
    observed: dict[bool, Observed] = field(default_factory=dict)
    bases: dict[bool, Graph] = field(default_factory=dict)
    means: dict[bool, Means] = field(default_factory=dict)
    weights: dict[tuple[bool, bool], WeightRounding] = field(default_factory=dict)
    exact: list[dict[str, Array]] = field(default_factory=list)
    costs: dict[tuple[bool, frozenset[str]], float] = field(default_factory=dict)
    added: dict[str, float] = field(default_factory=dict)  # cost of each node in float
    changed: bool = False

    def __post_init__(self) -> None:
        self.bases[False] = self.plain
        observed = observe(self.plain, self.fit)
        if self.ranges is not None:
            observed.histograms |= field_histograms(self.plain, self.ranges)
            observed.broken |= {name for name, t in self.ranges.tensors.items() if t.odd}
        self.observed[False] = observed
        self.exact = [evaluate(self.plain, each).outputs for each in self.validation]

    @property
    def correctors(self) -> Sequence[Sample]:
        """The samples for bias correction, as many as fit in memory."""
        return spread_for_memory(self.plain, self.fit, _CORRECTORS)

    def can_equalize(self) -> bool:
        """Whether any channels can be centered or equalized; prepares the graph if so. Sketches of
        the field have no channels."""
        if self.ranges is not None:
            return False
        if True not in self.bases:
            found = self.observed[False]
            centered, moved = center(self.plain, found.middles)
            largest = found.largest | {n: r for n, r in found.reaches.items() if n in moved}
            self.bases[True] = equalize(centered, largest)
            self.changed = bool(moved) or self.bases[True] is not centered
            if self.changed:
                self.observed[True] = observe(self.bases[True], self.fit)
        return self.changed

    def cost_of(self, recipe: Recipe) -> float:
        """Microseconds on the board; uses simple rounding, which does not affect the cost."""
        key = recipe.equalized, recipe.floats
        if key not in self.costs:
            bare = replace(recipe, compensated=False)
            quantized, _ = self._build_graph(bare)
            self.costs[key] = self.cost(quantized.graph)
        return self.costs[key]

    def tried(self, recipe: Recipe) -> _Trial:
        """Build and evaluate a recipe."""
        base = self.bases[recipe.equalized]
        quantized, floats = self._build_graph(recipe)
        if recipe.corrected:
            if recipe.equalized not in self.means:
                self.means[recipe.equalized] = float_means(base, self.correctors)
            quantized = correct_biases(quantized, self.means[recipe.equalized], self.correctors)
        outputs = [evaluate(quantized.graph, each).outputs for each in self.validation]
        found = compared(self.plain, self.exact, outputs)
        noise = float(np.mean([10 ** (-d.snr_db / 10) for d in found.values()]))
        cosine = worst(found).cosine
        trial = _Trial(replace(recipe, floats=floats), base, quantized, noise, cosine)
        _LOG.info("%s: %s: cosine %.6f", self.plain.name, recipe, cosine)
        return trial

    def _build_graph(self, recipe: Recipe) -> tuple[QuantizedGraph, frozenset[str]]:
        """Return the quantized graph and the nodes that stay in float."""
        base, observed = self.bases[recipe.equalized], self.observed[recipe.equalized]
        floats = {*recipe.floats, *float_tails(base, observed)}
        key = recipe.equalized, recipe.compensated
        if key not in self.weights:
            self.weights[key] = WeightRounding(observed.moments if recipe.compensated else {})
        while True:
            quantized = quantized_nodes(base, floats, observed.broken)
            scales = scales_of(base, quantized, observed, recipe.method)
            try:
                chosen = quantized | rounded_layers(base, floats)
                return build(base, chosen, scales, self.weights[key]), frozenset(floats)
            except UnquantizableError as misfit:
                floats.add(misfit.node)


def quantize(
    graph: Graph,
    samples: Sequence[Sample],
    cost: Cost,
    labels: NDArray[np.int64] | None = None,
    target: float = TARGET,
    ranges: FieldRanges | None = None,
) -> Quantized:
    """Quantize the float `graph` to 8 bits wherever it pays. The ranges of tensors are those of the
    samples or, where known, the `ranges` of the field.

    The cosine of each output should be at least `target` on held-out samples (every fourth). To
    reach it, layers with the most noise for their `cost` stay in float, as long as the model is
    cheaper than in float. If that does not suffice, the best trade of noise for time is chosen.
    `labels`: the class of each sample, for the report.

    Raises InputError for a graph that is quantized already or has nothing to quantize.
    """
    plain = float_form(graph)
    held = [is_held_out(i) for i in range(len(samples))]
    seen = [s for s, out in zip(samples, held, strict=True) if not out]
    validation = [s for i, s in enumerate(seen) if is_held_out(i)]
    fit = [s for i, s in enumerate(seen) if not is_held_out(i)]
    evaluator = _Evaluator(plain, fit, spread(validation, _VALIDATION), cost, ranges)
    best = evaluator.tried(Recipe())
    for change in ({"method": "extremes"}, {"equalized": True}, {"compensated": False}):
        if "equalized" in change and not evaluator.can_equalize():
            continue
        other = evaluator.tried(replace(best.recipe, **change))
        best = other if other.noise < best.noise else best
    best = _move_to_float(evaluator, best, 1 - (1 - target) * _MARGIN, target)
    unseen = [s for s, out in zip(samples, held, strict=True) if out]
    truth = None if labels is None else labels[np.array(held)]
    report = report_of(plain, best.base, best.quantized, unseen, truth, len(seen))
    recipe = _describe(best.recipe, ranges is not None)
    narrow = () if ranges is None else narrow_inputs(plain, ranges, samples)
    report = replace(report, target=target, recipe=recipe, narrow=narrow)
    return Quantized(best.quantized.graph, report, best.base, best.quantized.tensors)


def _move_to_float(evaluator: _Evaluator, best: _Trial, goal: float, target: float) -> _Trial:
    """Return `best`, or a trial with more nodes in float, worst for their cost first, until the
    goal is reached; steps grow, and the plan must stay cheaper than all in float. If no node is
    left, return the first trial that reaches the target, else the best trade."""
    if best.cosine >= goal:
        return best
    noise = noises(best.base, best.quantized, evaluator.validation[:2])
    most, floats, step = evaluator.cost(evaluator.plain), best.recipe.floats, 1
    tried = [best]
    while tried[-1].cosine < goal:
        added = _extend_float_nodes(
            evaluator, replace(best.recipe, floats=floats), noise, step, most
        )
        if added == floats:
            near = next((trial for trial in tried if trial.cosine >= target), None)
            return near or _best_trade(evaluator, tried, most)
        floats, step = added, max(step, (len(added) - len(best.recipe.floats)) // 2)
        tried.append(evaluator.tried(replace(best.recipe, floats=floats)))
    return tried[-1]


def _best_trade(evaluator: _Evaluator, tried: Sequence[_Trial], most: float) -> _Trial:
    """Among trials with increasingly many float nodes, all cheaper than `most`, choose the minimum
    of relative remaining noise plus the fraction of saved time given up."""
    first, cheapest = tried[0], evaluator.cost_of(tried[0].recipe)
    if len(tried) == 1:
        return first
    return min(
        tried,
        key=lambda trial: (
            trial.noise / first.noise
            + (evaluator.cost_of(trial.recipe) - cheapest) / (most - cheapest)
        ),
    )


def _extend_float_nodes(
    evaluator: _Evaluator, recipe: Recipe, noise: Mapping[str, float], count: int, most: float
) -> frozenset[str]:
    """Add up to `count` nodes to the recipe's floats while the cost stays below `most`."""
    floats = recipe.floats
    for _ in range(count):
        found = next_in_floats(
            noise,
            floats,
            lambda names: evaluator.cost_of(replace(recipe, floats=names)),
            evaluator.added,
        )
        if found is None or found[1] >= most:
            break
        floats |= {found[0]}
        _LOG.info("%s: in floats: %s, %.1f us", evaluator.plain.name, *found)
        for near in _neighbors(evaluator.plain, found[0]):
            evaluator.added.pop(near, None)  # no conversion is needed between the two any more
    return floats


def _neighbors(graph: Graph, name: str) -> set[str]:
    """Producers and consumers of a node's tensors."""
    node = next(n for n in graph.nodes if n.name == name)
    producer, consumers = graph.producer(), graph.consumers()
    before = {made.name for t in node.inputs if t and (made := producer.get(t)) is not None}
    return before | {reader.name for t in node.outputs for reader in consumers[t]}


def _describe(recipe: Recipe, from_field: bool) -> str:
    """Describe the recipe for the report."""
    ranges = "ranges of least squared error" if recipe.method == "least_squares" else "full ranges"
    parts = [f"{ranges} in the field" if from_field else ranges]
    parts += ["channels centered and equalized"] if recipe.equalized else []
    parts += ["rounding errors compensated"] if recipe.compensated else []
    parts += ["biases corrected"] if recipe.corrected else []
    return ", ".join(parts)


def quantized_file(
    model: Path,
    graph: Graph,
    data: Path,
    board: BoardProfile,
    labels: Path | None = None,
    target: float = TARGET,
    options: InputOptions | None = None,
    ranges: FieldRanges | None = None,
) -> Quantized:
    """`quantize` the graph imported from `model` for a `board`, with the samples in `data` and the
    `ranges` of the field, if given.
    `options` override the pixel scaling recorded in the model. The loss is added to the graph as a
    note.

    Raises InputError for unsuitable models or samples.
    """
    float_form(graph)  # fail early if there is nothing to quantize: reading samples is slow
    samples = samples_of(model, graph, data, options)
    truth = None if labels is None else read_labels(labels, graph, len(samples))
    made = quantize(graph, samples, cost_on(board), truth, target, ranges)
    return replace(made, graph=replace(made.graph, notes=(*made.graph.notes, _format_note(made))))


def _format_note(made: Quantized) -> str:
    report = made.report
    floats = f"; {len(report.floats)} operators stay in floats" if report.floats else ""
    missed = f", expected {report.target:.10g}" if report.cosine < report.target else ""
    return (
        f"quantized to int8: cosine {report.cosine:.5f} with the float model on {report.unseen} "
        f"samples held out{missed}{floats}"
    )


def cost_on(board: BoardProfile) -> Cost:
    """Return a function that estimates the microseconds of a graph on one thread of the board's
    fastest cluster, including quantize and dequantize steps; infinite if it does not fit the
    board's memory."""
    options = CompileOptions(threads=1)
    table, limit = table_of(board), memory_limit(board, options)

    def cost(graph: Graph) -> float:
        try:
            work = run_pipeline(
                graph, Target(board, options, limit, table, cache_folder() / "golden")
            )
            scheduled, plan = plan_of(work.graph, board, options, table=table, threads=1)
        except InputError:
            return float("inf")
        return placements(scheduled, plan, board, threads=1)[0].cost_us

    return cost
