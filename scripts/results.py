#!/usr/bin/env python3
"""Writes the tables and the chart of the documentation from docs/results/*.csv.

    scripts/results.py [--check]

A page requests a table with two comments; the text between them is generated:

    <!-- results: boards.csv columns=model,edgekit_ms,litert_ms where=board:rpi4,threads:1 -->
    <!-- end -->

Without `columns` a table has all but machine, commit and command; `where` may be omitted. Files in
DERIVED are computed from others first. --check writes nothing and lists outdated files. Measuring
scripts add rows with `record`.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import results_chart

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "results"
CHART = ROOT / "docs" / "images" / "performance.svg"
SOURCE = ("machine", "commit", "command")  # a row's origin: the last columns of every file
ENGINES = {
    "litert": "LiteRT",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "mnn": "MNN",
    "ncnn": "ncnn",
}
PRODUCTS = "products.csv"  # derived from several files
DERIVED = {
    "board_summary.csv": "boards.csv",
    "network_summary.csv": "network_boards.csv",
    "x86_summary.csv": "x86.csv",
}

_REGRETS = tuple(itertools.product(("f32", "f16", "s8"), ("set", "unseen")))
_PEERS = (("f32", "openblas"), ("f32", "xnnpack"), ("s8", "xnnpack"))
_MARK = re.compile(r"(<!-- results: (\S+?\.csv)((?: [^>]*)?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_NUMBER = re.compile(r"[-+]?[\d.,]+(?: ?%)?|–")
_NAMES = {
    **ENGINES,
    "openblas": "OpenBLAS",
    "xnnpack": "XNNPACK",
    "edgekit": "edgekit",
    "ms": "ms",
    "us": "µs",
    "kib": "KiB",
    "mhz": "MHz",
}

Row = dict[str, str]


class ResultsError(Exception):
    """A malformed marker or file; the message gives the expected form."""


def main() -> int:
    check = "--check" in sys.argv[1:]
    stale = []
    try:
        for path, text in outputs():
            if path.is_file() and path.read_text(encoding="utf-8") == text:
                continue
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(text, encoding="utf-8")
    except ResultsError as error:
        print(f"results: {error}", file=sys.stderr)
        return 2
    if check and stale:
        print(f"{', '.join(stale)}: not what docs/results says; run scripts/results.py")
        return 1
    return 0


def outputs() -> Iterator[tuple[Path, str]]:
    """Every generated file with its expected text."""
    files = {path.name: read(path) for path in sorted(FOLDER.glob("*.csv"))}
    for name, source in DERIVED.items():
        files[name] = summary(files[source])
        yield FOLDER / name, csv_text(files[name])
    files[PRODUCTS] = products_by_core(files)
    yield FOLDER / PRODUCTS, csv_text(files[PRODUCTS])
    yield (
        CHART,
        results_chart.chart(
            [row for row in files["board_summary.csv"] if row["allowed"] == "auto"]
        ),
    )
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        yield page, filled(page.read_text(encoding="utf-8"), files, page.name)


def read(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        columns = tuple(reader.fieldnames or ())
        if columns[-len(SOURCE) :] != SOURCE:
            raise ResultsError(f"{path.name}: expected the last columns {', '.join(SOURCE)}")
        return list(reader)


def csv_text(rows: Sequence[Mapping[str, str]]) -> str:
    text = io.StringIO()
    columns = list(dict.fromkeys(key for row in rows for key in row if key not in SOURCE))
    writer = csv.DictWriter(text, [*columns, *SOURCE], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def record(
    name: str,
    rows: Iterable[Mapping[str, object]],
    key: Sequence[str],
    source: tuple[str, str],
    folder: Path = FOLDER,
) -> None:
    """Insert rows into a file; a row replaces the one with the same `key` columns.

    source: the machine and the command; the commit is the checked-out one.
    """
    path = folder / name
    known = {tuple(row[k] for k in key): row for row in (read(path) if path.is_file() else [])}
    for each in rows:
        row = {column: str(value) for column, value in each.items()}
        row |= zip(SOURCE, (source[0], _head_commit(), source[1]), strict=True)
        known[tuple(row[k] for k in key)] = row
    path.write_text(csv_text(list(known.values())), encoding="utf-8")


def _head_commit() -> str:
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def filled(text: str, files: Mapping[str, Sequence[Row]], page: str) -> str:
    """The page with all its tables regenerated."""

    def table(match: re.Match[str]) -> str:
        opening, name, options, _, closing = match.groups()
        if name not in files:
            raise ResultsError(f"{page}: expected a file of docs/results, found {name}")
        link = f"results/{name}" if page != "README.md" else f"docs/results/{name}"
        try:
            body = _format_table(files[name], options)
        except KeyError as error:
            raise ResultsError(f"{page}: {name} has no column {error.args[0]}") from error
        return f"{opening}{body}\n[{name}]({link})\n{closing}"

    return _MARK.sub(table, text)


def _format_table(rows: Sequence[Row], options: str) -> str:
    given = dict(option.split("=", 1) for option in options.split())
    wanted = [pair.replace("=", ":").split(":", 1) for pair in _split_list(given.get("where", ""))]
    chosen = [row for row in rows if all(row[column] == value for column, value in wanted)]
    columns = _split_list(given.get("columns", "")) or [c for c in rows[0] if c not in SOURCE]
    cells = [[row[column] or "–" for column in columns] for row in chosen]
    numbers = [all(_NUMBER.fullmatch(line[i]) for line in cells) for i in range(len(columns))]
    lines = [
        [heading(column) for column in columns],
        ["---:" if number else "---" for number in numbers],
        *cells,
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _split_list(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def heading(column: str) -> str:
    """A column's heading in tables: litert_ms becomes "LiteRT ms"."""
    if column.endswith("_percent"):
        column = column.removesuffix("_percent") + "_%"
    return " ".join(_NAMES.get(word, word) for word in column.split("_"))


