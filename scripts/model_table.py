#!/usr/bin/env python3
"""Times every model against other engines here and writes that part of docs/performance.md.

    scripts/model_table.py [--threads 1 2] [--runs 200] [--only NAME ...]
    scripts/model_table.py --threads 1 2 --rows FILE --seconds 90    # again until it says "done"

Goes through models/ and, if EDGEKIT_EXTRA_DATA names a folder, its models/ too. With --rows, what
was measured is kept in FILE and not measured again, so that the table can be made in pieces; it is
written when no row is left.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from edgekit.device.runtime.agent.bench import BenchPlan, bench
from edgekit.device.runtime.agent.model import Model
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.device.version import VERSION
from edgekit.host.errors import EdgekitError
from edgekit.host.lab.bench.machine import machine_summary
from edgekit.host.lab.bench.peers import PEERS, PeerResult, bench_peers
from edgekit.host.lab.zoo.models import compile_release, open_zoo, zoo_options
from edgekit.host.simulator.validate_report import write_document
from edgekit.kb.targets.board import load_board

_STEADY = 1.25
_MAX_TRIES = 4
_SHOWN_SHARE = 0.05
_ROOT = Path(__file__).resolve().parents[1]
_PART = "x86"
_INTRODUCTION = """\
## On x86

How long one inference takes on this machine, beside other engines on the same machine. Made by
`scripts/model_table.py`; for one model: `edgekit bench model MODEL --peers`.

Every contender runs in a process of its own, pinned to the same cores, with the same number of
threads. They take turns in blocks (A B C, C B A, ...) over {rounds} rounds after a warm-up, so that
whatever slows the machine down hits all alike. All are called from Python and timed there: ours
around `ek_run` through ctypes, the peers around their own call, which adds about 0.5 µs to each.
LiteRT and tflite-runtime run their XNNPACK kernels, their default. OpenVINO is told to stay in f32:
by itself it takes bfloat16 where the CPU has it, which no other engine here does. MNN and ncnn run
what their own converters make of the model.

A cell holds the peer's milliseconds and, in brackets, the *ratio*: its median over ours in the same
round, as the median over the rounds; above 1, edgekit is faster. A dash: the engine does not run
this model. A model whose ratios spread by more than {steady} over the rounds is timed again, up to
{tries} times, and the steadiest try stands. Milliseconds depend on the machine; compare ratios.

- machine: {machine}
- kit: edgekit {version}; peers: {peers}
- board profile: local ({simd})

