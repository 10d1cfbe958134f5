"""Post-training quantization: tries recipes, keeps floats where codes cost too much, and reports.

Nothing is taken on trust: each step that may help or harm (clipping, equalization, bias correction,
a layer of floats) stays if it makes the outputs of some calibration samples better. What is
reported was measured on samples that none of this has seen.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array, Graph
from edgekit.host.compiler.transforms.quantize.build import Coded, MisfitError, build
from edgekit.host.compiler.transforms.quantize.center import center
from edgekit.host.compiler.transforms.quantize.correct import Means, correct_biases, float_means
from edgekit.host.compiler.transforms.quantize.cost import Cost
from edgekit.host.compiler.transforms.quantize.equalize import equalize
from edgekit.host.compiler.transforms.quantize.measure import compared, worst
from edgekit.host.compiler.transforms.quantize.observe import Observed, Sample, observe
from edgekit.host.compiler.transforms.quantize.prepare import float_form
from edgekit.host.compiler.transforms.quantize.ranges import Method
from edgekit.host.compiler.transforms.quantize.report import Report, report_of
from edgekit.host.compiler.transforms.quantize.rules import quantized_nodes, rounded_layers
from edgekit.host.compiler.transforms.quantize.samples import is_held_out, spread, spread_for_memory
from edgekit.host.compiler.transforms.quantize.scales import scales_of
from edgekit.host.compiler.transforms.quantize.sensitive import next_in_floats, noises

_LOG = logging.getLogger(__name__)
TARGET = 0.995  # cosine of every output
_MARGIN = 0.9  # of what the target allows: other samples are a little worse
_CORRECTORS = 16  # samples, at most, whose means correct biases
_JUDGES = 12  # samples that recipes are compared on


@dataclass(frozen=True)
class Recipe:
    """How codes come about; `floats`: names of nodes that stay in floats."""

    method: Method = "least_squares"
    corrected: bool = True
    equalized: bool = False
    compensated: bool = True
    floats: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Quantized:
    """A graph of codes that takes and gives floats as the one it was made of, and what it lost."""

    graph: Graph
    report: Report


@dataclass(frozen=True, eq=False)
class _Trial:
    recipe: Recipe
    base: Graph  # of floats
    coded: Coded
    noise: float  # of all outputs, as parts of their power
    cosine: float  # of the worst output


@dataclass
class _Kitchen:
    """The float graphs, what was observed of them on `fit`, and other samples to judge by."""

    plain: Graph
    fit: Sequence[Sample]
    judges: Sequence[Sample]
    cost: Cost
    observed: dict[bool, Observed] = field(default_factory=dict)
    bases: dict[bool, Graph] = field(default_factory=dict)
    means: dict[bool, Means] = field(default_factory=dict)
    exact: list[dict[str, Array]] = field(default_factory=list)
    costs: dict[tuple[bool, frozenset[str]], float] = field(default_factory=dict)
    added: dict[str, float] = field(default_factory=dict)  # to the cost, by single nodes
    changed: bool = False

    def __post_init__(self) -> None:
        self.bases[False] = self.plain
        self.observed[False] = observe(self.plain, self.fit)
        self.exact = [evaluate(self.plain, each).outputs for each in self.judges]

    @property
    def correctors(self) -> Sequence[Sample]:
        """The samples that biases are corrected by, as many as memory has room for."""
        return spread_for_memory(self.plain, self.fit, _CORRECTORS)

    def can_equalize(self) -> bool:
        """Whether there is anything to center or to equalize; prepares it."""
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
        """Microseconds on the board, of codes that are like those of the recipe."""
        key = recipe.equalized, recipe.floats
        if key not in self.costs:
            bare = replace(recipe, compensated=False)
            coded, _ = self._built(bare)
            self.costs[key] = self.cost(coded.graph)
        return self.costs[key]

    def tried(self, recipe: Recipe) -> _Trial:
        """What comes of a recipe."""
        base = self.bases[recipe.equalized]
        coded, floats = self._built(recipe)
        if recipe.corrected:
            if recipe.equalized not in self.means:
                self.means[recipe.equalized] = float_means(base, self.correctors)
            coded = correct_biases(coded, self.means[recipe.equalized], self.correctors)
        outputs = [evaluate(coded.graph, each).outputs for each in self.judges]
        found = compared(self.plain, self.exact, outputs)
        noise = float(np.mean([10 ** (-d.snr_db / 10) for d in found.values()]))
        cosine = worst(found).cosine
        trial = _Trial(replace(recipe, floats=floats), base, coded, noise, cosine)
        _LOG.info("%s: %s: cosine %.6f", self.plain.name, recipe, cosine)
        return trial

    def _built(self, recipe: Recipe) -> tuple[Coded, frozenset[str]]:
        """The codes, and the nodes that had to stay in floats."""
        base, observed = self.bases[recipe.equalized], self.observed[recipe.equalized]
        floats = set(recipe.floats)
        moments = observed.moments if recipe.compensated else {}
        while True:
            coded = quantized_nodes(base, floats, observed.broken)
            scales = scales_of(base, coded, observed, recipe.method)
            try:
                chosen = coded | rounded_layers(base, floats)
                return build(base, chosen, scales, moments), frozenset(floats)
            except MisfitError as misfit:
                floats.add(misfit.node)


def quantize(
    graph: Graph,
    samples: Sequence[Sample],
    cost: Cost,
    labels: NDArray[np.int64] | None = None,
    target: float = TARGET,
) -> Quantized:
    """`graph` of floats as codes of 8 bits wherever that is worth it. The cosine of each output is
    to be at least `target` on samples held out (every fourth); layers that stand in the way stay
    in floats, the worst for their `cost` first, while the whole is cheaper than in floats; where
    that does not suffice, as many as bring more than they take of the time that codes save.
    `labels`: the class of each sample, for the report.

    Raises InputError for a graph that is quantized already, or has nothing to quantize.
    """
    plain = float_form(graph)
    held = [is_held_out(i) for i in range(len(samples))]
    seen = [s for s, out in zip(samples, held, strict=True) if not out]
    judges = [s for i, s in enumerate(seen) if is_held_out(i)]
    fit = [s for i, s in enumerate(seen) if not is_held_out(i)]
    kitchen = _Kitchen(plain, fit, spread(judges, _JUDGES), cost)
    best = kitchen.tried(Recipe())
    for change in ({"method": "extremes"}, {"equalized": True}, {"compensated": False}):
        if "equalized" in change and not kitchen.can_equalize():
            continue
        other = kitchen.tried(replace(best.recipe, **change))
        best = other if other.noise < best.noise else best
    best = _reached(kitchen, best, 1 - (1 - target) * _MARGIN, target)
    unseen = [s for s, out in zip(samples, held, strict=True) if out]
    truth = None if labels is None else labels[np.array(held)]
    report = report_of(plain, best.base, best.coded, unseen, truth, len(seen))
    report = replace(report, target=target, recipe=_told(best.recipe))
    return Quantized(best.coded.graph, report)


def _reached(kitchen: _Kitchen, best: _Trial, goal: float, target: float) -> _Trial:
    """`best`, or with the worst nodes for their cost in floats until the goal is reached, more at
    a time, and as long as the plan is cheaper than that of all floats. Where no more are left, the
    first that at least has the target, or else the best trade."""
    if best.cosine >= goal:
        return best
    noise = noises(best.base, best.coded, kitchen.judges[:2])
    most, floats, step = kitchen.cost(kitchen.plain), best.recipe.floats, 1
    tried = [best]
    while tried[-1].cosine < goal:
        added = _added(kitchen, replace(best.recipe, floats=floats), noise, step, most)
        if added == floats:
            near = next((trial for trial in tried if trial.cosine >= target), None)
            return near or _best_trade(kitchen, tried, most)
        floats, step = added, max(step, (len(added) - len(best.recipe.floats)) // 2)
        tried.append(kitchen.tried(replace(best.recipe, floats=floats)))
    return tried[-1]


def _best_trade(kitchen: _Kitchen, tried: Sequence[_Trial], most: float) -> _Trial:
    """Of trials with more and more floats, all cheaper than `most`: the one that leaves least of
    the first one's noise and gives up least of the time that it saves, in sum."""
    first, cheapest = tried[0], kitchen.cost_of(tried[0].recipe)
    if len(tried) == 1:
        return first
    return min(
        tried,
        key=lambda trial: (
            trial.noise / first.noise
            + (kitchen.cost_of(trial.recipe) - cheapest) / (most - cheapest)
        ),
    )


