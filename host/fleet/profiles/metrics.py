"""What a profile server knows about its boards, as Prometheus' metrics: GET /metrics.

Counters begin with the process, as Prometheus expects. Times are those of each board's newest
batch: it holds quantiles of its samples, from which no histogram can be made.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from edgekit.device.runtime.exposition import Family, Labels, Number
from edgekit.host.fleet.profiles.batch import Batch

_MOST_MODELS = 16  # of a board; the one heard of least recently is dropped
_Samples = list[tuple[str, Labels, Number]]


@dataclass
class _Board:
    """One board since this process began; `newest` has the last batch of each model."""

    seen: float = 0.0
    position: tuple[str, int] = ("", -1)  # spool and sequence number of its newest batch
    batches: int = 0
    refused: int = 0
    dropped: int = 0
    newest: dict[str, Batch] = field(default_factory=dict)
    inferences: Counter[str] = field(default_factory=Counter)
    samples: Counter[str] = field(default_factory=Counter)


class FleetMetrics:
    """Collects what boards send; safe to use from threads. `now` returns seconds since 1970."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._boards: dict[str, _Board] = {}

    def remember(self, board: str, last: float) -> None:
        """Notes when a board was heard of before this process began."""
        with self._lock:
            found = self._boards.setdefault(board, _Board())
            found.seen = max(found.seen, last)

    def take(self, board: str, batches: Iterable[Batch], refused: int = 0) -> None:
        """Counts batches that arrived, oldest first; those that arrive again are not counted."""
        with self._lock:
            found = self._boards.setdefault(board, _Board())
            found.seen = self._now()
            found.refused += refused
            for batch in batches:
                spool, sequence = found.position
                if batch.spool != spool or batch.sequence > sequence:
                    _count(found, batch)

    def boards(self, enrolled: Iterable[str]) -> list[tuple[str, float, Sequence[Batch]]]:
        """Name, time of the last message (0 if there was none) and the newest batch of each model,
        the last one last, of enrolled boards."""
        with self._lock:
            known = [(name, self._boards.get(name, _Board())) for name in enrolled]
            return [(name, board.seen, list(board.newest.values())) for name, board in known]

    def families(self) -> list[Family]:
        """All metrics of boards, sorted by board."""
        with self._lock:
            rows = _Rows()
            for name, board in sorted(self._boards.items()):
                rows.add(name, board)
        return rows.families()


def fleet_families(
    fleet: FleetMetrics, enrolled: int, rollouts: Iterable[tuple[str, str, Mapping[str, int]]]
) -> list[Family]:
    """What `fleet` knows, the number of enrolled boards, and for each rollout (id, model) the
    boards in each state."""
    states: _Samples = [
        ("", {"rollout": rollout, "model": model, "state": state}, count)
        for rollout, model, counts in rollouts
        for state, count in sorted(counts.items())
    ]
    enrolled_boards: _Samples = [("", {}, enrolled)]
    return [
        _family("boards_enrolled", "gauge", "Boards that have a token.", enrolled_boards),
        *fleet.families(),
        _family("rollout_boards", "gauge", "Boards of a rollout, by state.", states),
    ]


def _count(board: _Board, batch: Batch) -> None:
    board.position = (batch.spool, batch.sequence)
    board.batches += 1
    board.dropped = max(board.dropped, batch.dropped)
    if batch.field is not None:
        return  # its times are those of the float model
    model = batch.subject.model
    board.newest.pop(model, None)  # the newest is last
    board.newest[model] = batch
    board.inferences[model] += batch.inferences
    board.samples[model] += batch.whole.samples
    if len(board.newest) > _MOST_MODELS:
        oldest = next(iter(board.newest))
        del board.newest[oldest], board.inferences[oldest], board.samples[oldest]


def _family(name: str, kind: str, about: str, samples: _Samples) -> Family:
    return Family(f"edgekit_{name}", kind, about, tuple(samples))


class _Rows:
    """The samples of each metric, collected board by board."""

    def __init__(self) -> None:
        self._seen: _Samples = []
        self._batches: _Samples = []
        self._refused: _Samples = []
        self._dropped: _Samples = []
        self._times: _Samples = []
        self._inferences: _Samples = []
        self._heat: _Samples = []
        self._throttled: _Samples = []
        self._releases: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, board: _Board) -> None:
        of: Labels = {"board": name}
        self._seen.append(("", of, board.seen))
        self._batches.append(("", of, board.batches))
        self._refused.append(("", of, board.refused))
        self._dropped.append(("", of, board.dropped))
        for model, batch in board.newest.items():
            release = batch.subject.release
            self._releases[model, release] += 1
            own = {**of, "model": model}
            self._inferences.append(("", own, board.inferences[model]))
            own = {**own, "release": release}
            whole = batch.whole
            for quantile, ns in (
                ("0.5", whole.median_ns),
                ("0.9", whole.p90_ns),
                ("1", whole.max_ns),
            ):
                self._times.append(("", {**own, "quantile": quantile}, ns / 1e9))
            self._times.append(("_count", own, board.samples[model]))
        if board.newest:
            around = list(board.newest.values())[-1].environment
            if around.temperature_c is not None:
                self._heat.append(("", of, around.temperature_c))
            if around.throttled is not None:
                self._throttled.append(("", of, int(around.throttled)))

    def families(self) -> list[Family]:
        running: _Samples = [
            ("", {"model": model, "release": release}, count)
            for (model, release), count in sorted(self._releases.items())
        ]
        return [
            _family(
                "board_last_seen_timestamp_seconds",
                "gauge",
                "When the board was last heard of.",
                self._seen,
            ),
            _family("batches_total", "counter", "Batches of profiles received.", self._batches),
            _family(
                "batches_refused_total", "counter", "Batches that cannot be read.", self._refused
            ),
            _family(
                "batches_dropped_total",
                "counter",
                "Batches that the board dropped because its spool was full.",
                self._dropped,
            ),
            _family(
                "release_boards", "gauge", "Boards that run the release of the model.", running
            ),
            _family("inferences_total", "counter", "Inferences.", self._inferences),
            _family(
                "inference_seconds",
                "summary",
                "Time of an inference, of the board's newest batch.",
                self._times,
            ),
            _family("board_temperature_celsius", "gauge", "Temperature of the core.", self._heat),
            _family(
                "board_throttled", "gauge", "Whether the clock is lowered by heat.", self._throttled
            ),
        ]
