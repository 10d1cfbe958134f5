"""How measured latency is shown: the same in deploy and bench."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.host.cli.output import table

_SLOWEST = 10
_NAME_WIDTH = 40


def show_latency(document: Mapping[str, Any]) -> None:
    """Latency in one line, from an edgekit.bench.model/1 document."""
    latency, threads = document["latency_ms"], document["threads"]
    print(
        f"latency  {latency['median']:.3f} ms median, {latency['p10']:.3f} p10, "
        f"{latency['p90']:.3f} p90, {latency['n']} runs, {threads} thread{'s' * (threads != 1)}"
    )


def show_slowest(document: Mapping[str, Any]) -> None:
    """The slowest operators with the kernel each used, slowest first."""
    operators = sorted(document["operators"], key=lambda o: -o["median_us"])
    rows = [
        (
            shorten(o["name"]),
            o["op"],
            o["kernel"],
            f"{o['median_us']:.1f}",
            f"{100 * o['share']:.1f} %",
        )
        for o in operators[:_SLOWEST]
    ]
    print(f"slowest {len(rows)} of {len(operators)} operators")
    table(("operator", "kind", "kernel", "us", "share"), rows, left=3)


def shorten(name: str) -> str:
    """The end of a long name: it says more than the beginning, which names the scopes."""
    return name if len(name) <= _NAME_WIDTH else "..." + name[3 - _NAME_WIDTH :]
