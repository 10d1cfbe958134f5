"""The health check lets every healthy library pass with room to spare, and no wrong kernel."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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

_ROOM = 0.3  # of a tolerance that a healthy library may take
_PLAIN, _WIDEST = x86_boards()[0], x86_boards()[-1]
_FAULTY = sorted({fault.run for fault in FAULTS})


@pytest.mark.slow
@pytest.mark.parametrize(
    "board",
    [pytest.param(_PLAIN, marks=pytest.mark.exhaustive), _WIDEST],
    ids=lambda board: board.name,
)
@pytest.mark.parametrize("path", real_models(), ids=lambda path: path.name)
def test_healthy_models_pass(path: Path, board: BoardProfile, tmp_path: Path) -> None:
    graph, golden = with_golden(str(path))
    folder = built_with(planned(graph, board), board, tmp_path, kernels_folder())
    assert error_by_tolerance(folder, graph, golden) < _ROOM


def _healthy() -> Iterator[Any]:
    """Families on the widest vectors, unless test_right_kernels_pass has them; the rest is
    exhaustive."""
    for family in FAMILIES:
        for board in (_PLAIN, _WIDEST):
            again = board is _PLAIN or family in _FAULTY
            marks = pytest.mark.exhaustive if again else ()
            yield pytest.param(family, board, id=f"{family}-{board.name}", marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "board"), list(_healthy()))
def test_healthy_operators_pass(family: str, board: BoardProfile, tmp_path: Path) -> None:
    graph, golden = with_golden(family)
    folder = built_with(planned(graph, board), board, tmp_path, kernels_folder())
    assert error_by_tolerance(folder, graph, golden) < _ROOM


@functools.cache
def _plan(run: str) -> Plan:
    return planned(with_golden(run)[0], load_board("local"))


@pytest.mark.parametrize("run", _FAULTY)
def test_right_kernels_pass(run: str, tmp_path: Path) -> None:
    graph, golden = with_golden(run)
    folder = built_with(_plan(run), load_board("local"), tmp_path / "built", kernels_folder())
    assert error_by_tolerance(folder, graph, golden) < _ROOM


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_wrong_kernels_do_not(fault: Fault, tmp_path: Path) -> None:
    kernels = with_fault(fault, tmp_path / "kernels")
    graph, golden = with_golden(fault.run)
    folder = built_with(_plan(fault.run), load_board("local"), tmp_path / "built", kernels)
    assert error_by_tolerance(folder, graph, golden) > 1
