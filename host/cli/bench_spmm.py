"""`edgekit lab bench sparse --weights`: pruned 1x1 convolutions compared with dense ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.connections import Via
    from edgekit.host.lab.bench.spmm import SpmmMeasurer, SpmmResult
    from edgekit.host.simulator.target import SimulatedCore

PIXELS = 2304
Storage = Literal["f32", "f16", "s8"]
_NAME = 24  # characters of a layer's name: those at its end tell layers apart


@dataclass(frozen=True)
class SpmmWork:
    """The layers of a file, or standard ones; `pixels`: None for the model's own. `seconds`: to
    measure each."""

    weights: Path | None
    pixels: int | None
    threads: int
    seconds: float
    storage: Storage


def bench_spmm(board: str, transport: Via | None, work: SpmmWork, as_json: bool) -> None:
    """Times pruned 1x1 convolutions on a board against dense ones, or estimates both."""
    from edgekit.host.cli.bench_board import (
        board_or_core,
        closing_board,
        estimate_document,
        show_estimate,
    )
    from edgekit.host.cli.output import emit
    from edgekit.host.cli.progress import working
    from edgekit.host.lab.bench.spmm import bench_layer, layers_of, mean_ratio

    layers = layers_of(work.weights)
    where = board_or_core(board, transport)
    results = []
    with closing_board(where):
        measurer = _measurer_of(where)
        for layer in layers:
            with working(f"timing {layer.name}"):
                pixels = work.pixels or layer.pixels or PIXELS
                threads, seconds = work.threads, work.seconds
                results.append(bench_layer(measurer, layer, pixels, threads, seconds, work.storage))
    if as_json:
        document = {
            "schema": "edgekit.bench.spmm/1",
            "board": board,
            "threads": work.threads,
            "storage": work.storage,
            "unit": measurer.unit,
            "layers": [asdict(result) for result in results],
            "mean_ratio": mean_ratio(results),
            "estimate": estimate_document(where, ["float"], work.threads),
        }
        emit(document)
        return
    _print_results(results, measurer.unit)
    show_estimate(where, ["float"], work.threads)


def _measurer_of(where: Board | SimulatedCore) -> SpmmMeasurer:
    from edgekit.host.lab.bench.spmm import BoardSpmm, EstimatedSpmm
    from edgekit.host.simulator.target import SimulatedCore
    from edgekit.kb.targets.board import load_board

    if isinstance(where, SimulatedCore):
        return EstimatedSpmm(where)
    return BoardSpmm(where, load_board(where.profile), where.emulated)


def _print_results(results: Sequence[SpmmResult], unit: str) -> None:
    from edgekit.host.cli.output import table
    from edgekit.host.lab.bench.spmm import mean_ratio

    timed = unit == "seconds"
    rows = []
    for r in results:
        costs = [f"{1e6 * c:.1f}" if timed else f"{c:.0f}" for c in (r.sparse, r.dense)]
        name = r.name if len(r.name) <= _NAME else f"…{r.name[1 - _NAME :]}"
        sizes = f"{r.outputs},{r.inputs},{r.pixels}"
        rows.append([name, sizes, f"{r.density:.2f}", *costs, f"{r.ratio:.2f}"])
    units = ["µs", "dense µs"] if timed else ["instructions", "dense"]
    table(["layer", "out,in,pixels", "density", *units, "dense / ours"], rows, left=2)
    mean = mean_ratio(results)
    print(f"geometric mean: the dense product takes {mean:.2f} times as long")
