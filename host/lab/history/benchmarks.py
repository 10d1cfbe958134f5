"""Learns about a model's methods from benchmarks on a board where the model was tuned."""

from __future__ import annotations

import statistics
from pathlib import Path

from edgekit.device.version import VERSION
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.deploy.release import Benchmark
from edgekit.host.lab.history.operator_history import OperatorMeasurement
from edgekit.host.lab.history.store import History
from edgekit.host.lab.history.tunable_ops import tuning_task_of
from edgekit.kb.targets.board import BoardProfile

_FEWEST = 3  # operators with the default method needed to determine a run's pace


def keep_benchmark(
    model: Path,
    board: BoardProfile,
    options: CompileOptions,
    name: str,
    timing: Benchmark,
    now: str,
) -> int:
    """Adds the times of a model's operators on the board `name` to the history; returns how many.

    A benchmark only runs the compiled methods. The default methods' times are estimated as those
    from tuning on that board, scaled by the pace of this run, which follows from the operators
    that use their default method. Nothing is stored for models that were not tuned.
    """
    with History() as history:
        default = {
            m.operator: m.default_cost
            for m in history.read_operators(board.platform).measurements
            if (m.board, m.model, m.threads) == (name, model.stem, timing.threads)
            and (m.unit, m.source, m.kit_version) == ("seconds", "tuner", VERSION)
        }
        if not default:
            return 0
        took = {o.name: o.median_us * 1e-6 for o in timing.operators if o.median_us > 0}
        known = [
            s
            for s in tuning_task_of(model, board, options, timing.threads).operators
            if s.name in default and s.cost_in(took) > 0
        ]
        paces = [s.cost_in(took) / default[s.name] for s in known if s.current == s.default]
        if len(paces) < _FEWEST:
            return 0
        pace = statistics.median(paces)
        return history.add_operators(
            OperatorMeasurement(
                board=name,
                platform=board.platform,
                model=model.stem,
                operator=s.name,
                form=s.form.name,
                threads=timing.threads,
                shape=s.form.shape,
                method=s.current,
                cost=s.cost_in(took),
                default_cost=default[s.name] * pace,
                when=now,
                kit_version=VERSION,
                source="benchmark",
            )
            for s in known
            if s.current != s.default
        )
