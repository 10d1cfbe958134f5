"""The health check passes every healthy library with margin, and rejects every faulty kernel."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from edgekit.host.compiler.lowering.plan import Plan
from edgekit.host.compiler.toolchain.zig import kernels_folder
from edgekit.kb.targets.board import BoardProfile, load_board
from tests.support.golden_runs import (
    built_with,
    error_by_tolerance,
    planned,
    real_models,
    with_fault,
    with_golden,
)
from tests.support.kernel_faults import FAULTS, Fault
from tests.support.kernel_runs import x86_boards
from tests.support.op_graphs import FAMILIES
from tests.support.places import few_or_all

pytestmark = pytest.mark.slow

_ROOM = 0.3  # share of the tolerance that a healthy library may use
_PLAIN, _WIDEST = x86_boards()[0], x86_boards()[-1]
_FAULTY = sorted({fault.run for fault in FAULTS})
_MODELS = {path.name: path for path in real_models()}
_FEW = ("face_detection_short_range.tflite", "okay_nabu.tflite", "minilm_l6_linear_layers.onnx")


@pytest.mark.parametrize(
    "board",
    [pytest.param(_PLAIN, marks=pytest.mark.exhaustive), _WIDEST],
    ids=lambda board: board.name,
)
@pytest.mark.parametrize("name", few_or_all(_MODELS, _FEW))
def test_healthy_models_pass(name: str, board: BoardProfile, tmp_path: Path) -> None:
    graph, golden = with_golden(str(_MODELS[name]))
    folder = built_with(planned(graph, board), board, tmp_path, kernels_folder())
    assert error_by_tolerance(folder, graph, golden) < _ROOM


@pytest.mark.exhaustive
@pytest.mark.parametrize("board", [_PLAIN, _WIDEST], ids=lambda board: board.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_healthy_operators_pass(family: str, board: BoardProfile, tmp_path: Path) -> None:
    graph, golden = with_golden(family)
    folder = built_with(planned(graph, board), board, tmp_path, kernels_folder())
    assert error_by_tolerance(folder, graph, golden) < _ROOM


@functools.cache
def _plan(run: str) -> Plan:
    return planned(with_golden(run)[0], load_board("local"))


@pytest.mark.parametrize("run", few_or_all(_FAULTY, _FAULTY[::8]))
def test_right_kernels_pass(run: str, tmp_path: Path) -> None:
    graph, golden = with_golden(run)
    folder = built_with(_plan(run), load_board("local"), tmp_path / "built", kernels_folder())
    assert error_by_tolerance(folder, graph, golden) < _ROOM


# Tests of kernels in tests/cross, here or with sanitizers find the others by operators of their
# family.
_FOUND_HERE = (
    "hard_swish_of_5",
    "last_of_a_dot_product",
    "logarithm_cut_off",
    "probabilities_not_normal",
)
_SOME = [
    fault
    for number, fault in enumerate(FAULTS)
    if fault.name in _FOUND_HERE or number % (12 if fault.run in FAMILIES else 3) == 0
]


@pytest.mark.parametrize("fault", few_or_all(FAULTS, _SOME), ids=lambda fault: fault.name)
def test_wrong_kernels_do_not(fault: Fault, tmp_path: Path) -> None:
    kernels = with_fault(fault, tmp_path / "kernels")
    graph, golden = with_golden(fault.run)
    folder = built_with(_plan(fault.run), load_board("local"), tmp_path / "built", kernels)
    assert error_by_tolerance(folder, graph, golden) > 1
