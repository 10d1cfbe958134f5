"""A profile store of a small model on several boards, and explanations of its releases."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from edgekit.device.runtime.agent.batch import (
    Batch,
    Environment,
    MeasuredRelease,
    OperatorSpread,
    Spread,
    batch_bytes,
)
from edgekit.host.deploy.explanations import remember
from edgekit.host.fleet.profiles import ProfileStore

OLD, NEW = "a" * 16, "b" * 16
OPERATORS = (("first", "conv2d", 400), ("side", "pad", 50), ("last", "conv2d", 100))
EDGES = (("first", "side"), ("first", "last"), ("side", "last"))


def explanation(model: str = "tiny", operators: Sequence[tuple[str, str, int]] = OPERATORS) -> Any:
    """The compiler's explanation; the padding operator has no choice of kernels."""
    method = {"family": "in_place", "precision": "f32", "mr": 6, "nr": 8, "split": "m"}
    other = {"method": {**method, "mr": 4}, "band_rows": None, "relative_cost": 1.25}
    decided = {
        "method": method,
        "band_rows": None,
        "rule": "analytic",
        "why": "lowest cost",
        "runner_up": other,
    }
    plain = dict.fromkeys(decided)
    starts = itertools.accumulate((cost for _, _, cost in operators), initial=0)
    return {
        "model": model,
        "operators": [
            {
                "name": name,
                "op": op,
                "unit": "cpu",
                "kernel": f"ek_{op}",
                **(decided if op == "conv2d" else plain),
                "members": [],
                "bytes": 4096,
                "cost_us": cost,
                "start_us": start,
            }
            for (name, op, cost), start in zip(operators, starts, strict=False)
        ],
        "edges": [list(edge) for edge in EDGES if {*edge} <= {name for name, _, _ in operators}],
        "memory": {"arena_bytes": 4096, "weights_bytes": 1024},
    }


def fill_store(
    folder: Path | None = None,
    model: str = "tiny",
    boards: Sequence[str] = ("east", "north", "west"),
    operators: Sequence[tuple[str, str, int]] = OPERATORS,
    batches: int = 8,
    releases: tuple[str, str] = (OLD, NEW),
    board_type: str = "a57",
) -> ProfileStore:
    """Two releases, the new one taking four fifths of the old one's time. Each board is a tenth
    slower than the one before, and the last one is throttled. The old release has no
    explanation."""
    now = [1.79e9]
    store = ProfileStore(folder, now=lambda: now[0])
    for release, slowness in zip(releases, (1250, 1000), strict=True):
        for place, board in enumerate(boards):
            files = []
            for number in range(batches):
                slow = slowness * (1 + 0.1 * place) * (1 + 0.01 * number)
                files.append(
                    _batch(release, board, number, slow, model, operators, boards[-1], board_type)
                )
            store.add(board, b"".join(files))
        now[0] += 7 * 86400
    remember(releases[1], explanation(model, operators))
    return store


def fill_fleet(count: int, model: str = "tiny") -> ProfileStore:
    """Boards pi-0000 onward, each a hundredth slower than the one before, in cycles of five. In
    every twenty, number 3 takes 1.6 times the expected time, 7 still runs the old release, and 12
    has not reported for three days."""
    now = [1.79e9]
    store = ProfileStore(now=lambda: now[0])
    arrivals = {3: (NEW, 7, 1600), 7: (OLD, 7, 1250), 12: (NEW, 4, 1000)}
    for place in range(count):
        release, days, slowness = arrivals.get(place % 20, (NEW, 7, 1000))
        board = f"pi-{place:04}"
        for sent, when, slow in ((OLD, 0, 1250), (release, days, slowness)):
            now[0] = 1.79e9 + 86400 * when
            slow *= 1 + 0.01 * (place % 5)
            batch = _batch(sent, board, when, slow, model, OPERATORS, "", "a57")
            store.add(board, batch)
    remember(NEW, explanation())
    return store


def _batch(
    release: str,
    board: str,
    number: int,
    slow: float,
    model: str,
    operators: Sequence[tuple[str, str, int]],
    throttled: str,
    board_type: str,
) -> bytes:
    spreads = [
        OperatorSpread(name, op, f"ek_{op}", 32, *(int(f * us * slow) for f in (1, 1.1, 1.5)))
        for name, op, us in operators
    ]
    total = sum(spread.median_ns for spread in spreads)
    spool = board.encode().hex().ljust(32, "0")[:32]
    sequence = number + 1000 * int(release, 16) % (1 << 40)
    batch = Batch(
        uuid=hashlib.md5(f"{model} {release} {board} {number}".encode()).hexdigest(),
        boot="b" * 32,
        began_ns=number,
        ended_ns=number + 1,
        clock=0.0,
        lost=0,
        subject=MeasuredRelease(release, model, "1" * 64, board_type, "0.1.0", 0, 1),
        inferences=1000,
        every=10.0,
        whole=Spread(32, total, int(1.1 * total), 2 * total),
        operators=tuple(spreads),
        environment=Environment(
            "", "schedutil", 1500.0, 50.0, board == throttled, 0.1, 0.2, 1 << 28, 1 << 22
        ),
    )
    return batch_bytes(batch, spool, sequence, 0, 0)


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the text of its scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self._inside = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag
        if tag in self.texts:
            self.texts[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in self.texts:
            self.texts[self._inside][-1] += data

    @property
    def tags(self) -> list[str]:
        return [tag for tag, _ in self.found]


def data_of(page: str) -> Any:
    """Parse the report data embedded in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])
