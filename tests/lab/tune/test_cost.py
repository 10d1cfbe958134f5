"""Fitting the cost model: the constants behind synthetic times are recovered and stored."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from edgekit.host.compiler.costs.calibration import (
    Calibration,
    calibration_file,
    calibration_of,
    save_calibration,
)
from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.costs.work import AMOUNTS, Amounts, Work
from edgekit.host.errors import InputError
from edgekit.host.lab.tune.cost import (
    OperatorSample,
    accuracy,
    accuracy_elsewhere,
    calibrate,
    rank_correlation,
    samples_of,
)
from edgekit.kb.targets.board import load_board
from tests.support.schedule_graphs import graph_of

_TRUE = (0.5, 2e-6, 3e-4, 0.0, 0.0, 1e-5, 4e-6)
BOARD = load_board("a57")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))


def _samples(noise: float, models: int = 4, op: str = "conv2d") -> list[OperatorSample]:
    random = Random(4)
    found = []
    for i in range(80):
        amounts = (1.0, *(float(random.randrange(1, 10**k)) for k in (7, 4, 3, 5, 5, 6)))
        time = sum(a * t for a, t in zip(amounts, _TRUE, strict=True))
        work = Work("matrix", op, "f32", Amounts(*amounts))
        measured = time * random.uniform(1 - noise, 1 + noise)
        found.append(OperatorSample(f"model {i % models}", f"n{i}", work, measured))
    return found


def test_constants_that_made_the_times_are_found():
    samples = _samples(noise=0.0)
    fitted = calibrate(samples, BOARD, False).families["conv2d/f32"]
    assert fitted == pytest.approx(_TRUE, rel=1e-3, abs=1e-9)
    after = accuracy(samples, CostModel(BOARD, calibrate(samples, BOARD, False)))
    assert after.median_error < 1e-4 and after.rank_correlation == pytest.approx(1.0)
    assert accuracy(samples, CostModel(BOARD)).median_error > 0.5


def test_noise_of_a_tenth_stays_about_that_also_for_models_left_out():
    samples = _samples(noise=0.1)
    unseen = accuracy_elsewhere(samples, BOARD, False)
    assert unseen is not None and unseen.operators == len(samples)
    assert 0.02 < unseen.median_error < 0.15 and unseen.rank_correlation > 0.95
    assert accuracy_elsewhere(_samples(0.1, models=1), BOARD, False) is None


def test_no_constant_is_negative():
    random = Random(1)
    samples = [
        OperatorSample("m", f"n{i}", s.work, random.uniform(1, 9))
        for i, s in enumerate(_samples(0.0))
    ]
    assert min(calibrate(samples, BOARD, False).families["conv2d/f32"]) >= 0


def test_a_family_of_two_operators_is_scaled_with_the_rest():
    samples = [*_samples(0.0), *_samples(0.0, op="fully_connected")[:2]]
    found = calibrate(samples, BOARD, False)
    assert set(found.families) == {"conv2d/f32"}
    work = samples[-1].work
    assumed, scaled = CostModel(BOARD), CostModel(BOARD, found)
    assert scaled.cost_of(work) == pytest.approx(found.scale * assumed.cost_of(work))


def test_another_cluster_keeps_its_proportion_to_the_first():
    board = load_board("rk3588")
    measured = CostModel(board, calibrate(_samples(0.0), board, False))
    work = _samples(0.0)[0].work
    assumed = CostModel(board)
    slower = assumed.cost_of(work, "little") / assumed.cost_of(work, "cpu")
    assert measured.cost_of(work, "little") / measured.cost_of(work, "cpu") > 1.2
    assert slower > 1.2


def test_ranks_of_equal_values_are_shared():
    assert rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 1], [3, 2, 1]) == 0
    assert rank_correlation([1, 2, 2, 3], [1, 2, 2, 3]) == pytest.approx(1)


def test_only_operators_with_a_time_are_samples():
    graph = graph_of(3, [(0, 1), (1, 2)])
    found = samples_of("m", graph, CostModel(BOARD), {"n0": 2.0, "n1": 0.0, "other": 1.0})
    assert [(s.operator, s.measured_us) for s in found] == [("n0", 2.0)]


def test_what_was_measured_is_kept_and_used():
    assert calibration_of(BOARD) is None
    found = calibrate(_samples(0.0), BOARD, True)
    save_calibration(BOARD, found)
    assert calibration_of(BOARD) == found
    assert CostModel.of(BOARD) == CostModel(BOARD, found)
    assert CostModel.of(load_board("a76")).measured is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema": "edgekit.cost/2"}',
        '{"schema": "edgekit.cost/1", "board": "x", "emulated": true, "scale": -1, "families": {}}',
        '{"schema": "edgekit.cost/1", "board": "x", "emulated": false, "scale": 1, '
        '"families": {"conv2d/f32": {"calls": 1}}}',
    ],
)
def test_a_file_that_cannot_be_read_is_named_in_one_line(text):
    save_calibration(BOARD, Calibration("x", False, 1.0, {"a": (1.0,) * len(AMOUNTS)}))
    calibration_file(BOARD).write_text(text)
    with pytest.raises(InputError) as error:
        calibration_of(BOARD)
    assert "edgekit lab tune cost" in str(error.value) and "\n" not in str(error.value)
