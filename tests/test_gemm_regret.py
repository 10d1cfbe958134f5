"""scripts/gemm_regret.py: what it keeps of a search is used again, and completed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from edgekit.host.lab.history.store import History
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.host.simulator.products import PartsAsked
from edgekit.host.simulator.run import SimulatedCost
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import load_board

_SCRIPTS = Path(__file__).parents[1] / "scripts"
sys.path.insert(0, str(_SCRIPTS))
gemm_regret = importlib.import_module("gemm_regret")
sys.path.remove(str(_SCRIPTS))

_BOARD = load_board("rpi4")
_PRODUCTS = [MatrixProduct(GemmShape(24, 40, 56), "s8"), MatrixProduct(GemmShape(9, 64, 33), "s8")]


class _Timer:
    """Each method takes as many cycles as its tile has elements; counts what was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def part_costs(self, asked: Sequence[PartsAsked]) -> list[list[SimulatedCost]]:
        self.asked += sum(len(parts) for _, parts in asked)
        return [[SimulatedCost(how.mr * how.nr, 1, {}) for _, how in parts] for _, parts in asked]


def _regrets(path: Path, timer: _Timer) -> list[dict[str, float]]:
    with History(path) as history:
        found: list[dict[str, float]] = gemm_regret.regrets(
            gemm_regret.Searches(_BOARD, history, timer), _PRODUCTS
        )
    return found


def test_fixed_methods_that_a_kept_search_lacks_are_asked_for(tmp_path):
    """They change with the rule that makes them."""
    path, timer = tmp_path / "regret.sqlite", _Timer()
    first = _regrets(path, timer)
    with History(path) as history:
        kept = history.read(_BOARD.platform).measurements
    changed = tmp_path / "changed.sqlite"
    with History(changed) as history:
        history.add(
            [replace(row, method=replace(row.method, nc=row.method.nc + 64)) for row in kept]
        )
    assert _regrets(changed, timer) == first


def test_what_was_searched_is_not_searched_again(tmp_path):
    path, timers = tmp_path / "regret.sqlite", (_Timer(), _Timer())
    first, again = (_regrets(path, timer) for timer in timers)
    assert first == again
    assert 2 * timers[1].asked < timers[0].asked, "only the best methods run once more"
