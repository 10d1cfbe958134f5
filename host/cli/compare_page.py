"""A page and an export of a comparison: the graph, colored by error or by time."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from html import escape
from pathlib import Path

from edgekit.host import report
from edgekit.host.lab.compare.comparison import Comparison
from edgekit.host.lab.compare.layers import MOST_DB, LayerError
from edgekit.host.report.explained import places
from edgekit.host.report.page import csp_hash, fill

_WEB = Path(report.__file__).parent / "web"
_STYLES = ("style.css", "compared.css")
_WIDTH, _HEIGHT, _GAP = 190, 34, 22
_SHADES = 9  # classes of color
_GOOD_DB, _BAD_DB = 60.0, 10.0
_RED, _WHITE = "#d6342a", "#ffffff"
_LONGEST = 26  # characters of a name in a box


def compared_page(found: Comparison, times: Mapping[str, float], model: str, board: str) -> str:
    """The complete HTML file, without scripts; `times`: microseconds by operator."""
    style = "".join((_WEB / name).read_text(encoding="utf-8") for name in _STYLES)
    title = f"{model} on {board}"
    outputs = "".join(
        f"<li>{escape(name)}: SQNR {e.sqnr_db:.1f} dB, cosine {e.cosine:.5f}</li>"
        for name, e in found.outputs.items()
    )
    brought = "".join(
        f"<tr><th scope='row'>{escape(b.name)}</th><td class='text'>{escape(b.kind)}</td>"
        f"<td class='number'>{b.db:+.2f}</td></tr>"
        for b in found.brought
    )
    values = {
        "policy": f"default-src 'none'; style-src '{csp_hash(style)}'; base-uri 'none'",
        "style": style,
        "title": escape(title),
        "against": escape(f"{found.against}; {found.scaling}" if found.scaling else found.against),
        "outputs": outputs,
        "graph": _drawing(found, times),
        "rows": "".join(_row(each, times) for each in found.layers),
        "brought": brought,
    }
    return fill("compared.html", values)


def _drawing(found: Comparison, times: Mapping[str, float]) -> str:
    """The operators below what feeds them, each drawn once by error and once by time."""
    index = {each.name: i for i, each in enumerate(found.layers)}
    edges = [
        (index[s], i) for i, each in enumerate(found.layers) for s in each.inputs if s in index
    ]
    edges = [(a, b) for a, b in edges if a < b]
    at = places(len(found.layers), edges)
    most = max((times.get(each.name, 0.0) for each in found.layers), default=0.0) or 1.0
    lines = "".join(_edge(at[a], at[b]) for a, b in edges)
    boxes = "".join(
        _box(each, place, times.get(each.name), most)
        for each, place in zip(found.layers, at, strict=True)
    )
    columns = 1 + max((c for c, _ in at), default=0)
    rows = 1 + max((r for _, r in at), default=0)
    size = f"width='{columns * (_WIDTH + _GAP)}' height='{rows * (_HEIGHT + _GAP)}'"
    return f"<svg class='graph' {size} role='img'>{lines}{boxes}</svg>"


def _edge(source: tuple[int, int], target: tuple[int, int]) -> str:
    x1, y1 = _corner(source)
    x2, y2 = _corner(target)
    half = _WIDTH // 2
    return f"<path d='M{x1 + half} {y1 + _HEIGHT}L{x2 + half} {y2}'/>"


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    return place[0] * (_WIDTH + _GAP) + _GAP // 2, place[1] * (_HEIGHT + _GAP) + _GAP // 2


def _box(layer: LayerError, place: tuple[int, int], time: float | None, most: float) -> str:
    x, y = _corner(place)
    size = f"x='{x}' y='{y}' width='{_WIDTH}' height='{_HEIGHT}' rx='4'"
    error = layer.board
    text = "not in the reference" if error is None else f"SQNR {error.sqnr_db:.1f} dB"
    took = "" if time is None else f", {time:.3g} µs"
    by_time = math.sqrt((time or 0.0) / most)
    short = layer.name if len(layer.name) <= _LONGEST else f"…{layer.name[1 - _LONGEST :]}"
    return (
        f"<g><title>{escape(layer.name)}: {escape(layer.kind)}, {text}{took}</title>"
        f"<rect class='error {_shade(_badness(layer))}' {size}/>"
        f"<rect class='time {_shade(by_time)}' {size}/>"
        f"<text x='{x + 8}' y='{y + 14}'>{escape(short)}</text>"
        f"<text class='quiet' x='{x + 8}' y='{y + 28}'>{escape(layer.kind)}</text></g>"
    )


def _badness(layer: LayerError) -> float | None:
    if layer.board is None:
        return None
    return (_GOOD_DB - layer.board.sqnr_db) / (_GOOD_DB - _BAD_DB)


def _shade(part: float | None) -> str:
    if part is None:
        return "none"
    return f"s{min(max(round(part * (_SHADES - 1)), 0), _SHADES - 1)}"


def _row(layer: LayerError, times: Mapping[str, float]) -> str:
    e, took = layer.board, times.get(layer.name)
    cells = [""] * 4
    if e is not None:
        saturated = f"{100 * e.saturated:.1f}%"
        cells = [f"{e.sqnr_db:.1f}", f"{e.cosine:.5f}", f"{e.largest:.3g}", saturated]
    cells += [f"{layer.steps:.3g}", "" if took is None else f"{took:.3g}"]
    numbers = "".join(f"<td class='number'>{cell}</td>" for cell in cells)
    return (
        f"<tr><th scope='row'>{escape(layer.name)}</th>"
        f"<td class='text'>{escape(layer.kind)}</td>{numbers}</tr>"
    )


def node_data_json(found: Comparison, times: Mapping[str, float] | None) -> bytes:
    """Node data of a graph for Model Explorer, by tensor: estimated microseconds or, without
    `times`, SQNR in dB. Format: model_explorer.node_data_builder.GraphNodeData."""
    if times is None:
        values = {e.tensor: min(e.board.sqnr_db, MOST_DB) for e in found.layers if e.board}
        name, colors = "SQNR dB", (_RED, _WHITE)
    else:
        values = {e.tensor: times[e.name] for e in found.layers if e.name in times}
        name, colors = "estimated µs", (_WHITE, _RED)
    document = {
        "results": {key: {"value": round(value, 4)} for key, value in values.items()},
        "name": name,
        "gradient": [{"stop": i, "bgColor": color} for i, color in enumerate(colors)],
    }
    return json.dumps(document, indent=1).encode() + b"\n"
