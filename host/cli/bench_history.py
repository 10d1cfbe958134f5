"""Adds results of `edgekit bench model` and `edgekit deploy` to the tuning history."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.host.errors import EdgekitError

if TYPE_CHECKING:
    from edgekit.host.compiler.options import CompileOptions
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.release import Benchmark
    from edgekit.kb.targets.board import BoardProfile

KeepTimes = Callable[["Path", "BoardProfile", "CompileOptions", str, "Benchmark", str], int]
_LOG = logging.getLogger(__name__)


def keep_in_history(
    model: Path,
    device: Board,
    options: CompileOptions,
    timing: Benchmark,
    keep: KeepTimes | None = None,
) -> None:
    """Records the operator and order times of a tuned model, unless the run was noisy; never fails.

    `keep` records the operators' times and returns their number (default: `keep_benchmark`).
    """
    from edgekit.host.common.paths import data_folder

    if not (data_folder() / "history.sqlite").exists():
        return
    from edgekit.host.deploy.release import why_noisy
    from edgekit.host.lab.history.benchmarks import keep_benchmark
    from edgekit.host.lab.history.order_benchmarks import keep_orders
    from edgekit.kb.targets.board import load_board

    if why := why_noisy(timing):
        _LOG.info("not in the history: %s on %s: %s", model.name, device.name, why)
        return
    now = datetime.now(UTC).isoformat(timespec="seconds")
    board = load_board(device.profile)
    try:
        count = (keep or keep_benchmark)(model, board, options, device.name, timing, now)
        orders = keep_orders(model, board, options, device.name, timing, now)
    except EdgekitError as error:  # the main task is already done
        _LOG.info("not in the history: %s on %s: %s", model.name, device.name, error)
        return
    kept = "%d operators, %d orders of %s on %s are in the history"
    _LOG.info(kept, count, orders, model.name, device.name)
