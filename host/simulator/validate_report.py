"""What validation found: errors per board and core, for docs/board-time.md and kb/targets/cores."""

from __future__ import annotations

import itertools
import statistics
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.errors import InputError
from edgekit.host.simulator.witness import (
    FITTED,
    WITNESSES,
    Published,
    Witness,
    kind_of,
    row_of,
)

_TABLE = "[[validation]]\n"


@dataclass(frozen=True)
class Result:
    """A network on a board: milliseconds estimated and published; unknown: instructions that the
    decoder took for plain ones, in parts of all."""

    network: str
    estimated: float
    published: float
    unknown: float = 0.0

    @property
    def error(self) -> float:
        """Percent of the published time, above 0 where the estimate is too slow."""
        return 100 * (self.estimated / self.published - 1)

    @property
    def kind(self) -> str:
        return kind_of(self.network)

    @property
    def fitted(self) -> bool:
        return self.network in FITTED


@dataclass(frozen=True)
class Table:
    """All results of a board with so many threads."""

    witness: Witness
    threads: int
    results: tuple[Result, ...]

    def proof(self, kind: str) -> list[Result]:
        """The results that say something of the error: of networks that nothing is fitted to."""
        return [r for r in self.results if r.kind == kind and not r.fitted]

    def rank(self, beyond: float = 0.0) -> tuple[float, int]:
        """Kendall's tau between the estimated and the published order of float networks, and of how
        many pairs: those whose published times differ by more than so many percent."""
        float_ones = [r for r in self.results if r.kind == "float"]
        return kendall([(r.estimated, r.published) for r in float_ones], beyond)


def kendall(pairs: Sequence[tuple[float, float]], beyond: float = 0.0) -> tuple[float, int]:
    """Kendall's tau: of all pairs of pairs, those in the same order less the others, over their
    number, and the number; only of those whose second figures differ by more than `beyond`
    percent."""
    signs = [
        ((a[0] > b[0]) - (a[0] < b[0])) * ((a[1] > b[1]) - (a[1] < b[1]))
        for a, b in itertools.combinations(pairs, 2)
        if max(a[1], b[1]) > (1 + beyond / 100) * min(a[1], b[1])
    ]
    return (sum(signs) / len(signs) if signs else 1.0), len(signs)


def errors(results: Sequence[Result]) -> tuple[float, float]:
    """Median and worst error in percent, whatever their signs."""
    sizes = [abs(r.error) for r in results]
    return (statistics.median(sizes), max(sizes)) if sizes else (0.0, 0.0)


def proofs(tables: Sequence[Table], core: str) -> list[Table]:
    """The tables that a core's error is told from: boards whose row is not older than the ncnn it
    is held against, if there are any."""
    own = [t for t in tables if t.witness.core == core]
    return [t for t in own if not t.witness.early] or own


def spread(rows: Sequence[Published], witnesses: Sequence[Witness]) -> list[str]:
    """How far published boards of the same core are from each other, in cycles: table rows."""
    return [
        f"| {a.core.upper()} | {a.name}, {b.name} | {len(both)} | "
        f"{statistics.median(_apart(both)):.0f} % | {max(_apart(both)):.0f} % | "
        f"{kendall(both)[0]:.2f} |"
        for a, b, both in _same_core(rows, witnesses)
    ]


def spread_of(core: str, rows: Sequence[Published]) -> float:
    """By how many percent published boards of a core differ in the median, or those of all cores
    where there is one board of it."""
    found = [(a.core, _apart(both)) for a, _, both in _same_core(rows, WITNESSES)]
    own = [sizes for name, sizes in found if name == core] or [sizes for _, sizes in found]
    return statistics.median(itertools.chain(*own)) if own else 0.0


def _same_core(
    rows: Sequence[Published], witnesses: Sequence[Witness]
) -> Iterator[tuple[Witness, Witness, list[tuple[float, float]]]]:
    """Two boards of one core, and the cycles of float networks on both."""
    for a, b in itertools.combinations(witnesses, 2):
        one, other = row_of(a, rows, 1), row_of(b, rows, 1)
        if a.core != b.core or one is None or other is None or a.row == b.row:
            continue
        both = sorted(n for n in one.min_ms if n in other.min_ms and kind_of(n) == "float")
        cycles = [(one.min_ms[n] * a.clock_mhz, other.min_ms[n] * b.clock_mhz) for n in both]
        if cycles:
            yield a, b, cycles


def _apart(both: Sequence[tuple[float, float]]) -> list[float]:
    return [abs(100 * (one / other - 1)) for one, other in both]


