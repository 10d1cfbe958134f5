#!/usr/bin/env python3
"""Prints what operator rows gain in simulated time: the time with them over that without.

    scripts/table_gains.py [--board rpi3 rpi5 ...] [--only NAME ...] [--threads N] [--precision f16]
        [--held-out] [--write]

Covers models/ and, if EDGEKIT_EXTRA_DATA names a folder, its models/ too. The rows are the ones
that edgekit ships. --held-out excludes rows for products that occur only in the model itself, or in
a variant of the same network, as if the model had not been tuned. Ratios below 1 are gains. --write
saves them to docs/results/gains.csv.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from results import FOLDER, read, record

from edgekit.host.compiler.driver import build_graph, prepare_graph
from edgekit.host.compiler.frontends import import_model, model_hash
from edgekit.host.compiler.options import CompileOptions, Precision
from edgekit.host.compiler.pipeline import PreparedGraph
from edgekit.host.compiler.tables.gemm import kit_table
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.deploy.bundle import build_bundle, sign_bundle
from edgekit.host.errors import InputError
from edgekit.host.lab.history.tunable_ops import tuning_task_of
from edgekit.host.lab.zoo.models import extended_zoo, zoo_options
from edgekit.host.simulator.estimate_cache import recall, remember
from edgekit.host.simulator.model import estimate_model
from edgekit.host.simulator.target import target_of
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import BoardProfile, load_board

_ROOT = Path(__file__).resolve().parents[1]
_BOARDS = ("rpi3", "rpi5")

_TWIN = 0.8  # fraction of a model's products that makes another model a variant of it

Product = tuple[str, str, GemmShape]  # form, dtype, m x k x n


def main() -> None:
    parser = parser_of(__doc__, _BOARDS)
    parser.add_argument("--held-out", action="store_true", help="without rows of the model alone")
    parser.add_argument("--write", action="store_true", help="into docs/results/gains.csv")
    wanted = parser.parse_args()
    if wanted.write and (wanted.held_out or wanted.precision != "f32"):
        parser.error("expected --write for f32 and all rows only: gains.csv has no others")
    asked = options_of_models(wanted.threads, wanted.precision)
    models = select_models(asked, wanted.only)
    for name in wanted.board:
        board = load_board(name)
        print(f"\n{name}, {wanted.threads} threads, {wanted.precision}\n")
        print("| model | ms without rows | with rows over without |")
        print("| --- | --- | --- |", flush=True)
        known = {m: _tunable_products(m, board, asked[m]) for m in asked if wanted.held_out}
        ratios: dict[str, float] = {}
        for model in models:
            try:
                ratios[model.stem] = _speedup(
                    model, board, asked[model], _unique_products(model, known)
                )
            except InputError as error:
                print(f"| {model.stem} | {error} | |", flush=True)
        if ratios:
            mean = statistics.geometric_mean(ratios.values())
            print(f"| geometric mean of {len(ratios)} | | {mean:.3f} |")
            if wanted.write:
                _record_gains(board, wanted.threads, ratios)


def parser_of(description: str | None, boards: Sequence[str]) -> argparse.ArgumentParser:
    """A parser of the options that select boards, models and how they are compiled."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--board", nargs="+", default=boards, help="boards with a model of time")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="of models")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", choices=("f32", "f16"), default="f32")
    return parser


def options_of_models(threads: int, precision: Precision) -> dict[Path, CompileOptions]:
    """All models, and how each is compiled."""
    zoo = extended_zoo(_ROOT / "models")
    how = {"threads": threads, "precision": precision}
    return {m: replace(zoo_options(m), **how) for m in (*zoo.models, *zoo.onnx)}


def select_models(models: Iterable[Path], names: Sequence[str]) -> list[Path]:
    """The models whose file name contains one of `names`; all if there are none."""
    return [m for m in models if not names or any(name in m.name for name in names)]


def _record_gains(board: BoardProfile, threads: int, ratios: Mapping[str, float]) -> None:
    core = {"core": target_of(board).core.name, "threads": threads}
    rows = [{"model": model, **core, "ratio": f"{ratio:.3f}"} for model, ratio in ratios.items()]
    source = ("estimated", f"scripts/table_gains.py --board {board.name} --threads {threads}")
    record("gains.csv", rows, ("model", "core", "threads"), source)
    results = read(FOLDER / "gains.csv")  # the mean covers all models in the file
    own = [row for row in results if (row["core"], row["threads"]) == (core["core"], str(threads))]
    known = [float(row["ratio"]) for row in own if row["model"] != "mean"]
    mean = {"model": "mean", **core, "ratio": f"{statistics.geometric_mean(known):.3f}"}
    record("gains.csv", [mean], ("model", "core", "threads"), source)


def _unique_products(model: Path, known: Mapping[Path, frozenset[Product]]) -> frozenset[Product]:
    """The products that occur in no other model, ignoring models that share nearly all of them: the
    same network, trained or quantized differently."""
    mine = known.get(model, frozenset())
    others = (p for m, p in known.items() if m != model and len(p & mine) < _TWIN * len(mine))
    return mine.difference(*others)


def _tunable_products(
    model: Path, board: BoardProfile, options: CompileOptions
) -> frozenset[Product]:
    """The products of a model's operators that have several methods."""
    try:
        subject = tuning_task_of(model, board, options, options.threads or 1)
    except InputError:
        return frozenset()
    return frozenset(
        _to_product(o.form.name, o.form.dtype, o.form.shape) for o in subject.operators
    )


def _to_product(form: str, dtype: str, shape: GemmShape) -> Product:
    return form, "s8" if dtype == "u8" else dtype, shape


def _speedup(
    model: Path, board: BoardProfile, options: CompileOptions, without: frozenset[Product]
) -> float:
    table = kit_table(board) or KnowledgeBase((board.platform,))
    kept = (
        r for r in table.operators if _to_product(r.key.form, r.key.dtype, r.shape) not in without
    )
    none, some = (replace(table, operators=rows) for rows in ((), tuple(kept)))
    plain, rows = (estimated(model, board, options, each)[0] for each in (none, some))
    print(f"| {model.stem} | {plain:.4g} | {rows / plain:.3f} |", flush=True)
    return rows / plain


def estimated(
    model: Path, board: BoardProfile, options: CompileOptions, table: KnowledgeBase
) -> tuple[float, PreparedGraph]:
    """Milliseconds in simulated time, and the compiled model."""
    source = import_model(model, options.shapes)
    made = prepare_graph(source, board, options, table)  # row chains depend on the table, too
    artifact = build_graph(made, model_hash(model), board, None, options, None, table)
    bundle, threads = sign_bundle(build_bundle(artifact, board)), options.threads or 1
    found = recall(bundle.manifest.id, board, threads)
    if found is None:
        found = estimate_model(bundle.manifest, bundle.files, target_of(board), threads)
        remember(bundle.manifest.id, board, threads, found)
    return found.total_ms, made


if __name__ == "__main__":
    main()
