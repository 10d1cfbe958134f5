"""A page that compares estimated times of boards and engines: bars with error bars, no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from edgekit.host.report.page import csp_hash, fill

_WEB = Path(__file__).parent / "web"
_STYLES = ("style.css", "estimates.css")


@dataclass(frozen=True)
class EngineTime:
    """An engine's time; `error`: the median error of such estimates in percent, None if not
    validated; `ratio`: its time over edgekit's."""

    engine: str
    milliseconds: float
    error: float | None
    ratio: float

    @property
    def most(self) -> float:
        """The time at the end of its error bar."""
        return self.milliseconds * (1 + (self.error or 0) / 100)


@dataclass(frozen=True)
class BoardEngines:
    """The engines on one board; `about` describes it in a line, `missing` are engines without a
    time, each with the reason. Without `times` the board itself failed."""

    model: str
    board: str
    about: str
    times: tuple[EngineTime, ...]
    missing: tuple[str, ...] = ()


def estimates_page(boards: Sequence[BoardEngines], made: str) -> str:
    """The complete HTML file; bars of a model have one scale on all boards."""
    style = "".join((_WEB / name).read_text(encoding="utf-8") for name in _STYLES)
    models = dict.fromkeys(board.model for board in boards)
    sections = []
    for model in models:
        same = [board for board in boards if board.model == model]
        scale = max((time.most for board in same for time in board.times), default=1.0)
        sections += [_section(board, scale, len(models) > 1) for board in same]
    title = escape(next(iter(models)) if len(models) == 1 else f"{len(models)} models")
    values = {
        "policy": f"default-src 'none'; style-src '{csp_hash(style)}'; base-uri 'none'",
        "style": style,
        "title": f"{title}: estimated times",
        "models": title,
        "sections": "\n".join(sections),
        "made": escape(made),
    }
    return fill("estimates.html", values)


def _section(board: BoardEngines, scale: float, named: bool) -> str:
    title = f"{board.model} on {board.board}" if named else board.board
    rows = "".join(_row(time, scale) for time in sorted(board.times, key=lambda t: t.milliseconds))
    missing = "".join(f"<li>{escape(line)}</li>" for line in board.missing)
    return (
        f"<section><h2>{escape(title)}</h2><p class='quiet'>{escape(board.about)}</p>"
        + (f"<table>{_HEAD}<tbody>{rows}</tbody></table>" if rows else "")
        + (f"<ul class='quiet'>{missing}</ul>" if missing else "")
        + "</section>"
    )


_HEAD = (
    "<thead><tr><th scope='col' class='text'>engine</th><th></th><th scope='col'>estimated ms</th>"
    "<th scope='col'>error</th><th scope='col'>edgekit is faster by</th></tr></thead>"
)


def _row(time: EngineTime, scale: float) -> str:
    error = "not validated" if time.error is None else f"± {time.error:.0f}%"
    own = " class='own'" if time.engine == "edgekit" else ""
    ratio = "" if own else f"{time.ratio:.2f}"
    return (
        f"<tr{own}><th scope='row'>{escape(time.engine)}</th><td class='chart'>"
        f"{_bar(time, scale)}</td><td class='number'>{time.milliseconds:.4g}</td>"
        f"<td class='number'>{error}</td><td class='number ratio'>{ratio}</td></tr>"
    )


def _bar(time: EngineTime, scale: float) -> str:
    """A bar as a drawing: the page's policy forbids the inline style that an element needs."""

    def at(milliseconds: float) -> str:
        return f"{100 * milliseconds / scale:.2f}%"

    least = time.milliseconds * (1 - (time.error or 0) / 100)
    whisker = (
        f"<rect class='whisker' x='{at(least)}' y='7' height='2' width='{at(time.most - least)}'/>"
        f"<rect class='whisker' x='{at(least)}' y='4' height='8' width='1.5'/>"
        f"<svg x='{at(time.most)}' overflow='visible'>"
        "<rect class='whisker' x='-1.5' y='4' height='8' width='1.5'/></svg>"
    )
    return (
        "<svg class='time' width='100%' height='16' aria-hidden='true'>"
        f"<rect class='fill' y='2' height='12' width='{at(time.milliseconds)}'/>"
        f"{whisker if time.error else ''}</svg>"
    )