def _added(
    kitchen: _Kitchen, recipe: Recipe, noise: Mapping[str, float], count: int, most: float
) -> frozenset[str]:
    """The floats of a recipe and up to `count` more, while their cost is below `most`."""
    floats = recipe.floats
    for _ in range(count):
        found = next_in_floats(
            noise,
            floats,
            lambda names: kitchen.cost_of(replace(recipe, floats=names)),
            kitchen.added,
        )
        if found is None or found[1] >= most:
            break
        floats |= {found[0]}
        _LOG.info("%s: in floats: %s, %.1f us", kitchen.plain.name, *found)
        for near in _neighbors(kitchen.plain, found[0]):
            kitchen.added.pop(near, None)  # the border between the two is no more
    return floats


def _neighbors(graph: Graph, name: str) -> set[str]:
    """The nodes that read what a node makes, or make what it reads."""
    node = next(n for n in graph.nodes if n.name == name)
    producer, consumers = graph.producer(), graph.consumers()
    before = {made.name for t in node.inputs if t and (made := producer.get(t)) is not None}
    return before | {reader.name for t in node.outputs for reader in consumers[t]}


def _told(recipe: Recipe) -> str:
    """The recipe in words."""
    ranges = "ranges of least squared error" if recipe.method == "least_squares" else "full ranges"
    parts = [ranges]
    parts += ["channels centered and equalized"] if recipe.equalized else []
    parts += ["rounding errors compensated"] if recipe.compensated else []
    parts += ["biases corrected"] if recipe.corrected else []
    return ", ".join(parts)
