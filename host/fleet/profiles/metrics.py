"""What a profile server knows about its boards, as Prometheus' metrics: GET /metrics.

Counters begin with the process, as Prometheus expects. Times are those of each board's newest
batch: it holds quantiles of its samples, from which no histogram can be made.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.device.runtime.exposition import Family, Labels, Number, exposition
from edgekit.host.common.files import atomic_write, locked, private_folder, read_file
from edgekit.host.errors import InputError
from edgekit.host.fleet.profiles.batch import Batch

_MOST_MODELS = 16  # of a board; the one heard of least recently is dropped
_TOKEN = "metrics.token"
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

    def families(self) -> list[Family]:
        """All metrics of boards, sorted by board."""
        with self._lock:
            rows = _Rows()
            for name, board in sorted(self._boards.items()):
                rows.add(name, board)
        return rows.families()


def metrics_text(
    fleet: FleetMetrics, enrolled: int, rollouts: Iterable[tuple[str, str, Mapping[str, int]]]
) -> bytes:
    """The page: what `fleet` knows, the number of enrolled boards, and for each rollout (id, model)
    the boards in each state."""
    states: _Samples = [
        ("", {"rollout": rollout, "model": model, "state": state}, count)
        for rollout, model, counts in rollouts
        for state, count in sorted(counts.items())
    ]
    return exposition(
        [
            _family("boards_enrolled", "gauge", "Boards that have a token.", [("", {}, enrolled)]),
            *fleet.families(),
            _family("rollout_boards", "gauge", "Boards of a rollout, by state.", states),
        ]
    )


class ScrapeToken:
    """The token with which Prometheus asks, in a file of the store that only its owner reads."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / _TOKEN
        private_folder(folder)
        with locked(self.path.with_suffix(".lock")):
            if not self.path.exists():
                self.path.touch(mode=0o600)
                atomic_write(self.path, secrets.token_hex(32).encode() + b"\n")
        try:
            self._token = read_file(self.path).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            self._token = ""
            found = str(error)
        else:
            found = f"{len(self._token)} characters"
        if len(self._token) != 64:
            raise InputError(
                f"{self.path}: expected a token of 64 characters, found {found}; remove the file "
                "to get a new one"
            )

    def matches(self, token: str | None) -> bool:
        return token is not None and hmac.compare_digest(token, self._token)


def _count(board: _Board, batch: Batch) -> None:
    board.position = (batch.spool, batch.sequence)
    board.batches += 1
    board.dropped = max(board.dropped, batch.dropped)
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
