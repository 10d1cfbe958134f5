"""Settings of sparse matrices for a board that is not connected: searched in simulated time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.device.runtime.arrays.sparse_input import Csr
from edgekit.host.errors import InputError
from edgekit.host.lab.bench.spmv_matrices import TUNED, open_matrix
from edgekit.host.lab.tune.estimating import FormEstimator
from edgekit.host.lab.tune.spmv import SharedMatrix, shared_row, tune_matrix
from edgekit.host.simulator.run import SimulatedCost
from edgekit.host.simulator.sparse import StoredForm
from edgekit.host.simulator.target import target_of
from edgekit.kb.targets.board import load_board

_TARGET = target_of(load_board("rpi4"))
_SMALL, _LARGE = "power:300:8", "banded:30000:3"
Cycles = Callable[[BlockSettings, int], int]


class _Core:
    """Counts what runs on a core whose cycles depend on the settings and threads."""

    def __init__(self, cycles: Cycles) -> None:
        self.cycles, self.asked = cycles, 0

    def __call__(
        self, matrix: Csr, forms: Sequence[BlockSettings], threads: int
    ) -> list[StoredForm]:
        del matrix
        self.asked += len(forms)
        costs = (SimulatedCost(self.cycles(how, threads), 1, {}) for how in forms)
        return [StoredForm(4, 1.5, 100, cost) for cost in costs]


def _tuned(name: str, cycles: Cycles) -> SharedMatrix:
    measurer, matrix = FormEstimator(_TARGET, _Core(cycles)), open_matrix(name)
    return SharedMatrix(measurer, matrix, tune_matrix(measurer, _TARGET.board, "m", matrix))


def test_the_search_finds_what_takes_less_simulated_time_and_runs_nothing_twice() -> None:
    core = _Core(lambda how, _: 1000 if how.index_bytes == 2 else 1500)
    measurer = FormEstimator(_TARGET, core)
    tuned = tune_matrix(measurer, _TARGET.board, "m", open_matrix(_SMALL))
    assert tuned.row.settings == replace(tuned.rule, index_bytes=2)
    assert tuned.row.by_rule and tuned.row.ratio == pytest.approx(2 / 3, abs=1e-4)
    assert core.asked == tuned.tried + 1  # and the rule's
    seconds = measurer.measure([tuned.rule]).forms[0].median
    assert seconds == pytest.approx(_TARGET.milliseconds(1500) / 1e3)
    assert core.asked == tuned.tried + 1


def test_a_gain_within_the_noise_makes_no_row() -> None:
    assert _tuned(_SMALL, lambda how, _: 990 if how.index_bytes == 2 else 1000).tuned.row == (
        shared_row([_tuned(_SMALL, lambda *_: 1000)])
    )


def test_settings_that_harm_a_matrix_of_the_same_key_are_not_shared() -> None:
    gains = _tuned(_SMALL, lambda how, _: 500 if how.index_bytes == 2 else 1000)
    same = _tuned(_SMALL, lambda *_: 1000)
    harmed = _tuned(_SMALL, lambda how, _: 1100 if how.index_bytes == 2 else 1000)
    row = shared_row([gains, same])
    assert row.settings == gains.tuned.row.settings
    assert row.ratio == pytest.approx(0.5**0.5, abs=1e-4)
    assert shared_row([gains, harmed]).settings is None


@pytest.mark.parametrize(("matrix", "kept"), [(_SMALL, True), (_LARGE, False)])
def test_large_matrices_must_not_lose_on_several_threads(matrix: str, kept: bool) -> None:
    """Small ones run on one thread, however many are asked for."""

    def cycles(how: BlockSettings, threads: int) -> int:
        return 1000 if how.window != 512 else 500 if threads == 1 else 2000

    assert (shared_row([_tuned(matrix, cycles)], (1, 4)).settings is not None) == kept


def test_pruned_blocks_are_whole() -> None:
    matrix = open_matrix("blocks:32:64:4:0.25")
    assert matrix.shape == (32, 64) and len(matrix.data) == 32 * 64 // 4
    dense = np.zeros(matrix.shape, bool)
    dense[np.repeat(np.arange(32), np.diff(matrix.indptr)), matrix.indices] = True
    blocks = dense.reshape(8, 4, 16, 4).sum(axis=(1, 3))
    assert set(np.unique(blocks)) == {0, 16}
    with pytest.raises(InputError, match="npz file, or a class such as"):
        open_matrix("blocks:32:64:4")


def test_the_matrices_of_a_search_are_distinct() -> None:
    assert len(set(TUNED)) == len(TUNED) >= 40
