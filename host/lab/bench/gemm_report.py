"""The results of `lab bench gemm` as one JSON document, schema edgekit.bench.gemm/1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgekit.host.lab.bench.gemm import CaseResult, GemmPeers, Summary, bytes_over_floats, summarize
from edgekit.host.lab.bench.gemm_lookup import LookupSpeed
from edgekit.host.lab.bench.gemm_regret import UnmeasuredRegret

SCHEMA = "edgekit.bench.gemm/1"


@dataclass(frozen=True)
class GemmReport:
    """All results of one run. `refused` products exceed the board's memory or would take an
    emulated board too long."""

    board: str
    platform: str
    machine: str
    threads: int
    emulated: bool
    results: tuple[CaseResult, ...]
    refused: int
    peers: GemmPeers | None = None
    lookup: LookupSpeed | None = None
    regret: UnmeasuredRegret | None = None

    @property
    def unit(self) -> str:
        return "instructions" if self.emulated else "seconds"

    def to_json(self) -> dict[str, Any]:
        """Costs are per product, in `unit`; rates only if there are times. `transposed`: our cost
        with activations as rows when weights are the left operand; for a peer, whether that is its
        faster form. Ratios compare the faster forms."""
        return {
            "schema": SCHEMA,
            "board": self.board,
            "platform": self.platform,
            "machine": self.machine,
            "threads": self.threads,
            "unit": self.unit,
            "peers": asdict(self.peers) if self.peers else None,
            "products": [self._result_to_json(result) for result in self.results],
            "refused": self.refused,
            "summary": [_summary_to_json(each) for each in summarize(self.results)],
            "s8_over_f32": bytes_over_floats(self.results),
            "lookup_ns": asdict(self.lookup) if self.lookup else None,
            "regret": _regret_to_json(self.regret),
        }

    def rate(self, result: CaseResult, cost: float) -> float | None:
        """GFLOP/s, or GOP/s for int8; None if instructions are counted."""
        return None if self.emulated else result.case.shape.operations / cost / 1e9

    def _result_to_json(self, result: CaseResult) -> dict[str, Any]:
        return {
            **asdict(result.case.shape),
            "group": result.case.group,
            "weights": result.case.weights,
            "dtype": result.dtype,
            "rule": result.answer.rule,
            "method": asdict(result.answer.method),
            "cost": result.cost,
            "spread": result.spread,
            "gflops": self.rate(result, result.cost),
            "gain": result.gain,
            "transposed": result.transposed,
            "peers": {
                name: {
                    "cost": peer.seconds,
                    "transposed": peer.transposed,
                    "gflops": self.rate(result, peer.seconds),
                    "ratio": peer.ratio,
                }
                for name, peer in result.peers.items()
            },
            "best_peer": result.best_peer,
            "ratio": result.ratio,
        }


def _summary_to_json(summary: Summary) -> dict[str, Any]:
    worst = summary.worst
    return {
        "dtype": summary.dtype,
        "group": summary.group,
        "products": summary.products,
        "gain": summary.gain,
        "ratio": summary.ratio,
        "worst": worst and {**asdict(worst.case.shape), "ratio": worst.ratio},
    }


def _regret_to_json(regret: UnmeasuredRegret | None) -> dict[str, Any] | None:
    if regret is None:
        return None
    return {
        "mean": regret.mean,
        "worst": regret.worst,
        "products": [
            {
                **asdict(each.case.shape),
                "weights": each.case.weights,
                "dtype": each.dtype,
                "rule": each.rule,
                "chosen": asdict(each.chosen),
                "best": asdict(each.best),
                "regret": each.regret,
                "methods": each.methods,
            }
            for each in regret.products
        ],
    }


def rows(report: GemmReport, peers: Sequence[str]) -> list[list[str]]:
    """Cells of the human-readable table: one row per product except the random ones, without the
    rule if there are peers. Rates are for the faster forms."""
    found = []
    for result in report.results:
        if result.case.group == "random":
            continue
        shape = result.case.shape
        rate = report.rate(result, result.best)
        cells = [f"{shape.m},{shape.k},{shape.n}", result.dtype]
        cells += [] if peers else [result.answer.rule]
        cells.append(f"{result.cost:.0f}" if rate is None else f"{rate:.1f}")
        cells.append(f"{result.gain:.2f}")
        for name in peers:
            peer = result.peers.get(name)
            peer_rate = peer and report.rate(result, peer.seconds)
            cells.append(f"{peer_rate:.1f}" if peer_rate else "-")
        if peers:
            cells.append("-" if result.ratio is None else f"{result.ratio:.2f}")
        found.append(cells)
    return found
