"""`edgekit lab bench sparse`: sparse matrices times a vector, or the pixels of an image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from edgekit.host.cli.bench_spmm import PIXELS, SpmmWork, Storage, bench_spmm
from edgekit.host.cli.options import (
    BoardOption,
    Json,
    TransportOption,
    board_name,
    examples,
    refuse_with,
)
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.hotspots import Hotspots
    from edgekit.device.runtime.arrays.sparse_input import Csr
    from edgekit.device.runtime.arrays.sparse_table import SparseChoice
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.connections import Via
    from edgekit.host.lab.bench.spmv import SpmvResult
    from edgekit.host.lab.bench.spmv_on_core import SparsePeer
    from edgekit.host.lab.tune.spmv_board import BoardResult
    from edgekit.host.simulator.sparse import StoredForm
    from edgekit.host.simulator.target import SimulatedCore

_HERE = "local"
Matrices = Annotated[
    list[str] | None,
    typer.Option(
        "--matrix",
        metavar="FILE",
        show_default=False,
        help="File (.mtx, .npz) or class, as random:10000:0.01 (default: a standard set).",
    ),
]
ValueType = Annotated[
    Literal["float32", "float64", "float16", "int8"],
    typer.Option("--dtype", help="Type of the stored values."),
]
Seconds = Annotated[
    float,
    typer.Option(
        "--seconds", metavar="S", min=0.05, max=600.0, help="Seconds to time each matrix."
    ),
]
_STORAGE: dict[str, Storage] = {"float32": "f32", "float16": "f16", "int8": "s8"}


def register(group: typer.Typer) -> None:
    """Adds the command to the group `bench`."""
    group.command(
        "sparse",
        epilog=examples(
            "edgekit lab bench sparse --matrix bcsstk13.mtx --peers",
            "edgekit lab bench sparse --matrix banded:1000000:5 --threads 2 --peers --json",
            "edgekit lab bench sparse --matrix power:100000:10 --board pi --hotspots",
            "edgekit lab bench sparse --board rpi4 --peers        # estimated, beside SciPy",
            "edgekit lab bench sparse --weights models/face_detection_full_range_sparse.tflite",
            "edgekit lab bench sparse --weights pruned.npz --pixels 2304 --board rpi4 --json",
        ),
    )(bench_sparse)


def bench_sparse(
    context: typer.Context,
    matrix: Matrices = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            metavar="FILE",
            show_default=False,
            help="Model, or .npz of [outputs, inputs], with pruned 1x1 convolutions to time.",
        ),
    ] = None,
    pixels: Annotated[
        int | None,
        typer.Option(
            "--pixels",
            metavar="N",
            min=1,
            show_default=False,
            help=f"Pixels of an image, for convolutions (default: the model's, else {PIXELS}).",
        ),
    ] = None,
    board: BoardOption = None,
    threads: Annotated[
        int, typer.Option("--threads", metavar="N", min=1, help="Threads to run on.")
    ] = 1,
    dtype: ValueType = "float32",
    peers: Annotated[
        bool, typer.Option("--peers", help="Time other libraries too, here or by estimate.")
    ] = False,
    hotspots: Annotated[
        bool, typer.Option("--hotspots", help="Show where the time goes and what it waits for.")
    ] = False,
    seconds: Seconds = 1.0,
    transport: TransportOption = None,
    as_json: Json = False,
) -> None:
    """Time products of sparse matrices, or estimate them."""
    name = board_name(board)
    if weights is not None or pixels is not None:
        what = "--weights" if weights else "--pixels"
        refuse_with(context, what, "matrix", "peers", "hotspots")
        if dtype not in _STORAGE:
            raise InputError(
                f"expected --dtype float32, float16 or int8 with {what}, found {dtype}; name one"
            )
        work = SpmmWork(weights, pixels, threads, seconds, _STORAGE[dtype])
        bench_spmm(name, transport, work, as_json)
    else:
        run = _SpmvWork(matrix, dtype, threads, seconds, peers, hotspots)
        _bench_spmv(name, transport, run, as_json)


@dataclass(frozen=True)
class _SpmvWork:
    """The options for products with a vector; `matrices`: None for the standard ones."""

    matrices: list[str] | None
    dtype: str
    threads: int
    seconds: float
    peers: bool
    hotspots: bool


def _bench_spmv(name: str, transport: Via | None, work: _SpmvWork, as_json: bool) -> None:
    from edgekit.host.cli.bench_board import (
        board_or_core,
        closing_board,
        refuse_estimate,
        refuse_peers,
    )
    from edgekit.host.lab.bench.spmv_matrices import ESTIMATED, STANDARD, open_matrix
    from edgekit.host.simulator.target import SimulatedCore

    threads, seconds, hotspots = work.threads, work.seconds, work.hotspots
    where = board_or_core(name, transport)
    if work.peers and not isinstance(where, SimulatedCore):
        refuse_peers(name)
    if hotspots:
        refuse_estimate(where, "--hotspots")
    standard = ESTIMATED if isinstance(where, SimulatedCore) else STANDARD
    with closing_board(where):
        # A matrix may need the kernels of this machine, and compile them.
        given = [(each, open_matrix(each, work.dtype)) for each in work.matrices or standard]
        if isinstance(where, SimulatedCore):
            estimates = _by_estimate(where, given, threads)
            scipy = _scipy_on_core(where, given) if work.peers else None
            _tell_estimates(where, estimates, scipy, threads, as_json)
        elif work.peers:
            results = _with_peers(given, threads, seconds)
            found = _on_board(where, given, 1, seconds, only_hotspots=True) if hotspots else []
            _tell_peers(results, [spots for _, _, spots in found if spots], as_json)
        else:
            measured = _on_board(where, given, threads, seconds, with_hotspots=hotspots)
            _tell_board(name, measured, threads, as_json)


_Given = Sequence[tuple[str, "Csr"]]
_Measured = tuple[str, "BoardResult | None", "Hotspots | None"]
_Estimated = tuple[str, "Csr", "SparseChoice", "StoredForm"]


def _with_peers(given: _Given, threads: int, seconds: float) -> list[SpmvResult]:
    from edgekit.host.cli.progress import working
    from edgekit.host.lab.bench.spmv import PEERS, bench_matrix, triad_rate

    with working("measuring the memory"):
        triad = triad_rate(threads)
    results = []
    for name, matrix in given:
        with working(f"timing {name} against other libraries"):
            results.append(bench_matrix(name, matrix, threads, PEERS, seconds, triad))
    return results


def _on_board(
    device: Board,
    given: _Given,
    threads: int,
    seconds: float,
    with_hotspots: bool = False,
    only_hotspots: bool = False,
) -> list[_Measured]:
    from edgekit.host.cli.progress import working
    from edgekit.host.lab.tune.spmv import settings_for
    from edgekit.host.lab.tune.spmv_board import SpmvMeasurer
    from edgekit.kb.targets.board import load_board

    if device.emulated and threads > 1:
        raise InputError(
            f"board '{device.name}' is emulated: expected 1 thread for counting instructions, "
            f"found {threads}; leave out --threads"
        )
    found: list[_Measured] = []
    profile = load_board(device.profile)
    measurer = SpmvMeasurer(device, profile, device.emulated)
    for each, matrix in given:
        with working(f"measuring {each} on {device.name}"):
            measurer.send(matrix)
            how, result, spots = settings_for(profile, matrix).settings, None, None
            if not only_hotspots:
                result = measurer.measure([how], threads, seconds, triad=True)
            if with_hotspots or only_hotspots:
                spots = measurer.hotspots(how, seconds)
            found.append((each, result, spots))
            measurer.forget()
    return found


def _by_estimate(target: SimulatedCore, given: _Given, threads: int) -> list[_Estimated]:
    from edgekit.host.cli.progress import working
    from edgekit.host.lab.tune.spmv import settings_for
    from edgekit.host.simulator.sparse import spmv_forms
    from edgekit.host.simulator.timed import RunnerCalls

    calls = RunnerCalls(target)
    found = []
    for each, matrix in given:
        with working(f"estimating {each} for {target.board.name}"):
            answer = settings_for(target.board, matrix)
            (form,) = spmv_forms(calls, matrix, [answer.settings], threads)
        found.append((each, matrix, answer, form))
    return found


def _scipy_on_core(target: SimulatedCore, given: _Given) -> SparsePeer:
    from edgekit.host.cli.output import note
    from edgekit.host.cli.progress import counting
    from edgekit.host.lab.bench.spmv_on_core import estimate_scipy

    with counting("matrices timed with SciPy") as tell:
        return estimate_scipy([matrix for _, matrix in given], target, tell, note)


def _tell_estimates(
    target: SimulatedCore,
    found: Sequence[_Estimated],
    scipy: SparsePeer | None,
    threads: int,
    as_json: bool,
) -> None:
    from edgekit.host.cli.bench_board import estimate_document, show_estimate
    from edgekit.host.cli.output import emit, table
    from edgekit.host.lab.bench.spmv import geometric_mean
    from edgekit.host.simulator.report import cost_document, largest_bound

    kinds = ["int8" if matrix.stored == "s8" else "float" for _, matrix, *_ in found[:1]]
    times = [target.milliseconds(form.cost.cycles) / 1e3 for *_, form in found]
    theirs = scipy.seconds if scipy and scipy.seconds else [math.nan] * len(found)
    ratios = [their / our for their, our in zip(theirs, times, strict=True)]
    mean = geometric_mean(ratios)
    if as_json:
        matrices = [
            {
                "name": name,
                "nonzeros": len(matrix.data),
                "settings": asdict(answer.settings),
                "rule": answer.rule,
                "seconds": seconds,
                "height": form.height,
                "padding": form.padding,
                "bytes": form.bytes,
                "cost": cost_document(form.cost),
                "scipy_ratio": ratio,
            }
            for (name, matrix, answer, form), seconds, ratio in zip(
                found, times, ratios, strict=True
            )
        ]
        document = {
            "schema": "edgekit.estimate.spmv/1",
            "board": target.board.name,
            "threads": threads,
            "unit": "seconds",
            "matrices": matrices,
            "scipy": None if scipy is None else scipy.missing or scipy.version,
            "mean_ratio": mean,
            "estimate": estimate_document(target, kinds, threads),
        }
        emit(_without_nan(document))
        return
    rows = [
        (
            *(name, str(len(matrix.data)), answer.rule, f"{form.padding:.2f}"),
            *(f"{1e6 * seconds:.1f}", largest_bound(form.cost)),
            *([] if scipy is None else ["-" if math.isnan(ratio) else f"{ratio:.2f}"]),
        )
        for (name, matrix, answer, form), seconds, ratio in zip(found, times, ratios, strict=True)
    ]
    columns = ["matrix", "non-zeros", "settings", "padding", "µs", "bound by"]
    table(columns + ([] if scipy is None else ["scipy"]), rows)
    if scipy is not None and scipy.missing:
        print(f"scipy: {scipy.missing}")
    elif scipy is not None and not math.isnan(mean):
        print(
            f"geometric mean: SciPy {scipy.version}, on one thread, takes {mean:.2f} times as long "
            "as edgekit"
        )
    show_estimate(target, kinds, threads)


def _tell_peers(results: Sequence[SpmvResult], spots: Sequence[Hotspots], as_json: bool) -> None:
    from edgekit.host.cli.output import emit, table
    from edgekit.host.lab.bench.machine import machine_summary
    from edgekit.host.lab.bench.spmv import geometric_mean

    mean = geometric_mean([result.best for result in results])
    if as_json:
        matrices = [{**asdict(r), "share_of_triad": r.share, "best_ratio": r.best} for r in results]
        document = {
            "schema": "edgekit.bench.spmv/1",
            "board": _HERE,
            "machine": machine_summary(),
            "matrices": matrices,
            "mean_ratio": mean,
            "hotspots": [asdict(each) for each in spots],
        }
        emit(_without_nan(document))
        return
    names = [peer.name for peer in results[0].peers] if results else []
    rows = []
    for r in results:
        row = [r.name, str(r.nonzeros), f"{r.padding:.2f}", f"{r.ours.median * 1e6:.1f}"]
        row += [f"{r.moved / r.product / 1e9:.1f}", f"{r.share:.0%}"]
        row.append("-" if math.isnan(r.gathers) else f"{r.gathers * 1e6:.1f}")
        rows.append(row + ["-" if p.missing else f"{p.ratio:.2f}" for p in r.peers])
    table(["matrix", "non-zeros", "padding", "µs", "GB/s", "of triad", "gathers µs", *names], rows)
    for name, why in {(p.name, p.missing) for r in results for p in r.peers if p.missing}:
        print(f"{name}: {why}")
    if not math.isnan(mean):
        print(f"geometric mean: the best of the others takes {mean:.2f} times as long as edgekit")
    _tell_hotspots(spots)


def _tell_board(board: str, found: Sequence[_Measured], threads: int, as_json: bool) -> None:
    from edgekit.host.cli.output import emit, table

    results = [(name, result) for name, result, _ in found if result is not None]
    spots = [each for _, _, each in found if each is not None]
    emulated = any(result.triad is None for _, result in results)
    if as_json:
        emit(
            {
                "schema": "edgekit.bench.spmv/1",
                "board": board,
                "threads": threads,
                "unit": "instructions" if emulated else "seconds",
                "matrices": [{"name": name, **asdict(result)} for name, result in results],
                "hotspots": [asdict(each) for each in spots],
            }
        )
        return
    rows = []
    for name, result in results:
        form, facts = result.forms[0], result.features
        row = [name, str(facts.nonzeros), f"{form.padding:.2f}"]
        if result.triad is None:
            row += [f"{form.median:.0f}", f"{form.median / max(facts.nonzeros, 1):.2f}"]
        else:
            rate = form.bytes / form.median
            row += [f"{form.median * 1e6:.1f}", f"{rate / result.triad:.0%}"]
        rows.append(row)
    units = ["instructions", "per non-zero"] if emulated else ["µs", "of triad"]
    table(["matrix", "non-zeros", "padding", *units], rows)
    _tell_hotspots(spots)


def _tell_hotspots(spots: Sequence[Hotspots]) -> None:
    from edgekit.host.cli.bench_hotspots import place_lines

    for each in spots:
        print(f"bottleneck  {each.bottleneck.kind}: {each.bottleneck.why}")
        for line in place_lines(each.functions, each.instructions, each.missing):
            print(line)


def _without_nan(value: Any) -> Any:
    """Replaces NaN, which JSON lacks, with null: the value was not measured."""
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value