What the order of operators gains on two units: [figures](measurements.md#order-of-operators).
Instructions on emulated boards beside peers, and where they go: [instructions](instructions.md).
"""


@dataclass(frozen=True)
class Row:
    """One model; `result` is None if ours failed, and `failure` says why.

    shares: of our time by kind of operator, the largest first.
    """

    name: str
    threads: int
    result: PeerResult | None
    failure: str = ""
    shares: tuple[tuple[str, float], ...] = ()


def main() -> int:
    options = _parse()
    zoo = open_zoo(_ROOT / "models", _extra())
    known = [*zoo.models, *zoo.onnx]
    models = [m for m in known if not options.only or m.stem in options.only]
    rows = _measure(models, options)
    if rows is None:
        print("rows are left: run it again", file=sys.stderr)
        return 2
    print("done", file=sys.stderr)
    sections = [_section(n, [r for r in rows if r.threads == n]) for n in options.threads]
    sections.append(_where([r for r in rows if r.threads == options.threads[0]]))
    text = "\n".join([_introduction(rows), *sections])
    write_document(options.output, text.rstrip("\n"), _PART)
    print("\n".join(sections))
    return 0 if all(row.result for row in rows) else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--runs", type=int, default=200, help="timed inferences per contender")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="model names without suffix")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="keeps what was measured")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no row after that")
    parser.add_argument("--output", type=Path, default=_ROOT / "docs" / "performance.md")
    return parser.parse_args()


def _extra() -> Path | None:
    folder = os.environ.get("EDGEKIT_EXTRA_DATA")
    return Path(folder) if folder else None


def _measure(models: Sequence[Path], options: argparse.Namespace) -> list[Row] | None:
    """All rows, those of the file of rows first; None if time ran out before the last."""
    end = time.monotonic() + options.seconds
    known = _read(options.rows) if options.rows else {}
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for threads in options.threads:
            for model in models:
                row = known.get((model.stem, threads))
                if row is None:
                    if time.monotonic() > end:
                        return None
                    row = _row(model, Path(scratch), threads, options.runs)
                    if options.rows and row.result:
                        with options.rows.open("a", encoding="utf-8") as file:
                            file.write(json.dumps(dataclasses.asdict(row)) + "\n")
                rows.append(row)
    return rows


def _read(path: Path) -> dict[tuple[str, int], Row]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [msgspec.convert(json.loads(line), Row) for line in lines]
    return {(row.name, row.threads): row for row in rows}


def _row(model: Path, scratch: Path, threads: int, runs: int) -> Row:
    print(f"{model.stem}, threads: {threads}", file=sys.stderr)
    try:
        release = compile_release(model, "local", scratch)
        shapes = zoo_options(model).shapes
        tries: list[PeerResult] = []
        while not tries or (_unsteadiness(tries[-1]) > _STEADY and len(tries) < _MAX_TRIES):
            tries.append(bench_peers(release, model, threads, runs, shapes=shapes))
        steadiest = min(tries, key=_unsteadiness)
        return Row(model.stem, threads, steadiest, shares=_shares(release, threads))
    except EdgekitError as error:
        return Row(model.stem, threads, None, str(error))


def _shares(release: Path, threads: int) -> tuple[tuple[str, float], ...]:
    model = Model(release, threads)
    try:
        tensors = model.description.inputs
        inputs = {t.name: np.zeros(t.shape, BY_NAME[t.dtype].npy) for t in tensors}
        operators = bench(model, inputs, BenchPlan(seconds=0.5))["operators"]
    finally:
        model.close()
    totals: dict[str, float] = {}
    for operator in operators:
        totals[operator["op"]] = totals.get(operator["op"], 0.0) + operator["share"]
    return tuple(sorted(totals.items(), key=lambda pair: -pair[1]))


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
    heads = ["model", "edgekit ms", *PEERS, "best peer / edgekit"]
    lines = [
        f"### {threads} thread{'s' if threads > 1 else ''}",
        "",
        f"| {' | '.join(heads)} |",
        f"| --- |{' ---: |' * (len(heads) - 1)}",
        *(_line(row) for row in rows),
        "",
        *(_summary(name, _ratios(name, rows)) for name in PEERS),
        _summary("best peer of each model", _best(rows)),
    ]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    if row.result is None:
        return f"| {row.name} | {row.failure} |{' |' * (len(PEERS) + 1)}"
    ours = row.result.ours
    theirs = [
        f"{peer.latency.median:.3g} ({peer.ratio:.2f})" if peer.latency else "–"
        for peer in row.result.peers
    ]
    best = [f"{ratio:.2f}" for _, ratio in _best([row])] or ["–"]
    cells = [row.name, f"{ours.median:.3g} ({ours.p10:.3g}–{ours.p90:.3g})", *theirs, *best]
    return f"| {' | '.join(cells)} |"


def _where(rows: Sequence[Row]) -> str:
    """The kinds of operators that take our time."""
    lines = [
        "### Where the time goes",
        "",
        "Shares of one inference by kind of operator, from the time stamps of the run, on the "
        f"first table's threads; those below {_SHOWN_SHARE:.0%} are left out.",
        "",
        "| model | percent of the time |",
        "| --- | --- |",
    ]
    for row in rows:
        shown = [f"{kind} {share:.0%}" for kind, share in row.shares if share >= _SHOWN_SHARE]
        lines.append(f"| {row.name} | {', '.join(shown) or '–'} |")
    return "\n".join(lines) + "\n"


def _ratios(name: str, rows: Sequence[Row]) -> list[tuple[str, float]]:
    """(model, ratio) where that peer ran."""
    return [
        (row.name, peer.ratio)
        for row in rows
        if row.result
        for peer in row.result.peers
        if peer.name == name and peer.latency
    ]


def _best(rows: Sequence[Row]) -> list[tuple[str, float]]:
    """(model, ratio of the fastest peer) where any ran."""
    found = []
    for row in rows:
        ratios = [p.ratio for p in row.result.peers if p.latency] if row.result else []
        if ratios:
            found.append((row.name, min(ratios)))
    return found


def _summary(name: str, ratios: Sequence[tuple[str, float]]) -> str:
    if not ratios:
        return f"- {name}: not measured here."
    mean = math.exp(sum(math.log(ratio) for _, ratio in ratios) / len(ratios))
    worst, low = min(ratios, key=lambda pair: pair[1])
    best, high = max(ratios, key=lambda pair: pair[1])
    return (
        f"- {name}: geometric mean of the ratios over {len(ratios)} models **{mean:.2f}**, "
        f"lowest {low:.2f} ({worst}), highest {high:.2f} ({best})."
    )


if __name__ == "__main__":
    sys.exit(main())
