"""Times operators on a board, fits the constants of its cost model to the times and evaluates the
model's accuracy."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.costs.calibration import Calibration
from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.costs.work import AMOUNTS, Work
from edgekit.host.compiler.driver import build_graph, prepare
from edgekit.host.compiler.frontends import model_hash
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.deploy.board import Board
from edgekit.host.deploy.bundle import Bundle, build_bundle, sign_bundle
from edgekit.host.errors import InputError
from edgekit.host.lab.zoo.models import zoo_options
from edgekit.kb.targets.board import BoardProfile, load_board

_LEAST_OF_A_FAMILY = 3  # operators; fewer cannot determine a speed
_FOLDS = 5
_ROUNDS = 8  # of refitting with less weight on outliers
_TICK_US = 0.05  # clock resolution: times near or below it count for less
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class OperatorSample:
    """One operator of a model: its work, and the median of its times in microseconds."""

    model: str
    operator: str
    work: Work
    measured_us: float


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of predicted times: the median and 90th percentile of |error|, and Spearman's rank
    correlation, over a number of operators."""

    operators: int
    median_error: float
    p90_error: float
    rank_correlation: float


def samples_of(
    model: str, graph: Graph, costs: CostModel, times: Mapping[str, float]
) -> list[OperatorSample]:
    """The operators of a scheduled graph that have a time and do any work."""
    found = []
    for node in graph.nodes:
        work = costs.work(graph, node)
        measured = times.get(node.name, 0.0)
        if work.kind != "none" and measured > 0:
            found.append(OperatorSample(model, node.name, work, measured))
    return found


def calibrate(
    samples: Sequence[OperatorSample], board: BoardProfile, emulated: bool
) -> Calibration:
    """Fits the constants to the samples, separately for each family."""
    families: dict[str, list[OperatorSample]] = defaultdict(list)
    for sample in samples:
        families[sample.work.family].append(sample)
    fitted = {
        name: _fit_costs(group)
        for name, group in families.items()
        if len(group) >= _LEAST_OF_A_FAMILY
    }
    assumed = CostModel(board)
    ratios = [s.measured_us / assumed.cost_of(s.work) for s in samples]
    return Calibration(board.name, emulated, float(np.median(ratios)), fitted)


def accuracy(samples: Sequence[OperatorSample], costs: CostModel) -> Accuracy:
    """The accuracy of a cost model on the samples."""
    return _accuracy([(costs.cost_of(s.work), s.measured_us) for s in samples])


def accuracy_elsewhere(
    samples: Sequence[OperatorSample], board: BoardProfile, emulated: bool
) -> Accuracy | None:
    """Cross-validated accuracy: operators predicted only from other models; None for one model.

    Models are held out in up to five groups, one group at a time.
    """
    pairs = []
    models = sorted({s.model for s in samples})
    for fold in range(min(_FOLDS, len(models))) if len(models) > 1 else ():
        left_out = set(models[fold::_FOLDS])
        others = [s for s in samples if s.model not in left_out]
        costs = CostModel(board, calibrate(others, board, emulated))
        pairs += [(costs.cost_of(s.work), s.measured_us) for s in samples if s.model in left_out]
    return _accuracy(pairs) if pairs else None


def rank_correlation(a: Iterable[float], b: Iterable[float]) -> float:
    """Spearman's correlation: 1 for the same ranking; 0 if either side is constant."""
    first, second = (_ranks(np.array(list(v), float)) for v in (a, b))
    if not first.size or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: Floats) -> Floats:
    """Ranks, with ties sharing their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    middle: Floats = ends - (counts - 1) / 2.0
    ranks: Floats = middle[inverse]
    return ranks


def _accuracy(pairs: Sequence[tuple[float, float]]) -> Accuracy:
    predicted, measured = (np.array(v, float) for v in zip(*pairs, strict=True))
    errors = np.abs(predicted / measured - 1)
    return Accuracy(
        operators=len(pairs),
        median_error=float(np.median(errors)),
        p90_error=float(np.percentile(errors, 90)),
        rank_correlation=rank_correlation(predicted, measured),
    )


def _fit_costs(samples: Sequence[OperatorSample]) -> tuple[float, ...]:
    """Nonnegative microseconds per amount, minimizing relative errors.

    Iteratively reweighted to reduce the influence of outliers, so that the typical operator
    decides.
    """
    measured = np.array([s.measured_us for s in samples])
    amounts = np.array([s.work.amounts.values() for s in samples])
    relative = amounts / (measured[:, None] + _TICK_US)
    wanted = measured / (measured + _TICK_US)
    weights = np.ones(len(samples))
    found = np.zeros(len(AMOUNTS))
    for _ in range(_ROUNDS):
        found = _least_squares(relative * weights[:, None], wanted * weights)
        error = np.abs(amounts @ found / measured - 1)
        weights = 1 / np.sqrt(np.maximum(error, 0.05))
    return tuple(float(x) for x in found)


def _least_squares(matrix: Floats, wanted: Floats) -> Floats:
    """The x >= 0 minimizing |matrix x - wanted|: the best over all choices of nonzero entries.

    Seven amounts make 127 choices; fewer if an amount never occurs or there are few rows.
    """
    scale = np.abs(matrix).max(axis=0)
    able = [i for i, s in enumerate(scale) if s > 0]
    best, least = np.zeros(matrix.shape[1]), float(wanted @ wanted)
    for size in range(1, len(able) + 1):
        for chosen in itertools.combinations(able, size):
            part = matrix[:, chosen] / scale[list(chosen)]
            x = np.linalg.lstsq(part, wanted, rcond=None)[0]
            if (x < 0).any():
                continue
            rest = part @ x - wanted
            if float(rest @ rest) < least:
                least = float(rest @ rest)
                best = np.zeros(matrix.shape[1])
                best[list(chosen)] = x / scale[list(chosen)]
    return best


def measure(
    device: Board,
    models: Sequence[Path],
    rounds: int,
    seconds: int,
    tell: Callable[[str], None],
    take: Callable[[Bundle], None] = lambda _: None,
) -> list[OperatorSample]:
    """Runs each model by itself in `rounds` rounds, leaving the deployed release alone; returns
    the minimum of each operator's medians. Models that cannot be compiled are reported and
    skipped; `take` gets each other model's bundle once."""
    board = load_board(device.profile)
    costs = CostModel(board)
    times: dict[Path, dict[str, float]] = {}
    ready = {}
    for r in range(rounds):
        for model in models:
            tell(f"round {r + 1} of {rounds}, {model.name}")
            try:
                if r == 0:
                    digest = model_hash(model)
                    ready[model] = (prepare(model, board, zoo_options(model)), digest)
                if model not in ready:
                    continue
                artifact = build_graph(*ready[model], board)
                bundle = sign_bundle(build_bundle(artifact, board))
                with device.temporary() as place:
                    place.deploy(bundle)
                    bench = place.bench(threads=place.threads or 1, seconds=seconds)
            except InputError as error:
                tell(f"left out: {error}")
                ready.pop(model, None)
                continue
            if r == 0:
                take(bundle)
            known = times.setdefault(model, {})
            for operator in bench.operators:
                earlier = known.get(operator.name, operator.median_us)
                known[operator.name] = min(earlier, operator.median_us)
    return [
        sample
        for model, (made, _) in ready.items()
        for sample in samples_of(model.stem, made.graph, costs, times.get(model, {}))
    ]
