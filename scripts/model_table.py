#!/usr/bin/env python3
"""Times every model against other engines on this machine, for docs/results/x86.csv.

    scripts/model_table.py [--threads 1 2] [--runs 200] [--only NAME ...] [--write]

Covers models/ and, if EDGEKIT_EXTRA_DATA names a folder, its models/ too. Engines run in separate
processes on the same cores and alternate in blocks; a model whose ratios vary is timed again.
--write saves each row to x86.csv immediately, and the share of each kind of operator at the first
number of threads to x86_operators.csv.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from results import ENGINES, csv_text, record

from edgekit.device.runtime.agent.bench import BenchPlan, bench
from edgekit.device.runtime.agent.model import LoadedModel
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.host.errors import EdgekitError
from edgekit.host.lab.bench.machine import machine_summary
from edgekit.host.lab.bench.peers import PeerResult, bench_peers
from edgekit.host.lab.zoo.models import compile_release, extended_zoo, zoo_options

_STEADY = 1.25  # retime a model if its ratios spread this widely over the rounds
_MAX_TRIES = 4
_SHOWN_SHARE = 0.05
_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Row:
    """One model; `result` is None if edgekit failed, and `failure` gives the reason.

    shares: of edgekit's time by operator kind, in descending order.
    """

    name: str
    threads: int
    result: PeerResult | None
    failure: str = ""
    shares: tuple[tuple[str, float], ...] = ()


def main() -> int:
    options = _parse_arguments()
    zoo = extended_zoo(_ROOT / "models")
    known = [*zoo.models, *zoo.onnx]
    models = [m for m in known if not options.only or m.stem in options.only]
    source = (machine_summary(), f"scripts/model_table.py --threads {options.threads[0]}")
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        for threads, model in itertools.product(options.threads, models):
            row = _measure_row(model, Path(scratch), threads, options.runs)
            if row.result is None:
                print(f"{row.name}: {row.failure}", file=sys.stderr)
                failed = True
                continue
            found = _to_record(row, row.result)
            shares = _share_records(row) if threads == options.threads[0] else []
            print(csv_text([found]))
            if options.write:
                record("x86.csv", [found], ("model", "threads"), source)
                record("x86_operators.csv", shares, ("model", "operator"), source)
    return 1 if failed else 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--runs", type=int, default=200, help="timed inferences per contender")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="model names without suffix")
    parser.add_argument("--write", action="store_true", help="into docs/results")
    return parser.parse_args()


def _measure_row(model: Path, scratch: Path, threads: int, runs: int) -> Row:
    print(f"{model.stem}, threads: {threads}", file=sys.stderr)
    try:
        release = compile_release(model, "local", scratch)
        shapes = zoo_options(model).shapes
        tries: list[PeerResult] = []
        while not tries or (_unsteadiness(tries[-1]) > _STEADY and len(tries) < _MAX_TRIES):
            tries.append(bench_peers(release, model, threads, runs, shapes=shapes))
        steadiest = min(tries, key=_unsteadiness)
        return Row(model.stem, threads, steadiest, shares=_operator_shares(release, threads))
    except EdgekitError as error:
        return Row(model.stem, threads, None, str(error))


def _operator_shares(release: Path, threads: int) -> tuple[tuple[str, float], ...]:
    model = LoadedModel(ReleaseFiles(release), threads)
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
    """The widest p90/p10 spread of a ratio over the rounds; 1 on an idle machine."""
    timed = [peer for peer in result.peers if peer.latency]
    return max((peer.ratio_p90 / peer.ratio_p10 for peer in timed), default=1.0)


def _to_record(row: Row, result: PeerResult) -> dict[str, str]:
    """The row of x86.csv; ratios are medians over the rounds."""
    ours = result.ours
    found = {
        "model": row.name,
        "threads": str(row.threads),
        "edgekit_ms": f"{ours.median:.3g}",
        "edgekit_p10_ms": f"{ours.p10:.3g}",
        "edgekit_p90_ms": f"{ours.p90:.3g}",
    }
    ran = {peer.name: peer for peer in result.peers if peer.latency}
    for name in ENGINES:
        peer = ran.get(name)
        found[f"{name}_ms"] = f"{peer.latency.median:.3g}" if peer and peer.latency else ""
        found[f"{name}_ratio"] = f"{peer.ratio:.2f}" if peer else ""
    best = min((peer.ratio for peer in ran.values()), default=None)
    return found | {"fastest_ratio": "" if best is None else f"{best:.2f}"}


def _share_records(row: Row) -> list[dict[str, str]]:
    """The operator kinds that account for edgekit's time, for x86_operators.csv."""
    return [
        {"model": row.name, "operator": kind, "percent": f"{100 * share:.0f}"}
        for kind, share in row.shares
        if share >= _SHOWN_SHARE
    ]


if __name__ == "__main__":
    sys.exit(main())
