"""SciPy beside our sparse products on a board's core: times, versions, and wrong products."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime.arrays.sparse_input import Csr
from edgekit.host.errors import InputError
from edgekit.host.lab.bench.board_peers import Tools
from edgekit.host.lab.bench.spmv_matrices import open_matrix
from edgekit.host.lab.bench.spmv_on_core import SparsePeer, estimate_scipy
from edgekit.host.simulator.root import SystemRoot
from edgekit.host.simulator.target import target_of
from edgekit.kb.targets.board import load_board
from tests.support.fake_emulator import write_emulator

_RPI4 = target_of(load_board("rpi4"))
_CYCLES = 3_000_000


def _tools(tmp_path: Path, factor: float) -> Tools:
    """The guest's product is `factor` times the right one."""
    root = SystemRoot("aarch64", tmp_path / "root", "3.11")

    def run(_: Any, __: Any, job: Any) -> Any:
        rows, columns, folder = *map(int, job.command[3:5]), Path(job.command[5])
        dtype = (folder / "dtype").read_text()
        starts, at = (np.fromfile(folder / name, "i4") for name in ("starts", "columns"))
        values, x = (np.fromfile(folder / name, dtype) for name in ("values", "x"))
        assert len(x) == columns
        y = [values[i:j] @ x[at[i:j]] for i, j in itertools.pairwise(starts)]
        (np.array(y, dtype) * np.dtype(dtype).type(factor)).tofile(folder / "y")
        assert len(y) == rows
        region = SimpleNamespace(cost=SimpleNamespace(cycles=_CYCLES))
        return SimpleNamespace(regions=(region,), said="version 1.16\n")

    return Tools(lambda *_: root, lambda *_: tmp_path, lambda *_: root, run)


@pytest.fixture(autouse=True)
def emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    write_emulator(tmp_path)


def _of(tools: Tools, *matrices: Csr) -> SparsePeer:
    return estimate_scipy(matrices, _RPI4, lambda *_: None, print, tools)


def test_each_matrix_of_floats_has_a_time(tmp_path: Path) -> None:
    kinds = ("float32", "float64", "int8")
    matrices = [open_matrix("random:50:0.1", kind) for kind in kinds]
    found = _of(_tools(tmp_path, 1.0), *matrices)
    seconds = _CYCLES / (_RPI4.core.clock_mhz * 1e6)
    assert found.version == "1.16" and not found.missing
    assert found.seconds[:2] == pytest.approx((seconds, seconds))
    assert math.isnan(found.seconds[2])


def test_a_wrong_product_has_no_time(tmp_path: Path) -> None:
    found = _of(_tools(tmp_path, 1.01), open_matrix("random:50:0.1", "float32"))
    assert "found other values" in found.missing and not found.seconds


def test_a_board_without_wheels_has_no_peer(tmp_path: Path) -> None:
    def refuse(*_: Any) -> Any:
        raise InputError("no wheels")

    good = _tools(tmp_path, 1.0)
    assert _of(Tools(good.root, refuse, good.view, good.run)).missing == "no wheels"
