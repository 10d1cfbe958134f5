"""Output of `edgekit bench model`: JSON document, text and report page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.release import Benchmark
    from edgekit.host.lab.bench.hotspots import ProgramVerdict
    from edgekit.host.lab.bench.peers import PeerResult
    from edgekit.host.report import Report
    from edgekit.host.simulator.model import ModelEstimate


@dataclass(frozen=True)
class BenchResult:
    """`more` are the times for further shapes of the model; `estimate` is for its first shape on a
    real core, if the board is emulated; `verdict` explains its hot spots, if requested."""

    timing: Benchmark
    peers: PeerResult | None
    more: tuple[Benchmark, ...] = ()
    estimate: ModelEstimate | None = None
    verdict: ProgramVerdict | None = None


def document(device: Board, result: BenchResult) -> dict[str, Any]:
    """The document edgekit.bench.model/1 for the first shape, which includes those for the
    others."""
    from edgekit.host.cli.bench_hotspots import hotspots_document
    from edgekit.host.cli.estimated import estimated_document
    from edgekit.host.cli.model_times import measured_document
    from edgekit.host.deploy.explanations import nna_account

    first, more = result.timing, enumerate(result.more, 1)
    return measured_document(
        device.name,
        first,
        device.emulated,
        peers=result.peers.to_json() if result.peers else None,
        estimate=estimated_document(result.estimate),
        nna=nna_account(first.release),
        variants=[
            measured_document(device.name, t, device.emulated, nna=nna_account(t.release, i))
            for i, t in more
        ],
        hotspots=hotspots_document(first, result.verdict),
    )


def report_of(device: Board, results: Sequence[BenchResult]) -> Report:
    """The report page of these times, each model with all of its shapes."""
    from edgekit.host.cli.bench_hotspots import hotspot_lines
    from edgekit.host.cli.pages import utc_now
    from edgekit.host.report import bench_report

    runs = [(result.timing, *result.more) for result in results]
    hot = [hotspot_lines(result.timing, result.verdict) for result in results]
    return bench_report(device.name, device.profile, runs, utc_now(), device.emulated, hot)


def mean_ratios(results: Sequence[BenchResult]) -> dict[str, float]:
    """Geometric mean of each peer's time relative to ours, over the models both ran."""
    logs: dict[str, list[float]] = {}
    for result in results:
        for peer in result.peers.peers if result.peers else ():
            if peer.latency:
                logs.setdefault(peer.name, []).append(math.log(peer.ratio))
    return {name: math.exp(sum(values) / len(values)) for name, values in logs.items()}


def against_best(results: Sequence[BenchResult]) -> dict[str, Any]:
    """Geometric mean of the best peer's time relative to ours, over the models any peer ran, and
    the model with the lowest ratio."""
    best = {
        r.timing.model: min(p.ratio for p in r.peers.peers if p.latency)
        for r in results
        if r.peers and any(p.latency for p in r.peers.peers)
    }
    if not best:
        return {}
    worst = min(best, key=lambda name: best[name])
    mean = math.exp(sum(math.log(ratio) for ratio in best.values()) / len(best))
    return {"mean_ratio": mean, "lowest_ratio": best[worst], "lowest_model": worst}


def show(device: Board, result: BenchResult) -> None:
    """Prints one model's times."""
    from edgekit.device.runtime.agent.variants import variant_text
    from edgekit.host.cli.bench_hotspots import hotspot_lines
    from edgekit.host.cli.estimated import show_estimate
    from edgekit.host.cli.output import byte_size
    from edgekit.host.cli.report import show_slowest, show_times

    timing = result.timing
    memory = f"arena {byte_size(timing.arena_bytes)}, weights {byte_size(timing.weights_bytes)}"
    print(f"model    {timing.model} on {device.name}, {memory}")
    if result.more:
        print(f"shapes   {variant_text(timing)}")
    show_times(timing, device.emulated)
    show_estimate(device, result.estimate)
    show_slowest(timing, device.emulated)
    _show_nna(timing, 0)
    for line in hotspot_lines(timing, result.verdict):
        print(line)
    if result.peers:
        _show_peers(result.peers)
    for number, other in enumerate(result.more, 1):
        print(f"shapes   {variant_text(other)}")
        show_times(other, device.emulated)
        _show_nna(other, number)


def _show_nna(timing: Benchmark, variant: int) -> None:
    from edgekit.host.deploy.explanations import nna_account, nna_lines

    for line in nna_lines(nna_account(timing.release, variant)):
        print(f"nna      {line}")


def _show_peers(result: PeerResult) -> None:
    """Prints other engines' times next to ours, measured alternately."""
    from edgekit.host.cli.output import duration, milliseconds, table

    ours, unit = duration(result.ours.median)
    print(f"peers    alternating with edgekit at {ours} {unit}")
    rows = [
        (
            f"{peer.name} {peer.version}",
            milliseconds(peer.latency.median),
            milliseconds(peer.latency.p10),
            milliseconds(peer.latency.p90),
            f"{peer.ratio:.2f}",
        )
        for peer in result.peers
        if peer.latency
    ]
    if rows:
        table(("engine", "median ms", "p10", "p90", "edgekit is faster by"), rows)
    for peer in result.peers:
        if not peer.latency:
            print(f"no {peer.name}: {peer.missing}")


def show_many(results: Sequence[BenchResult], ratios: dict[str, float], emulated: bool) -> None:
    """Prints a line per model, and the mean ratios."""
    from edgekit.host.cli.output import milliseconds, table

    rows = []
    for result in results:
        timing = result.timing
        row = [timing.model, milliseconds(timing.median_ms), milliseconds(timing.p10_ms)]
        row.append(milliseconds(timing.p90_ms))
        found: dict[str, Any] = {p.name: p for p in result.peers.peers} if result.peers else {}
        for name in ratios:
            timed = name in found and found[name].latency
            row += [milliseconds(timed.median), f"{found[name].ratio:.2f}"] if timed else ["-", "-"]
        rows.append(row)
    headers = ["model", "emulated ms" if emulated else "median ms", "p10", "p90"]
    for name in ratios:
        headers += [f"{name} ms", "ratio"]
    if rows:
        table(headers, rows)
    for name, ratio in ratios.items():
        print(f"geometric mean: {name} takes {ratio:.2f} times as long as edgekit")
    if best := against_best(results):
        print(
            f"best engine of each model: {best['mean_ratio']:.2f} times as long as edgekit, "
            f"{best['lowest_ratio']:.2f} at the least ({best['lowest_model']})"
        )
