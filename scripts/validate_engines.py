#!/usr/bin/env python3
"""Compares estimates of other engines with published times.

    scripts/validate_engines [--only TEXT ...] [--kept] [--write]

Runs the rows of docs/results/published_engines.csv whose engine has wheels for the board, on
networks with random weights, which take the same time: the fastest first, each cached immediately,
so an interrupted run can be resumed. The networks are written to the user's cache first: by Keras
and PyTorch in environments that pip makes there. UltraFace needs EDGEKIT_EXTRA_DATA. Prints the
errors by engine; rows that do not say how many threads ran are estimated with one and four, and are
left out of the errors. --kept runs nothing and uses cached results; --write puts the results into
docs/results.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from networks import quantized, torch_python
from results import FOLDER, csv_text, record

from edgekit.host.common.environments import environment
from edgekit.host.common.paths import cache_folder
from edgekit.host.errors import EdgekitError
from edgekit.host.lab.bench.board_peers import ENGINES, PeerEstimate, estimate_peer
from edgekit.host.lab.bench.published import (
    RUN_BY,
    EngineResult,
    PublishedTime,
    compare,
    read_published,
    summary,
)
from edgekit.kb.targets.board import load_board

_ROOT = Path(__file__).resolve().parents[1]
_KERAS = ("tensorflow-cpu==2.21.0", "keras==3.15.1")
_ULTRAFACE = Path("models") / "ultraface" / "version-RFB-320_simplified.onnx"
_KEY = ("engine", "network", "precision", "board", "threads")
_SUMMARY_KEY = ("engine", "precision", "board", "threads")
_SOURCE = ("estimated; published by the engines' and networks' authors", "scripts/validate_engines")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[""], help="parts of 'engine network type'")
    parser.add_argument("--kept", action="store_true", help="run nothing, use cached results")
    parser.add_argument("--write", action="store_true", help="into docs/results")
    options = parser.parse_args()
    try:
        rows = [r for r in read_published(FOLDER / "published_engines.csv") if _runs(r)]
        rows = [r for r in rows if any(text in _name(r) for text in options.only)]
        rows.sort(key=lambda row: row.milliseconds * row.tried[-1])
        results = _run_rows(rows, options.kept)
    except EdgekitError as error:
        print(f"validate_engines: {error}", file=sys.stderr)
        return error.exit_code
    found = summary(results)
    print(csv_text(found))
    if options.write:
        lines = [r.record() for r in results if r.found.milliseconds]
        record("validation_engines.csv", lines, _KEY, _SOURCE)
        record("validation_engines_summary.csv", found, _SUMMARY_KEY, _SOURCE)
    return 0


def _name(row: PublishedTime) -> str:
    return f"{row.engine} {row.network} {row.precision}"


def _runs(row: PublishedTime) -> bool:
    """Whether the engine has wheels for the board."""
    engine = ENGINES.get(RUN_BY.get(row.engine, ""))
    return bool(row.profile and engine and load_board(row.profile).arch in engine.architectures)


def _run_rows(rows: Sequence[PublishedTime], kept: bool) -> list[EngineResult]:
    results = []
    for row in rows:
        model = _written(row, kept)
        if model is None:
            _log(f"{_name(row)}: no such network")
            continue
        for result in compare(row, model, _log, _missing if kept else estimate_peer):
            said = result.found.missing or f"{result.found.milliseconds:.2f} ms"
            _log(f"{_name(row)}, {result.threads} threads: {said}, published {row.milliseconds:g}")
            results.append(result)
    return results


def _written(row: PublishedTime, kept: bool) -> Path | None:
    """The row's network as a file that its engine runs, which is written if it is missing."""
    folder = cache_folder() / "networks" / "published"
    if RUN_BY[row.engine] == "litert":
        path = folder / f"{row.network}-{row.precision}.tflite"
        if not (path.exists() or kept):
            python = environment("keras", [[_KERAS]], _log)
            command = [python, str(_ROOT / "scripts" / "keras_networks.py"), str(folder)]
            subprocess.run([*command, row.network], check=False, stderr=subprocess.DEVNULL)
        return path if path.exists() else None
    if row.network == "ultraface-rfb-320":
        path = Path(os.environ.get("EDGEKIT_EXTRA_DATA", ".")) / _ULTRAFACE
        return path if row.precision != "int8" or not path.exists() else _in_int8(path, folder)
    path = folder / f"{row.network}-old.onnx"
    if not (path.exists() or kept):
        command = [torch_python(), "-m", "tests.long.networks.export", str(folder), row.network]
        subprocess.run([*command, "--exporter", "old"], cwd=_ROOT, check=False)
    return path if path.exists() and row.precision != "int8" else None


def _in_int8(path: Path, folder: Path) -> Path | None:
    made = folder / f"{path.stem}.int8.onnx"
    folder.mkdir(parents=True, exist_ok=True)
    found = made if made.exists() else quantized(path, folder)
    if isinstance(found, str):
        _log(f"{path.name}: {found}")
        return None
    return found


def _missing(name: str, *_: object) -> PeerEstimate:
    return PeerEstimate(name, missing="not estimated yet")


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
