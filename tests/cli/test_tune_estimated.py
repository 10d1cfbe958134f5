"""Methods tuned on a virtual board are shown with their estimated time on a real core."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.device.runtime.arrays.sparse_input import Csr
from edgekit.device.runtime.arrays.sparse_table import Key, SpmvRow
from edgekit.host.cli import tune, tune_spmv
from edgekit.host.cli.tune_estimated import (
    MethodEstimate,
    estimate_methods,
    estimate_settings,
)
from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.errors import InputError
from edgekit.host.lab.bench.spmv_matrices import open_matrix
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.host.lab.tune.spmv import TunedMatrix
from edgekit.host.lab.tune.tuner import BestMethod, TuningOutcome
from edgekit.host.simulator.run import SimulatedCost
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import BoardProfile, load_board

_HOW = Method(48, 64, 32, pack_a=False, pack_b=False, mr=4, nr=8)
_BEST = BestMethod(MatrixProduct(GemmShape(48, 64, 32)), _HOW, 0.5)


class _Timer:
    """1.8 million cycles for the tuned method, twice as many for the default."""

    def __init__(self, target: object, seconds: float) -> None:
        pass

    def costs(
        self, product: object, methods: tuple[Method, Method]
    ) -> tuple[SimulatedCost, SimulatedCost]:
        assert methods[0] == _HOW
        return SimulatedCost(1_800_000, 1, {}), SimulatedCost(3_600_000, 1, {})


_OUTCOME = TuningOutcome((_BEST,), 1, 0, finished=True, refused=())


def _shown_methods(capfd: Any, as_json: bool, timer_of: Any = _Timer) -> str:
    """What the command prints for a virtual board."""

    def estimate(board: BoardProfile, best: Sequence[BestMethod]) -> list[MethodEstimate]:
        return estimate_methods(board, best, lambda _: True, timer_of)

    tune.show_tuned("a72", load_board("a72"), "instructions", _OUTCOME, estimate, as_json)
    return str(capfd.readouterr().out)


def test_the_best_methods_are_shown_with_their_estimates(capfd: Any) -> None:
    out = _shown_methods(capfd, as_json=False)
    assert "estimated µs on a72" in out
    assert "1000.0" in out and "2000.0" in out and "± " in out
    (found,) = json.loads(_shown_methods(capfd, as_json=True))["estimates"]
    assert found["estimated_us"] == 1000.0 and found["default_estimated_us"] == 2000.0
    assert found["validated"] and found["error"]["median_percent"] > 0


def test_an_estimate_that_fails_fails_no_tuning(capfd: Any) -> None:
    def fails(*_: object) -> None:
        raise InputError("no")

    assert json.loads(_shown_methods(capfd, as_json=True, timer_of=fails))["estimates"] == []


def test_an_estimate_that_would_take_long_is_left_out() -> None:
    assert estimate_methods(load_board("a72"), [_BEST], lambda _: False, _Timer) == []


def _costs(_: object, matrix: Csr, forms: Sequence[BlockSettings], *more: object) -> Any:
    assert matrix.shape == (400, 400) and [how.width for how in forms] == [16, 8]
    return SimulatedCost(1_800_000, 1, {}), SimulatedCost(3_600_000, 1, {})


def _shown_settings(capfd: Any, as_json: bool) -> str:
    """Likewise, for a matrix whose settings take half the cycles of its rule's."""
    board, name = load_board("a72"), "banded:400:3"
    row = SpmvRow(Key("f32", 0, 0, "even", "narrow"), BlockSettings(16), name, 0.5)
    tuned = TunedMatrix(row, BlockSettings(8), 12)
    matrix = open_matrix(name, "float32")
    estimates = estimate_settings(board, tuned, matrix, 1, lambda _: True, _costs)
    tune_spmv.show_tuned(board, Path("t.json"), [tuned], estimates, as_json)
    return str(capfd.readouterr().out)


def test_settings_of_sparse_matrices_are_shown_with_their_estimates(capfd: Any) -> None:
    out = _shown_settings(capfd, as_json=False)
    assert "estimated µs on a72" in out and "1000.0" in out and "± " in out
    (found,) = json.loads(_shown_settings(capfd, as_json=True))["estimates"]
    assert found["matrix"] == "banded:400:3"
    assert found["estimated_us"] == 1000.0 and found["default_estimated_us"] == 2000.0
