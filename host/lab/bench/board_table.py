"""Tables of ours beside other engines on boards, as docs/performance.md has them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from edgekit.host.lab.bench.board_peers import ENGINES
from edgekit.host.lab.bench.board_rows import Place, Row
from edgekit.host.simulator.report import error_text

_SHOWN = {"litert": "LiteRT", "onnxruntime": "ONNX Runtime", "mnn": "MNN", "ncnn": "ncnn"}


def markdown(tables: Sequence[tuple[Place, Sequence[Row]]]) -> str:
    """A summary with a line for each board and number of threads, their tables, and what has no
    answer."""
    known = [(place, [row for row in rows if row.known]) for place, rows in tables]
    measured = [(place, rows) for place, rows in known if rows]
    lines = _summary(measured)
    for place, rows in measured:
        lines += ["", *_table(place, rows)]
    missing = [line for place, rows in tables if (line := _missing(place, rows))]
    if missing:
        lines += ["", "### Not estimated", "", *missing]
    return "\n".join(lines)


def _missing(place: Place, rows: Sequence[Row]) -> str:
    left = [row.model + f" ({row.failure})" * bool(row.failure) for row in rows if not row.known]
    told = ", ".join(left) if len(left) < len(rows) else "any model"
    return f"- {_name(place)}: {told}" if left else ""


def mean(ratios: Iterable[float]) -> str:
    """Their geometric mean, a dash where there are none."""
    known = list(ratios)
    return f"{statistics.geometric_mean(known):.2f}" if known else "–"


def _summary(tables: Sequence[tuple[Place, Sequence[Row]]]) -> list[str]:
    heads = ["models", "against the best engine", "lowest", "8-bit against LiteRT"]
    heads += [f"against {_SHOWN[name]}" for name in ENGINES]
    lines = [f"| board | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}"]
    for place, rows in tables:
        best = {row.model: row.best for row in rows if row.best is not None}
        lowest = min(best, key=lambda name: best[name]) if best else ""
        cells = [str(len(best)), f"**{mean(best.values())}**"]
        cells.append(f"{best[lowest]:.2f} ({lowest})" if best else "–")
        cells.append(
            mean(_against("litert", [r for r in rows if r.ours and r.ours.kind == "int8"]))
        )
        cells += [mean(_against(name, rows)) for name in ENGINES]
        lines.append(f"| {_name(place)} | {' | '.join(cells)} |")
    return lines


def _against(name: str, rows: Iterable[Row]) -> list[float]:
    return [row.ratios()[name] for row in rows if name in row.ratios()]


def _table(place: Place, rows: Sequence[Row]) -> list[str]:
    heads = ("model", "edgekit", *_SHOWN.values(), "best / edgekit")
    return [
        f"### {_name(place)}",
        "",
        _about(place),
        "",
        f"| {' | '.join(heads)} |",
        f"| --- |{' ---: |' * (len(heads) - 1)}",
        *map(_line, rows),
    ]


def _line(row: Row) -> str:
    ratios = row.ratios()
    cells = [row.model, _ours(row)]
    for name in _SHOWN:
        ratio = ratios.get(name)
        ms = row.peers[name].milliseconds
        cells.append("–" if ratio is None else f"{ms:.3g} ({ratio:.2f})")
    cells.append("–" if row.best is None else f"{row.best:.2f}")
    return f"| {' | '.join(cells)} |"


def _ours(row: Row) -> str:
    if row.ours is None:
        return "–"
    half = any("f16" in operator.spec.kernel for operator in row.ours.operators)
    return f"{row.ours.total_ms:.3g}" + " half" * half


def _about(place: Place) -> str:
    """The core and its clock, and how far off estimates of it were found to be."""
    target = place.target
    name = target.core.name.upper()
    core = f"Cortex-{name}" if target.cpu.startswith("cortex") else name
    kinds = (("float", "float networks"), ("int8", "8-bit ones"))
    errors = (f"{what} {error_text(target.proof(kind, place.threads))}" for kind, what in kinds)
    return f"{core} at {target.core.clock_mhz:g} MHz; {', '.join(errors)}."


def _name(place: Place) -> str:
    return f"{place.board}, {place.threads} thread{'s' * (place.threads > 1)}"
