#!/usr/bin/env python3
"""Estimates every model and other engines on boards, for docs/results/boards.csv.

    scripts/performance [--boards rpi3,rk3566,rpi4,rpi5,bpi-f3,visionfive2] [--threads 1,4]
        [--allow auto,f32,int8] [--only NAME ...] [--networks FOLDER] [--seconds S] [--kept]
        [--write]

Covers models/, the graph of scripts/yolov8n.py and, if EDGEKIT_EXTRA_DATA names a folder, its
models/ too, small files first, one model after the other; with --networks, the ONNX files in a
folder instead, for docs/results/network_boards.csv. `scripts/networks FOLDER --small`
fills one. With --allow auto, each engine computes in the fastest precision whose outputs are close
to the reference's; with f32, none computes in half precision. With int8, for networks, ours and
other engines run the 8-bit files that edgekit's `quantize` writes (.onnx and .tflite), their
outputs close to those of the reference of these files; an engine that is faster in floats counts in
floats. Every result is cached immediately,
so an interrupted run, by --seconds too, can be resumed; several may run at once on different
boards. Times come from docs/results/engines.csv where neither the core's model, the emulator's
plugin nor the model with the engine driver has changed; for ours, the compiled library. Prints the
rows of the file. --kept runs nothing and prints the cached results; --write puts the rows into the
files.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import yolov8n
from arguments import split_names, split_numbers
from results import FOLDER, csv_text, read, record

from edgekit.host.common.paths import cache_folder
from edgekit.host.errors import EdgekitError, InputError
from edgekit.host.lab.bench.board_rows import (
    BoardSetup,
    ask_ours,
    ask_peers,
    kept_row,
    take_recorded,
)
from edgekit.host.lab.zoo.models import extended_zoo
from edgekit.kb.targets.board import UnknownBoardError, load_board

_ROOT = Path(__file__).resolve().parents[1]
_BOARDS = "rpi3,rpi5,rk3566,rpi4,bpi-f3,visionfive2"
_YOLO_PIXELS = 160
_KEY = ("board", "threads", "allowed", "model")
_ENGINES = "engines.csv"


def main() -> int:
    options = _parse_arguments()
    found = _find_networks(options.networks) if options.networks else _find_models()
    models = [m for m in found if not options.only or m.stem in options.only]
    places = [
        BoardSetup(board, threads, allowed, options.timeout)
        for threads in options.threads
        for allowed in options.allow
        for board in options.boards
    ]
    try:
        for name in options.boards:
            load_board(name)
        if "int8" in options.allow and not options.networks:
            raise InputError("--allow: expected int8 with --networks, found it without")
        done = options.kept or _request_rows(models, places, options.seconds)
    except (EdgekitError, UnknownBoardError) as error:
        print(f"performance: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 2)
    file = "network_boards.csv" if options.networks else "boards.csv"
    for place in places:
        _print_results(place, models, file if options.write else "")
    if not done:
        _log("rows are left: run it again")
    return 0 if done else 2


def _find_models() -> list[Path]:
    """All models, small files first; writes the graph that is not shipped."""
    zoo = extended_zoo(_ROOT / "models")
    yolo = cache_folder() / "performance" / f"yolov8n_{_YOLO_PIXELS}.onnx"
    if not yolo.is_file():
        yolo.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(yolov8n.build(_YOLO_PIXELS), yolo)
    every = (*zoo.models, *zoo.onnx, yolo)
    return _sort_by_size(every)


def _find_networks(folder: Path) -> list[Path]:
    if not (found := list(folder.glob("*.onnx"))):
        raise SystemExit(
            f"performance: {folder}: expected ONNX files, found none; write them with "
            f"scripts/networks {folder} --small"
        )
    return _sort_by_size(found)


def _sort_by_size(models: Iterable[Path]) -> list[Path]:
    return sorted(models, key=lambda path: (path.stat().st_size, path.stem))


def _recorded_rows() -> dict[tuple[str, ...], list[dict[str, str]]]:
    rows: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for row in read(FOLDER / _ENGINES):
        rows[tuple(row[column] for column in _KEY)].append(row)
    return rows


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--boards", type=split_names, default=_BOARDS, metavar="NAME,...")
    parser.add_argument("--threads", type=split_numbers, default="1,4", metavar="N,...")
    parser.add_argument("--allow", type=_split_precisions, default="auto,f32", metavar="P,...")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="model names without suffix")
    parser.add_argument("--networks", type=Path, metavar="FOLDER", help="its ONNX files instead")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no row after that")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds of one run")
    parser.add_argument("--kept", action="store_true", help="ask for nothing")
    parser.add_argument("--write", action="store_true", help="into docs/results")
    return parser.parse_args()


def _split_precisions(text: str) -> list[str]:
    names = split_names(text)
    if wrong := [name for name in names if name not in ("auto", "f32", "int8")]:
        raise argparse.ArgumentTypeError(f"expected auto, f32 or int8, found {wrong[0]}")
    return names


def _request_rows(models: Sequence[Path], places: Sequence[BoardSetup], seconds: float) -> bool:
    """Request rows in the order of threads, models and boards; False if time ran out."""
    end = time.monotonic() + seconds
    recorded = _recorded_rows()
    for _, same in itertools.groupby(places, key=lambda place: (place.threads, place.allowed)):
        boards = list(same)
        for model, place in itertools.product(models, boards):
            if time.monotonic() > end:
                return False
            for allowed in sorted({place.allowed, "auto", "f32"}):
                about = (place.board, str(place.threads), allowed, model.stem)
                take_recorded(model, replace(place, allowed=allowed), recorded[about])
            ask_peers(model, place, _log)
            row = ask_ours(model, place)
            said = row.failure or ", ".join(f"{k} {v:.2f}" for k, v in row.ratios().items())
            _log(f"{place.board:12} {place.threads} {place.allowed:4} {model.stem:40} {said}")
    return True


def _print_results(place: BoardSetup, models: Sequence[Path], file: str) -> None:
    """Print a board's known results, list the missing ones, and write them to `file` if named."""
    rows = [kept_row(model, place) for model in models]
    known = [row.record() for row in rows if row.known]
    engines = [line for row in rows if row.known for line in row.engine_records()]
    for row in rows:
        if not row.known:
            _log(
                f"{place.board}, {place.threads} threads: no estimate of {row.model} {row.failure}"
            )
    if not known:
        return
    core = place.target.core
    source = (
        f"estimated, {core.name.upper()} at {core.clock_mhz:g} MHz",
        f"scripts/performance --boards {place.board} --threads {place.threads} "
        f"--allow {place.allowed}",
    )
    print(csv_text(known))
    if file:
        record(file, known, _KEY, source)
        record(_ENGINES, engines, (*_KEY, "engine"), source)


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