def summary(rows: Sequence[Row]) -> list[Row]:
    """A row for each board, number of threads and precision allowed: geometric means of each
    engine's time over edgekit's, and the model with the lowest ratio to the fastest engine. A board
    that no other engine runs on has none."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        place = (row.get("board", "local"), row["threads"], row.get("allowed", ""))
        groups.setdefault(place, []).append(row)
    found = []
    for (board, threads, allowed), own in groups.items():
        fastest = {row["model"]: float(row["fastest_ratio"]) for row in own if row["fastest_ratio"]}
        if not fastest:
            continue
        lowest = min(fastest, key=lambda model: fastest[model])
        line = {
            "board": board,
            "threads": threads,
            **({"allowed": allowed} if allowed else {}),
            "models": str(len(fastest)),
            "fastest_engine": _format_mean(fastest.values()),
            "lowest": f"{fastest[lowest]:.2f}",
            "lowest_model": lowest,
        }
        line |= {
            name: _format_mean(_engine_ratios(name, own))
            for name in ENGINES
            if f"{name}_ms" in own[0]
        }
        sources = ", ".join(dict.fromkeys(row["machine"] for row in own))
        commits = " ".join(dict.fromkeys(row["commit"] for row in own))
        found.append(
            line | dict(zip(SOURCE, (sources, commits, "scripts/results.py"), strict=True))
        )
    return found


def products_by_core(files: Mapping[str, Sequence[Row]]) -> list[Row]:
    """A row for each core: regret of tables and of the best fixed method, other libraries' time
    over ours, and the time of sparse products over that by the patent's rule."""
    alone = [
        row for row in files["gemm_regret.csv"] if (row["packed"], row["threads"]) == ("none", "1")
    ]
    found = []
    for core in dict.fromkeys(row["core"] for row in alone):
        regrets = {(r["dtype"], r["sample"]): r for r in alone if r["core"] == core}
        peers = {
            (r["dtype"], r["library"]): r for r in files["gemm_libraries.csv"] if r["core"] == core
        }
        sparse = [r for r in files["sparse_gains.csv"] if (r["core"], r["threads"]) == (core, "1")]
        cells = {
            **{f"{d}_{s}": (regrets.get((d, s)), "table_regret") for d, s in _REGRETS},
            "f32_fixed": (regrets.get(("f32", "unseen")), "fixed_regret"),
            **{f"{d}_{name}": (peers.get((d, name)), "ratio") for d, name in _PEERS},
            "sparse": (sparse[0] if sparse else None, "ratio"),
        }
        used = [row for row, _ in cells.values() if row]
        commits = " ".join(dict.fromkeys(row["commit"] for row in used))
        values = {name: row[column] if row else "" for name, (row, column) in cells.items()}
        source = dict(zip(SOURCE, ("estimated", commits, "scripts/products.py"), strict=True))
        found.append({"core": core, **values, **source})
    return found


def _engine_ratios(engine: str, rows: Iterable[Row]) -> Iterator[float]:
    """The engine's time over edgekit's. Measured ratios are medians over rounds: steadier than
    times."""
    for row in rows:
        if row[f"{engine}_ms"]:
            ratio = row.get(f"{engine}_ratio")
            own = float(row["edgekit_ms"])
            yield float(ratio) if ratio else float(row[f"{engine}_ms"]) / own


def _format_mean(ratios: Iterable[float]) -> str:
    known = list(ratios)
    return f"{statistics.geometric_mean(known):.2f}" if known else ""


if __name__ == "__main__":
    sys.exit(main())
