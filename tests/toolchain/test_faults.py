"""The health check lets every healthy library pass with room to spare, and no wrong kernel."""

from __future__ import annotations

import functools
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.host.compiler import units_of
from edgekit.host.lower.plan import Plan
from edgekit.host.paths import cache_folder
from edgekit.host.toolchain.zig import Toolchain, kernels_folder
from edgekit.kb.board import BoardProfile, load_board
from tests.support.golden_runs import error_by_tolerance, planned, real_models, with_golden
from tests.support.kernel_faults import FAULTS, Fault
from tests.support.kernel_runs import x86_boards
from tests.support.op_graphs import FAMILIES

_ROOM = 0.3  # of a tolerance that a healthy library may take
_ENDS = (x86_boards()[0], x86_boards()[-1])


def _built(plan: Plan, board: BoardProfile, folder: Path, kernels: Path) -> Path:
    """The library of a plan with kernels from another folder."""
    units = [
        u
        if isinstance(u.source, str)
        else replace(u, source=kernels / Path(u.source).relative_to(kernels_folder()))
        for u in units_of(plan, board)
    ]
    library = Toolchain(board, cache_folder() / "objects").build(units)
    folder.mkdir(exist_ok=True)
    (folder / "model.so").write_bytes(library)
    (folder / "weights.bin").write_bytes(plan.lowered.weights)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("board", _ENDS, ids=lambda board: board.name)
@pytest.mark.parametrize("path", real_models(), ids=lambda path: path.name)
def test_healthy_models_pass(path: Path, board: BoardProfile, tmp_path: Path) -> None:
    graph, golden = with_golden(str(path))
    folder = _built(planned(graph, board), board, tmp_path, kernels_folder())
    assert error_by_tolerance(folder, graph, golden) < _ROOM


@pytest.mark.slow
@pytest.mark.parametrize("board", _ENDS, ids=lambda board: board.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_healthy_operators_pass(family: str, board: BoardProfile, tmp_path: Path) -> None:
    graph, golden = with_golden(family)
    folder = _built(planned(graph, board), board, tmp_path, kernels_folder())
    assert error_by_tolerance(folder, graph, golden) < _ROOM


@functools.cache
def _plan(run: str) -> Plan:
    return planned(with_golden(run)[0], load_board("local"))


@pytest.mark.parametrize("run", sorted({fault.run for fault in FAULTS}))
def test_right_kernels_pass(run: str, tmp_path: Path) -> None:
    graph, golden = with_golden(run)
    folder = _built(_plan(run), load_board("local"), tmp_path / "built", kernels_folder())
    assert error_by_tolerance(folder, graph, golden) < _ROOM


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_wrong_kernels_do_not(fault: Fault, tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    shutil.copytree(kernels_folder(), kernels)
    text = (kernels / fault.file).read_text()
    assert fault.old in text, f"{fault.file} has changed: adapt the fault"
    (kernels / fault.file).write_text(text.replace(fault.old, fault.new))
    graph, golden = with_golden(fault.run)
    folder = _built(_plan(fault.run), load_board("local"), tmp_path / "built", kernels)
    assert error_by_tolerance(folder, graph, golden) > 1
