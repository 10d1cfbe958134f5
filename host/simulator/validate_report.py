"""Validation results: errors per board and core, for docs/results and kb/targets/cores."""

from __future__ import annotations

import itertools
import statistics
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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
class NetworkResult:
    """A network on a board: estimated and published milliseconds; unknown: fraction of instructions
    that were timed as plain ones."""

    network: str
    estimated: float
    published: float
    unknown: float = 0.0

    @property
    def error(self) -> float:
        """Percent of the published time; positive if the estimate is too slow."""
        return 100 * (self.estimated / self.published - 1)

    @property
    def kind(self) -> str:
        return kind_of(self.network)

    @property
    def fitted(self) -> bool:
        return self.network in FITTED


@dataclass(frozen=True)
class Table:
    """All results of a board with `threads` threads."""

    witness: Witness
    threads: int
    results: tuple[NetworkResult, ...]

    def proof(self, kind: str) -> list[NetworkResult]:
        """The results that are evidence of the error: networks that nothing was fitted to."""
        return [r for r in self.results if r.kind == kind and not r.fitted]

    def rank(self, beyond: float = 0.0) -> tuple[float, int]:
        """Kendall's tau between the estimated and published order of float networks, and the
        number of pairs, which are those whose published times differ by over `beyond` percent."""
        float_ones = [r for r in self.results if r.kind == "float"]
        return kendall([(r.estimated, r.published) for r in float_ones], beyond)


def kendall(pairs: Sequence[tuple[float, float]], beyond: float = 0.0) -> tuple[float, int]:
    """Kendall's tau (concordant minus discordant pairs of pairs, over their number), and the
    number, counting only those whose second figures differ by more than `beyond` percent."""
    signs = [
        ((a[0] > b[0]) - (a[0] < b[0])) * ((a[1] > b[1]) - (a[1] < b[1]))
        for a, b in itertools.combinations(pairs, 2)
        if max(a[1], b[1]) > (1 + beyond / 100) * min(a[1], b[1])
    ]
    return (sum(signs) / len(signs) if signs else 1.0), len(signs)


def errors(results: Sequence[NetworkResult]) -> tuple[float, float]:
    """Median and maximum absolute error in percent."""
    sizes = [abs(r.error) for r in results]
    return (statistics.median(sizes), max(sizes)) if sizes else (0.0, 0.0)


def proofs(tables: Sequence[Table], core: str) -> list[Table]:
    """The tables from which a core's error is determined: preferably those of boards whose row is
    not older than the ncnn used for the comparison."""
    own = [t for t in tables if t.witness.core == core]
    return [t for t in own if not t.witness.early] or own


def spread(rows: Sequence[Published], witnesses: Sequence[Witness]) -> list[dict[str, str]]:
    """Differences between published boards of the same core, in cycles: the rows of
    validation_spread.csv."""
    return [
        {
            "core": a.core,
            "boards": f"{a.name}, {b.name}",
            "networks": str(len(both)),
            "median_percent": f"{statistics.median(_percent_errors(both)):.0f}",
            "worst_percent": f"{max(_percent_errors(both)):.0f}",
            "kendall_tau": f"{kendall(both)[0]:.2f}",
        }
        for a, b, both in _same_core(rows, witnesses)
    ]


def spread_of(core: str, rows: Sequence[Published]) -> float:
    """The median difference in percent between published boards of a core, or between those of
    every core if there is only one such board."""
    found = [(a.core, _percent_errors(both)) for a, _, both in _same_core(rows, WITNESSES)]
    own = [sizes for name, sizes in found if name == core] or [sizes for _, sizes in found]
    return statistics.median(itertools.chain(*own)) if own else 0.0


def _same_core(
    rows: Sequence[Published], witnesses: Sequence[Witness]
) -> Iterator[tuple[Witness, Witness, list[tuple[float, float]]]]:
    """Pairs of boards with the same core, and the cycles of float networks on both."""
    for a, b in itertools.combinations(witnesses, 2):
        one, other = row_of(a, rows, 1), row_of(b, rows, 1)
        if a.core != b.core or one is None or other is None or a.row == b.row:
            continue
        both = sorted(n for n in one.min_ms if n in other.min_ms and kind_of(n) == "float")
        cycles = [(one.min_ms[n] * a.clock_mhz, other.min_ms[n] * b.clock_mhz) for n in both]
        if cycles:
            yield a, b, cycles


def _percent_errors(both: Sequence[tuple[float, float]]) -> list[float]:
    return [abs(100 * (one / other - 1)) for one, other in both]


def summary(tables: Sequence[Table], rows: Sequence[Published]) -> list[dict[str, str]]:
    """The errors per board and network kind: the rows of validation.csv. The second tau excludes
    pairs too close to be distinguished by published boards of the core."""
    found = []
    for table, kind in itertools.product(tables, ("float", "int8")):
        results = table.proof(kind)
        if not results:
            continue
        median, worst = errors(results)
        witness = table.witness
        clear, pairs = table.rank(spread_of(witness.core, rows))
        ranked = kind == "float"
        found.append(
            {
                "board": witness.name,
                "core": witness.core,
                "ncnn": witness.wheel,
                "kernels": "newer" if witness.early else "matching",
                "threads": str(table.threads),
                "kind": kind,
                "networks": str(len(results)),
                "median_percent": f"{median:.0f}",
                "worst_percent": f"{worst:.0f}",
                "kendall_tau": f"{table.rank()[0]:.2f}" if ranked else "",
                "clear_tau": f"{clear:.2f}" if ranked else "",
                "clear_pairs": str(pairs) if ranked else "",
            }
        )
    return found


def network_rows(tables: Sequence[Table]) -> list[dict[str, str]]:
    """Each network on each board: the rows of validation_networks.csv."""
    return [
        {
            "board": table.witness.name,
            "threads": str(table.threads),
            "network": result.network,
            "fitted": "yes" if result.fitted else "no",
            "estimated_ms": f"{result.estimated:.1f}",
            "published_ms": f"{result.published:.1f}",
            "ratio": f"{result.estimated / result.published:.2f}",
        }
        for table in tables
        for result in table.results
    ]


def validation_toml(tables: Sequence[Table], core: str, date: str) -> str:
    """The [[validation]] tables for a core's file."""
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
    """Writes [[validation]] tables to a core's file, replacing those of the same network kind with
    one thread or with several."""
    head, *old = path.read_text(encoding="utf-8").split(_TABLE)
    found: dict[tuple[str, bool], str] = {}
    for table in (*old, *text.split(_TABLE)[1:]):
        about = tomllib.loads(table)
        found[about["kind"], about["threads"] > 1] = table.strip("\n")
    tables = (f"\n{_TABLE}{found[key]}\n" for key in sorted(found))
    path.write_text("".join((head.rstrip("\n"), "\n", *tables)), encoding="utf-8")


def regressions(tables: Sequence[Table], recorded: Mapping[str, tuple[float, float]]) -> list[str]:
    """Cores whose errors for float networks now exceed the `recorded` ones, one line each."""
    lines = []
    for core, (median, worst) in recorded.items():
        results = [r for t in proofs(tables, core) if t.threads == 1 for r in t.proof("float")]
        if not results:
            continue
        now = errors(results)
        if now[0] > median + 1 or now[1] > worst + 2:
            lines.append(
                f"{core}: expected a median error of {median:.1f}% and at worst {worst:.1f}%, "
                f"found {now[0]:.1f}% and {now[1]:.1f}%"
            )
    return lines
