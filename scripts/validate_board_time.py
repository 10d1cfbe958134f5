#!/usr/bin/env python3
"""Compares simulated time with published latencies of ncnn's networks.

    scripts/validate_board_time [--core a53 ...] [--network TEXT ...] [--threads N] [--write]
        [--check]

EDGEKIT_EXTRA_DATA names the folder with data/board_times (published.json and networks). Each
network runs once per core and ncnn version, smallest first; results are cached, so an interrupted
run can be resumed. Prints the errors of each board. --write saves them to docs/results and
kb/targets/cores, where results of --threads N do not replace single-threaded ones. --check exits
with 1 if a core is further off than its file states.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import os
import sys
from pathlib import Path

from results import csv_text, record

from edgekit.host.errors import EdgekitError, InputError
from edgekit.host.simulator.validate import Estimate, estimates
from edgekit.host.simulator.validate_report import (
    NetworkResult,
    Table,
    network_rows,
    regressions,
    spread,
    summary,
    validation_toml,
    write_core,
)
from edgekit.host.simulator.witness import (
    WITNESSES,
    Published,
    Witness,
    kind_of,
    networks,
    published,
    row_of,
)
from edgekit.kb.targets.core import FOLDER, load_core


def main() -> int:
    options = _parse_arguments()
    folder = Path(os.environ.get("EDGEKIT_EXTRA_DATA", "."))
    try:
        rows = published(folder)
        witnesses = [w for w in WITNESSES if not options.core or w.core in options.core]
        tables = _run_networks(options, witnesses, networks(folder), rows)
    except EdgekitError as error:
        print(f"validate_board_time: {error}", file=sys.stderr)
        return error.exit_code
    today = datetime.date.today().isoformat()
    found = summary(tables, rows)
    print(csv_text(found))
    if options.write:
        threads = f" --threads {options.threads}" if options.threads else ""
        source = ("estimated; published by ncnn's users", f"scripts/validate_board_time{threads}")
        record("validation.csv", found, ("board", "threads", "kind"), source)
        networks_found = network_rows(tables)
        record("validation_networks.csv", networks_found, ("board", "threads", "network"), source)
        record("validation_spread.csv", spread(rows, witnesses), ("core", "boards"), source)
        for core in dict.fromkeys(w.core for w in witnesses):
            write_core(FOLDER / f"{core}.toml", validation_toml(tables, core, today))
    if options.check:
        recorded = {
            core: (v.median_percent, v.worst_percent)
            for core in dict.fromkeys(w.core for w in witnesses)
            for v in load_core(core).validation
            if v.kind == "float" and v.threads == 1
        }
        worse = regressions(tables, recorded)
        print("\n".join(worse), file=sys.stderr)
        return 1 if worse else 0
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--core", action="append", help="only this core; may be repeated")
    parser.add_argument("--network", action="append", help="only networks with this in the name")
    parser.add_argument("--threads", type=int, help="default: 1, of U74 4")
    parser.add_argument(
        "--write", action="store_true", help="into docs/results and kb/targets/cores"
    )
    parser.add_argument("--check", action="store_true", help="fail if a core got worse")
    return parser.parse_args()


def _run_networks(
    options: argparse.Namespace,
    witnesses: list[Witness],
    paths: dict[str, Path],
    rows: list[Published],
) -> list[Table]:
    """Run networks, the fastest first on every core, and print each result immediately."""
    found: dict[str, list[NetworkResult]] = {w.name: [] for w in witnesses}
    threads = {w.name: options.threads or w.threads for w in witnesses}
    listed = {w.name: row_of(w, rows, threads[w.name]) for w in witnesses}
    wanted = [n for n in paths if not options.network or any(t in n for t in options.network)]
    rows_there = [row for row in listed.values() if row]
    fastest = {n: min((r.min_ms.get(n, 1e9) for r in rows_there), default=1e9) for n in wanted}
    for name in sorted(fastest, key=lambda n: fastest[n]):
        for _, same in itertools.groupby(witnesses, key=lambda w: (w.core, w.wheel)):
            group = [
                w
                for w in same
                if (row := listed[w.name]) and name in row.min_ms and w.kind in ("", kind_of(name))
            ]
            if not group:
                continue
            try:
                answers = estimates(group, paths[name], threads[group[0].name], _log)
            except InputError as error:  # only this network with this ncnn; others may run
                _log(f"{group[0].name:14} {name:18} left out: {error}")
                continue
            for witness in group:
                row = listed[witness.name]
                result = _to_result(witness, name, answers[witness.name], row.min_ms[name])
                found[witness.name].append(result)
                _log(f"{witness.name:14} {name:18} {result.error:+6.1f}%")
    return [Table(w, threads[w.name], tuple(found[w.name])) for w in witnesses if found[w.name]]


def _to_result(witness: Witness, name: str, answer: Estimate, ms: float) -> NetworkResult:
    estimated = answer.cycles / witness.clock_mhz / 1e3
    return NetworkResult(name, estimated, ms, answer.unknown / max(1, answer.instructions))


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
