"""Costs of a model's operators: measured on a board, or estimated for its core."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from edgekit.host.compiler.driver import build_graph, prepare_graph
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.deploy.board import Board
from edgekit.host.deploy.bundle import Bundle, build_bundle, sign_bundle
from edgekit.host.deploy.release import Benchmark
from edgekit.host.errors import InputError
from edgekit.host.lab.history.tunable_ops import WORTH, TuningTask
from edgekit.host.lab.tune.operators import ModelCosts
from edgekit.host.simulator.emulator import find_emulator
from edgekit.host.simulator.estimate_cache import recall, remember
from edgekit.host.simulator.model import ModelEstimate, estimate_model
from edgekit.host.simulator.target import target_of

_TURNS = 3
_TURN_MS = 300.0
_FEWEST, _MOST = 5, 2000  # runs per turn
_TRIAL = 5  # runs to determine the duration of one
_ESTIMATE_SECONDS = 3600.0
LEAST_SECONDS = 5e-7  # half a microsecond is a few ticks of an ARM counter


class MeasuredTimes:
    """Times on a board, alternating with the default methods, without changing what is
    deployed there. Must be closed."""

    unit, source, per_ms = "seconds", "tuner", 1e-3
    worth = WORTH

    def __init__(self, subject: TuningTask, device: Board, least: float = LEAST_SECONDS) -> None:
        """`least`: seconds of an operator that are not lost in noise."""
        self._subject, self._device, self.least = subject, device, least
        self._stack = ExitStack()
        self._default: Board | None = None
        self._runs = _TRIAL

    def close(self) -> None:
        self._stack.close()

    def measure(
        self, table: KnowledgeBase, default: KnowledgeBase
    ) -> tuple[ModelCosts, ModelCosts]:
        if self._default is None:
            self._default = self._stack.enter_context(self._device.temporary())
            self._default.deploy(_build_bundle(self._subject, default))
            milliseconds = max(self._bench_board(self._default).median_ms, _TURN_MS / _MOST)
            self._runs = max(int(_TURN_MS / milliseconds), _FEWEST)
        with self._device.temporary() as place:
            place.deploy(_build_bundle(self._subject, table))
            turns = [
                (self._bench_board(place), self._bench_board(self._default)) for _ in range(_TURNS)
            ]
        ours, usual = zip(*turns, strict=True)
        return _minimum_times(ours), _minimum_times(usual)

    def _bench_board(self, place: Board) -> Benchmark:
        return place.bench(threads=self._subject.threads, count=self._runs)


class EstimatedTimes:
    """Cycles of simulated time."""

    unit, source = "cycles", "estimate"
    least = 1.0
    # Methods that gained 2% had an estimated cost of up to 1.14 (A53, A55, A76; 1 and 4 threads).
    worth = 1.15

    def __init__(
        self,
        subject: TuningTask,
        tell: Callable[[str], None],
        estimate: Callable[[KnowledgeBase], ModelEstimate] | None = None,
    ) -> None:
        """`estimate` estimates the model compiled with a table, by default with the emulator.

        Raises InputError if there is no model of the board's core, or no emulator.
        """
        self._subject = subject
        self._usual: ModelCosts | None = None
        self._target = target_of(subject.board)
        self.per_ms = 1e3 * self._target.core.clock_mhz
        if estimate is None:
            find_emulator(subject.board.arch, tell)
        self._estimate = estimate or self._estimate_or_recall

    def measure(
        self, table: KnowledgeBase, default: KnowledgeBase
    ) -> tuple[ModelCosts, ModelCosts]:
        """Estimates the default only once, since the result is deterministic."""
        times = self._estimate_times(table)
        self._usual = self._usual or self._estimate_times(default)
        return times, self._usual

    def _estimate_times(self, table: KnowledgeBase) -> ModelCosts:
        found = self._estimate(table)
        if not found.operators:
            raise InputError(
                f"{self._subject.name}: expected operators that run one after the other on "
                f"{self._subject.board.name}, found some that overlap; tune it on the board itself"
            )
        by_name = {o.spec.name: float(o.cost.cycles) for o in found.operators}
        return ModelCosts(by_name, float(found.cost.cycles))

    def _estimate_or_recall(self, table: KnowledgeBase) -> ModelEstimate:
        """The estimate of the model compiled with a table, which may be in the cache."""
        bundle, board = _build_bundle(self._subject, table), self._subject.board
        manifest, threads = bundle.manifest, self._subject.threads
        found = recall(manifest.id, board, threads)
        if found is None:
            found = estimate_model(manifest, bundle.files, self._target, threads, _ESTIMATE_SECONDS)
            remember(manifest.id, board, threads, found)
        return found


def _build_bundle(subject: TuningTask, table: KnowledgeBase) -> Bundle:
    s = subject
    made = prepare_graph(s.source, s.board, s.options, table)
    artifact = build_graph(made, s.digest, s.board, None, s.options, None, table)
    return sign_bundle(build_bundle(artifact, s.board))


def _minimum_times(found: tuple[Benchmark, ...]) -> ModelCosts:
    """The minimum of several medians, since disturbances only ever add time."""
    names = {o.name for each in found for o in each.operators}
    seconds = {
        name: min(o.median_us for each in found for o in each.operators if o.name == name) * 1e-6
        for name in names
    }
    return ModelCosts(seconds, min(each.median_ms for each in found) * 1e-3)
