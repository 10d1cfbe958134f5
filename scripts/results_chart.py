"""The chart of docs/performance.md: the fastest engine's time over edgekit's, per board."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

_LEFT, _TOP, _BAR, _GAP, _WIDTH = 84, 64, 15, 16, 560
_COLORS = {"1": "#3b6fb6", "4": "#c4622d"}
# Readable on light and dark pages: gray text and rules, no background.
_TEXT, _RULE = "#7a8794", "#9aa5b1"
_STYLE = f"text{{font:13px system-ui,sans-serif;fill:{_TEXT}}}"


def chart(rows: Sequence[Mapping[str, str]]) -> str:
    """Bars for each board, one per number of threads, scaled to the largest mean."""
    boards = list(dict.fromkeys(row["board"] for row in rows))
    most = max(float(row["fastest_engine"]) for row in rows)
    scale = (_WIDTH - _LEFT - 10) / most
    height = _TOP + len(boards) * (2 * _BAR + _GAP) + 30
    title = "Time of the fastest other engine over edgekit's, geometric mean over models"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="640" '
        f'role="img" '
        f'aria-label="{title}">',
        f"<title>{title}</title><style>{_STYLE}</style>",
        f'<text x="0" y="18" font-weight="600">{title}</text>',
        *_draw_legend(rows),
        *_draw_grid(most, scale, height),
    ]
    for place, board in enumerate(boards):
        y = _TOP + place * (2 * _BAR + _GAP)
        parts.append(f'<text x="{_LEFT - 10}" y="{y + 20}" text-anchor="end">{board}</text>')
        own = [row for row in rows if row["board"] == board]
        for n, row in enumerate(own):
            parts += _draw_bar(row, y + n * (_BAR + 2), scale)
    return "\n".join((*parts, "</svg>\n"))


def _draw_legend(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    for n, threads in enumerate(dict.fromkeys(row["threads"] for row in rows)):
        x = _LEFT + 110 * n
        yield f'<rect x="{x}" y="30" width="12" height="12" rx="2" fill="{_COLORS[threads]}"/>'
        name = f"{threads} thread{'s' * (threads != '1')}"
        yield f'<text x="{x + 18}" y="41">{name}</text>'


def _draw_grid(most: float, scale: float, height: int) -> Iterator[str]:
    for ratio in range(int(most) + 1):
        x = _LEFT + ratio * scale
        strong = ' stroke-width="2"' if ratio == 1 else ' stroke-dasharray="2 4"' * (ratio > 0)
        yield (
            f'<line x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{height - 24}" '
            f'stroke="{_RULE}"{strong}/>'
        )
        yield f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{ratio}</text>'


def _draw_bar(row: Mapping[str, str], y: int, scale: float) -> Iterator[str]:
    width = float(row["fastest_engine"]) * scale
    yield (
        f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2" '
        f'fill="{_COLORS[row["threads"]]}"/>'
    )
    label = f"{row['fastest_engine']} ({row['models']} models)"
    inside = width > 150
    yield (
        f'<text x="{_LEFT + width + (-6 if inside else 6):.1f}" y="{y + 12}" font-size="12" '
        f'text-anchor="{"end" if inside else "start"}"'
        f"{' style=' + chr(34) + 'fill:#fff' + chr(34) if inside else ''}>{label}</text>"
    )