def markdown(
    tables: Sequence[Table], rows: Sequence[Published], witnesses: Sequence[Witness], date: str
) -> str:
    """The validation part of docs/board-time.md."""
    lines = [
        f"Of {date}; estimated and published milliseconds. Networks with a * were used to fit and "
        "are left out of medians and worst errors.",
        "",
        "| board | core | ncnn | threads | networks | median | worst | Kendall's τ | τ beyond the "
        "spread |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for table in tables:
        for kind in ("float", "int8"):
            found = table.proof(kind)
            if not found:
                continue
            median, worst = errors(found)
            rank = _rank(table, spread_of(table.witness.core, rows)) if kind == "float" else " | "
            wheel = table.witness.wheel + (" (row is older)" if table.witness.early else "")
            lines.append(
                f"| {table.witness.name} | {table.witness.core.upper()} | {wheel} | "
                f"{table.threads} | {len(found)} {kind} | {median:.0f} % | {worst:.0f} % | {rank} |"
            )
    lines += ["", *_networks(tables)]
    if apart := spread(rows, witnesses):
        lines += [
            "",
            "Published boards of the same core among themselves, in cycles:",
            "",
            "| core | boards | networks | median | most | Kendall's τ |",
            "| --- | --- | --- | --- | --- | --- |",
            *apart,
        ]
    return "\n".join(lines)


def _rank(table: Table, beyond: float) -> str:
    rank, _ = table.rank()
    clear, pairs = table.rank(beyond)
    return f"{rank:.2f} | {clear:.2f} of {pairs} pairs beyond {beyond:.0f} %"


def _networks(tables: Sequence[Table]) -> list[str]:
    names = sorted({r.network for t in tables for r in t.results}, key=str.lower)
    heads = [f"{t.witness.name}, {t.threads}" for t in tables]
    lines = [f"| network | {' | '.join(heads)} |", "| --- |" + " --- |" * len(tables)]
    for name in names:
        cells = []
        for table in tables:
            found = [r for r in table.results if r.network == name]
            cells.append(
                f"{found[0].estimated:.1f} / {found[0].published:.1f} = "
                f"**{found[0].estimated / found[0].published:.2f}**"
                if found
                else ""
            )
        lines.append(f"| {name}{'*' if name in FITTED else ''} | {' | '.join(cells)} |")
    return lines


def write_document(path: Path, text: str, part: str = "validation") -> None:
    """Puts the text between the marks of that part of a document."""
    begin, end = (f"<!-- {part}: {place} -->" for place in ("begin", "end"))
    old = path.read_text(encoding="utf-8")
    if begin not in old or end not in old:
        raise InputError(f"{path}: expected the marks {begin} and {end}, found none")
    head, rest = old.split(begin, 1)
    tail = rest.split(end, 1)[1]
    path.write_text(f"{head}{begin}\n{text}\n{end}{tail}", encoding="utf-8")


def validation_toml(tables: Sequence[Table], core: str, date: str) -> str:
    """The [[validation]] tables of a core's file."""
    parts = []
    own = proofs(tables, core)
    for kind, many in itertools.product(("float", "int8"), (False, True)):
        group = [t for t in own if (t.threads > 1) == many and t.proof(kind)]
        if not group:
            continue
        results = [r for t in group for r in t.proof(kind)]
        median, worst = errors(results)
        boards = ", ".join(t.witness.row for t in group)
        note = "; the rows are older than the ncnn" if group[0].witness.early else ""
        parts.append(
            f"{_TABLE}"
            f'kind = "{kind}"\n'
            f"threads = {group[0].threads}\n"
            f"networks = {len({r.network for r in results})}\n"
            f"median_percent = {median:.1f}\n"
            f"worst_percent = {worst:.1f}\n"
            f'against = "Tencent/ncnn benchmark/README.md: {boards}{note}"\n'
            f'date = "{date}"\n'
        )
    return "\n".join(parts)


def write_core(path: Path, text: str) -> None:
    """Puts [[validation]] tables into a core's file, in place of those of the same kind of
    networks, with one thread or with several."""
    head, *old = path.read_text(encoding="utf-8").split(_TABLE)
    found: dict[tuple[str, bool], str] = {}
    for table in (*old, *text.split(_TABLE)[1:]):
        about = tomllib.loads(table)
        found[about["kind"], about["threads"] > 1] = table.strip("\n")
    tables = (f"\n{_TABLE}{found[key]}\n" for key in sorted(found))
    path.write_text("".join((head.rstrip("\n"), "\n", *tables)), encoding="utf-8")


def regressions(tables: Sequence[Table], recorded: Mapping[str, tuple[float, float]]) -> list[str]:
    """Cores whose float networks are now further off than `recorded` says, in a line each."""
    lines = []
    for core, (median, worst) in recorded.items():
        results = [r for t in proofs(tables, core) if t.threads == 1 for r in t.proof("float")]
        if not results:
            continue
        now = errors(results)
        if now[0] > median + 1 or now[1] > worst + 2:
            lines.append(
                f"{core}: expected a median error of {median:.1f} % and at worst {worst:.1f} %, "
                f"found {now[0]:.1f} % and {now[1]:.1f} %"
            )
    return lines
