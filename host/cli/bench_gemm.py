"""`edgekit lab bench gemm`: matrix products as the knowledge base chooses, and alternatives."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edgekit.host.cli.bench_outlier import bench_outlier
from edgekit.host.cli.options import (
    BoardOption,
    Json,
    TransportOption,
    board_name,
    examples,
    refuse_with,
    refuse_without,
)
from edgekit.host.common.text import counted

if TYPE_CHECKING:
    from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
    from edgekit.host.deploy.board import Board
    from edgekit.host.lab.bench.gemm import CaseResult, Dtype, GemmPeers
    from edgekit.host.lab.bench.gemm_cases import GemmCase
    from edgekit.host.lab.bench.gemm_report import GemmReport
    from edgekit.host.lab.tune.tuner import Measurer
    from edgekit.host.simulator.target import SimulatedCore
    from edgekit.kb.targets.board import BoardProfile

_HERE = "local"
_EMULATED_RANDOM = 40  # number of products; each takes seconds there, or in an estimate
_EMULATED_REGRET = 5
_ESTIMATED_OPERATIONS = 2**28  # per product: half a minute with both methods
_SEARCHED = 16  # methods tried per product; the size limit shrinks by this factor


def register(group: typer.Typer) -> None:
    """Adds the command to the group `bench`."""
    group.command(
        "gemm",
        epilog=examples(
            "edgekit lab bench gemm --peers",
            "edgekit lab bench gemm --shapes shapes.txt --dtype s8 --threads 2 --json",
            "edgekit lab bench gemm --regret --seed 5          # other random products",
            "edgekit lab bench gemm --board rpi4 --shapes shapes.txt   # estimated without a board",
            "edgekit lab bench gemm --board rpi4 --peers --dtype f32   # beside OpenBLAS",
            "edgekit lab bench gemm --board a57 --regret       # virtual boards count instructions",
            "edgekit lab bench gemm --dtype outlier --peers    # 8-bit weights, outlier channels",
        ),
    )(bench_gemm)


def bench_gemm(
    context: typer.Context,
    board: BoardOption = None,
    shapes: Annotated[
        Path | None,
        typer.Option(
            "--shapes",
            metavar="FILE",
            show_default=False,
            help="File with m,k,n on each line (default: a standard set).",
        ),
    ] = None,
    peers: Annotated[
        bool, typer.Option("--peers", help="Time other libraries too, here or by estimate.")
    ] = False,
    threads: Annotated[
        int, typer.Option("--threads", metavar="N", min=1, max=256, help="Threads to run on.")
    ] = 1,
    dtype: Annotated[
        Literal["f32", "s8", "all", "outlier"],
        typer.Option("--dtype", help="Type of A; outlier: 8 bits except in its outlier channels."),
    ] = "all",
    regret: Annotated[
        bool,
        typer.Option("--regret", help="Show what the choice loses to an exhaustive search."),
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            min=0,
            show_default=False,
            help="Seed of the random products for --regret (default: always the same).",
        ),
    ] = None,
    transport: TransportOption = None,
    as_json: Json = False,
) -> None:
    """Time matrix products on a board, or estimate them."""
    from edgekit.host.cli.bench_board import (
        board_or_core,
        closing_board,
        estimate_document,
        refuse_peers,
        show_estimate,
    )
    from edgekit.host.cli.output import emit
    from edgekit.host.simulator.target import SimulatedCore

    name = board_name(board)
    if dtype == "outlier":
        refuse_with(context, "--dtype outlier", "regret", "seed")
        bench_outlier(name, transport, shapes, threads, peers, as_json)
        return
    cases = _select_cases(shapes)
    dtypes: tuple[Dtype, ...] = ("f32", "s8") if dtype == "all" else (dtype,)
    if not regret:
        refuse_without(context, "--regret", "seed")
    where = board_or_core(name, transport)
    if peers and not isinstance(where, SimulatedCore):
        refuse_peers(name)
    kinds = ["float" if each == "f32" else "int8" for each in dtypes]
    with closing_board(where):
        report = _measure_gemm(name, where, cases, dtypes, threads, peers, regret, seed)
    if as_json:
        emit({**report.to_json(), "estimate": estimate_document(where, kinds, threads)})
    else:
        _print_report(report)
        show_estimate(where, kinds, threads)


def _select_cases(shapes: Path | None) -> list[GemmCase]:
    from edgekit.host.lab.bench.gemm_cases import given_cases, standard_cases
    from edgekit.host.lab.tune.products import shapes_of_file

    return given_cases(shapes_of_file(shapes)) if shapes else standard_cases()


def _measure_gemm(
    name: str,
    where: Board | SimulatedCore,
    cases: list[GemmCase],
    dtypes: tuple[Dtype, ...],
    threads: int,
    peers: bool,
    regret: bool,
    seed: int | None,
) -> GemmReport:
    from edgekit.device.runtime.arrays.find import find_library
    from edgekit.host.cli.progress import counting
    from edgekit.host.compiler.tables.gemm import table_of
    from edgekit.host.lab.bench.gemm import measure_cases
    from edgekit.host.lab.bench.gemm_lookup import lookup_speed
    from edgekit.host.lab.bench.gemm_regret import (
        REGRET_COUNT,
        REGRET_SEED,
        measure_regret,
        unseen_cases,
    )
    from edgekit.host.lab.bench.gemm_report import GemmReport
    from edgekit.host.lab.bench.machine import machine_summary
    from edgekit.host.lab.tune.estimating import EstimatingMeasurer
    from edgekit.host.lab.tune.measure import BoardMeasurer
    from edgekit.host.lab.tune.products import COUNTED_OPERATIONS
    from edgekit.host.simulator.target import SimulatedCore
    from edgekit.kb.targets.board import load_board

    counted, limit = False, None
    measurer: Measurer
    if isinstance(where, SimulatedCore):
        profile, limit = where.board, _ESTIMATED_OPERATIONS
        measurer = EstimatingMeasurer(where)
    else:
        profile, counted = load_board(where.profile), where.emulated
        limit = COUNTED_OPERATIONS if counted else None
        measurer = BoardMeasurer(where, profile, counted)
    table = table_of(profile)
    wanted = [(case, each) for each in dtypes for case in _filter_cases(cases, limit)]
    with counting("products measured") as tell:
        results = measure_cases(wanted, profile, table, threads, measurer, tell)
    found = None
    if peers:
        results, found = _with_peers(results, where, profile, table, threads)
    searched = None
    if regret:
        count = _EMULATED_REGRET if limit else REGRET_COUNT
        small = limit and limit // _SEARCHED
        wanted_seed = REGRET_SEED if seed is None else seed
        unseen = unseen_cases(table, profile.platform, count, small, wanted_seed)
        pairs = [(case, each) for each in dtypes for case in unseen]
        with counting("products searched") as tell:
            searched = measure_regret(pairs, profile, table, threads, measurer, tell)
    library, blob = find_library() if name == _HERE else (None, None)
    return GemmReport(
        board=name,
        platform=profile.platform,
        machine=machine_summary() if name == _HERE else name,
        threads=threads,
        emulated=counted,
        results=tuple(results),
        refused=len(cases) * len(dtypes) - len(results),
        peers=found,
        lookup=lookup_speed(library, blob) if library and blob else None,
        regret=searched,
    )


def _with_peers(
    results: list[CaseResult],
    where: Board | SimulatedCore,
    profile: BoardProfile,
    table: KnowledgeBase,
    threads: int,
) -> tuple[list[CaseResult], GemmPeers]:
    """The results beside other libraries, which are timed here or estimated for a core."""
    from edgekit.host.cli.output import note
    from edgekit.host.cli.progress import counting
    from edgekit.host.lab.bench.gemm import compare_with_peers
    from edgekit.host.lab.bench.gemm_on_core import compare_on_core, our_seconds
    from edgekit.host.simulator.target import SimulatedCore

    with counting("products timed against peers") as tell:
        if isinstance(where, SimulatedCore):
            ours = partial(our_seconds, where, table, threads)
            return compare_on_core(results, where, ours, threads, tell, note)
        return compare_with_peers(results, profile, threads, tell)


def _filter_cases(cases: list[GemmCase], most_operations: int | None) -> list[GemmCase]:
    """All cases, or on an emulated board those that take seconds, with fewer random ones."""
    if most_operations is None:
        return cases
    small = [case for case in cases if case.shape.operations <= most_operations]
    randoms = [case for case in small if case.group == "random"]
    return [case for case in small if case.group != "random"] + randoms[:_EMULATED_RANDOM]


def _print_report(report: GemmReport) -> None:
    from edgekit.host.cli.output import table
    from edgekit.host.lab.bench.gemm import bytes_over_floats
    from edgekit.host.lab.bench.gemm_report import rows

    names = sorted(report.peers.versions) if report.peers else []
    unit = "instructions" if report.emulated else "GFLOP/s"
    cells = rows(report, names)
    if cells and names:
        table(["m,k,n", "dtype", unit, "gain", *names, "ratio"], cells, left=2)
    elif cells:
        table(["m,k,n", "dtype", "rule", unit, "gain"], cells, left=3)
    _show_summary(report)
    if (factor := bytes_over_floats(report.results)) is not None:
        print(f"s8       {factor:.2f} x f32 on large squares")
    if report.lookup:
        exact = report.lookup.exact
        first = "" if exact is None else f", {exact:.0f} ns the first time (exact row)"
        print(f"look-up  {report.lookup.repeated:.0f} ns{first}")
    if regret := report.regret:
        print(
            f"regret   mean {100 * regret.mean:.1f}%, worst {100 * regret.worst:.1f}% "
            f"over {counted(len(regret.products), 'product')} not tuned before"
        )
    if report.peers:
        for name, version in sorted(report.peers.versions.items()):
            print(f"peer     {name} {version}")
        for name, why in sorted(report.peers.missing.items()):
            print(f"missing  {name}: {why}")
    if report.refused:
        print(
            f"left out {counted(report.refused, 'product')}: too large for the board, or to emulate"
        )


def _show_summary(report: GemmReport) -> None:
    from edgekit.host.lab.bench.gemm import geometric_mean, summarize

    for each in summarize(report.results):
        text = f"{each.dtype} {each.group}: {each.gain:.2f} x the fixed method"
        if each.ratio is not None and each.worst:
            shape, ratio = each.worst.case.shape, each.worst.ratio
            text += (
                f", {each.ratio:.2f} x the best peer "
                f"(worst {ratio:.2f}: {shape.m},{shape.k},{shape.n})"
            )
        print(f"mean     {text}, {counted(each.products, 'product')}")
    gain = geometric_mean(r.gain for r in report.results)
    products = counted(len(report.results), "product")
    print(f"gain     {gain:.3f} x edgekit's single fixed method, {products}")
