#!/usr/bin/env python3
"""Times every model against LiteRT and tflite-runtime and writes docs/performance.md.

    scripts/model_table.py [--threads 1 2] [--runs 200] [--only NAME ...]

Goes through models/ and, if EDGEKIT_EXTRA_DATA names a folder, its models/ too.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.device.version import VERSION
from edgekit.host.bench.machine import machine_summary
from edgekit.host.bench.peers import PEERS, Latency, PeerResult, bench_peers
from edgekit.host.bench.zoo import compile_release, open_zoo
from edgekit.host.errors import EdgekitError
from edgekit.kb.board import load_board

_STEADY = 1.25
_MAX_TRIES = 4
_ROOT = Path(__file__).resolve().parents[1]
_INTRODUCTION = """\
# Performance

How long one inference takes on this machine, beside LiteRT and tflite-runtime on the same machine.
Made by `scripts/model_table.py`; for one model: `edgekit bench model MODEL --peers`.

Every contender runs in a process of its own, pinned to the same cores, with the same number of
threads. They take turns in blocks (A B C, C B A, ...) over {rounds} rounds after a warm-up, so that
whatever slows the machine down hits all alike. All are called from Python and timed there: ours
around `ek_run` through ctypes, the peers around `invoke()` (XNNPACK kernels, their default), which
adds about 0.5 µs to each.

A *ratio* is the peer's median over ours in the same round; the table has the median over the rounds
and, in brackets, their 10th and 90th percentile. Above 1, edgekit is faster. A model whose ratio
spreads by more than {steady} over the rounds is timed again, up to {tries} times, and the steadiest
try stands. Milliseconds depend on the machine; compare ratios.

- machine: {machine}
- kit: edgekit {version}; peers: {peers}
- board profile: local ({simd})
"""


@dataclass(frozen=True)
class Row:
    """One model; `result` is None if ours failed, and `failure` says why."""

    name: str
    result: PeerResult | None
    failure: str = ""


def main() -> int:
    options = _parse()
    sections = []
    every_row: list[Row] = []
    zoo = open_zoo(_ROOT / "models", _extra())
    models = [m for m in zoo.models if not options.only or m.stem in options.only]
    with tempfile.TemporaryDirectory() as scratch:
        for threads in options.threads:
            rows = [_row(m, Path(scratch), threads, options.runs) for m in models]
            sections.append(_section(threads, rows))
            every_row += rows
    text = "\n".join([_introduction(every_row), *sections])
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")
    print("\n".join(sections))
    return 0 if all(row.result for row in every_row) else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--runs", type=int, default=200, help="timed inferences per contender")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="model names without .tflite")
    parser.add_argument("--output", type=Path, default=_ROOT / "docs" / "performance.md")
    return parser.parse_args()


def _extra() -> Path | None:
    folder = os.environ.get("EDGEKIT_EXTRA_DATA")
    return Path(folder) if folder else None


def _row(model: Path, scratch: Path, threads: int, runs: int) -> Row:
    print(f"{model.stem}, threads: {threads}", file=sys.stderr)
    try:
        release = compile_release(model, "local", scratch)
        tries: list[PeerResult] = []
        while not tries or (_unsteadiness(tries[-1]) > _STEADY and len(tries) < _MAX_TRIES):
            tries.append(bench_peers(release, model, threads, runs))
        return Row(model.stem, min(tries, key=_unsteadiness))
    except EdgekitError as error:
        return Row(model.stem, None, str(error))


def _unsteadiness(result: PeerResult) -> float:
    """The widest spread of a ratio over the rounds: 1 on a machine that does nothing else."""
    timed = [peer for peer in result.peers if peer.latency]
    return max((peer.ratio_p90 / peer.ratio_p10 for peer in timed), default=1.0)


def _introduction(rows: Sequence[Row]) -> str:
    results = [row.result for row in rows if row.result]
    versions = {p.name: p.version for r in results for p in r.peers if p.version}
    return _INTRODUCTION.format(
        rounds=max((r.rounds for r in results), default=0),
        machine=machine_summary(),
        steady=_STEADY,
        tries=_MAX_TRIES,
        version=VERSION,
        peers=", ".join(f"{name} {version}" for name, version in versions.items()) or "none",
        simd=load_board("local").simd,
    )


def _section(threads: int, rows: Sequence[Row]) -> str:
    heads = ["model", "edgekit ms", *(h for p in PEERS for h in (f"{p} ms", "ratio"))]
    lines = [
        f"## {threads} thread{'s' if threads > 1 else ''}",
        "",
        f"| {' | '.join(heads)} |",
        f"| --- |{' ---: |' * (len(heads) - 1)}",
        *(_line(row) for row in rows),
    ]
    for index, name in enumerate(PEERS):
        lines += ["", _summary(name, index, rows)]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    if row.result is None:
        return f"| {row.name} | {row.failure} |{' |' * 2 * len(PEERS)}"
    cells = [row.name, _milliseconds(row.result.ours)]
    for peer in row.result.peers:
        if peer.latency is None:
            cells += ["–", "–"]
        else:
            ratio = f"{peer.ratio:.2f} ({peer.ratio_p10:.2f}–{peer.ratio_p90:.2f})"
            cells += [_milliseconds(peer.latency), ratio]
    return f"| {' | '.join(cells)} |"


def _milliseconds(latency: Latency) -> str:
    return f"{latency.median:.3g} ({latency.p10:.3g}–{latency.p90:.3g})"


def _summary(name: str, index: int, rows: Sequence[Row]) -> str:
    timed = [(row.name, row.result.peers[index].ratio) for row in rows if row.result]
    ratios = [(model, ratio) for model, ratio in timed if not math.isnan(ratio)]
    if not ratios:
        return f"{name}: not measured here."
    mean = math.exp(sum(math.log(ratio) for _, ratio in ratios) / len(ratios))
    worst, low = min(ratios, key=lambda pair: pair[1])
    best, high = max(ratios, key=lambda pair: pair[1])
    return (
        f"{name}: geometric mean of the ratios over {len(ratios)} models **{mean:.2f}**, "
        f"lowest {low:.2f} ({worst}), highest {high:.2f} ({best})."
    )


if __name__ == "__main__":
    sys.exit(main())
