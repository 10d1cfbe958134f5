"""Times the operators of models on a board, for the cost model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.driver import build_graph, prepare
from edgekit.host.compiler.frontends import model_hash
from edgekit.host.deploy.board import Board
from edgekit.host.deploy.bundle import Bundle, build_bundle, sign_bundle
from edgekit.host.errors import InputError
from edgekit.host.lab.tune.cost import OperatorSample, samples_of
from edgekit.host.lab.zoo.models import zoo_options
from edgekit.kb.targets.board import load_board


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
