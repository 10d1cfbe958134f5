#!/usr/bin/env python3
"""Prints what rows of operators gain by board time: estimated time with them over that without.

    scripts/table_gains.py [--board rpi3 rpi5 ...] [--only NAME ...] [--threads N] [--precision f16]
    scripts/table_gains.py --held-out ...      after `edgekit tune model` of the models

Goes through models/ and, if EDGEKIT_EXTRA_DATA names a folder, its models/ too. The rows are those
that the kit ships; with --held-out those that this user's history gives without the measurements of
the model itself. Ratios below 1 gain.
"""

from __future__ import annotations

import argparse
import math
import os
from dataclasses import replace
from pathlib import Path

from edgekit.host.bundle import build_bundle, sign_bundle
from edgekit.host.compiler import build_graph, prepare_graph
from edgekit.host.errors import InputError
from edgekit.host.estimate.answers import recall, remember
from edgekit.host.estimate.model import estimate_model
from edgekit.host.estimate.target import target_of
from edgekit.host.history.store import History
from edgekit.host.importers import import_model, model_hash
from edgekit.host.options import CompileOptions
from edgekit.host.tables.gemm import kit_table
from edgekit.host.zoo.models import open_zoo, zoo_options
from edgekit.kb.board import BoardProfile, load_board
from edgekit.kb.gemm_table import KnowledgeBase
from edgekit.kb.operator_history import operator_rows
from edgekit.kb.operators import OperatorRow

_ROOT = Path(__file__).resolve().parents[1]
_BOARDS = ("rpi3", "rpi5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--board", nargs="+", default=_BOARDS, help="boards with a model of time")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="of models")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", choices=("f32", "f16"), default="f32")
    parser.add_argument("--held-out", action="store_true", help="rows without the model's own")
    wanted = parser.parse_args()
    extra = os.environ.get("EDGEKIT_EXTRA_DATA")
    zoo = open_zoo(_ROOT / "models", Path(extra) if extra else None)
    found = (*zoo.models, *zoo.onnx)
    models = [m for m in found if not wanted.only or any(n in m.name for n in wanted.only)]
    for name in wanted.board:
        board = load_board(name)
        print(f"\n{name}, {wanted.threads} threads, {wanted.precision}\n")
        print("| model | ms without rows | with rows over without |")
        print("| --- | --- | --- |", flush=True)
        ratios = []
        for model in models:
            options = replace(
                zoo_options(model), threads=wanted.threads, precision=wanted.precision
            )
            try:
                ratios.append(_row(model, board, options, wanted.held_out))
            except InputError as error:
                print(f"| {model.stem} | {error} | |", flush=True)
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"| geometric mean of {len(ratios)} | | {mean:.3f} |")


def _row(model: Path, board: BoardProfile, options: CompileOptions, held_out: bool) -> float:
    table = kit_table(board) or KnowledgeBase((board.platform,))
    if held_out:
        table = replace(table, operators=_of_others(model, board, table))
    without = replace(table, operators=())
    plain, rows = (_ms(model, board, options, each) for each in (without, table))
    print(f"| {model.stem} | {plain:.4g} | {rows / plain:.3f} |", flush=True)
    return rows / plain


def _of_others(model: Path, board: BoardProfile, table: KnowledgeBase) -> tuple[OperatorRow, ...]:
    with History() as history:
        known = history.read_operators(board.platform).measurements
    others = [m for m in known if m.model != model.stem]
    return operator_rows(others, table.platforms, table.sequences)


def _ms(model: Path, board: BoardProfile, options: CompileOptions, table: KnowledgeBase) -> float:
    source = import_model(model, options.shapes)
    imported, made = prepare_graph(source, board, options, table)  # chains are by rows, too
    artifact = build_graph(imported, made, model_hash(model), board, None, options, None, table)
    bundle, threads = sign_bundle(build_bundle(artifact, board)), options.threads or 1
    found = recall(bundle.manifest.id, board, threads)
    if found is None:
        found = estimate_model(bundle.manifest, bundle.files, target_of(board), threads)
        remember(bundle.manifest.id, board, threads, found)
    return found.total_ms


if __name__ == "__main__":
    main()
