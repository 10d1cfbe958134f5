"""OpenBLAS beside our products on a board's core: times, versions, and wrong products."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.tables.gemm_table import GemmChoice
from edgekit.host.errors import InputError
from edgekit.host.lab.bench.board_peers import Tools
from edgekit.host.lab.bench.gemm import CaseResult
from edgekit.host.lab.bench.gemm_cases import GemmCase
from edgekit.host.lab.bench.gemm_on_core import compare_on_core
from edgekit.host.simulator.root import SystemRoot
from edgekit.host.simulator.target import target_of
from edgekit.kb.features import GemmKey, GemmShape
from edgekit.kb.targets.board import load_board
from tests.support.fake_emulator import write_emulator

_RPI4 = target_of(load_board("rpi4"))
_METHOD = Method(4, 3, 5, pack_a=False, pack_b=False, mr=4, nr=4)


def _result(dtype: Any) -> CaseResult:
    case = GemmCase(GemmShape(m=4, k=3, n=5), "file", "b")
    key = GemmKey(0, 2, 2, 2, 5, dtype)
    answer = GemmChoice(key, _METHOD, "analytic", "", 0)
    return CaseResult(case, dtype, answer, 1.0, 0.0, 1.0)


def _tools(tmp_path: Path, factor: float) -> Tools:
    """The guest's product is `factor` times the right one, in as many cycles as its kernels' name
    has letters, times 1.5 million."""
    root = SystemRoot("aarch64", tmp_path / "root", "3.11")

    def run(_: Any, __: Any, job: Any) -> Any:
        m, n, k, folder = *map(int, job.command[3:6]), Path(job.command[6])
        a, b = (np.fromfile(folder / name, "f4") for name in "ab")
        (a.reshape(m, k) @ b.reshape(k, n) * np.float32(factor)).tofile(folder / "c")
        cycles = 1_500_000 * len(job.variables["OPENBLAS_CORETYPE"])
        region = SimpleNamespace(cost=SimpleNamespace(cycles=cycles))
        return SimpleNamespace(regions=(region,), said="version 2.3\n")

    return Tools(lambda *_: root, lambda *_: tmp_path, lambda *_: root, run)


@pytest.fixture(autouse=True)
def emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    write_emulator(tmp_path)


def _compared(tools: Tools) -> Any:
    results = [_result("f32"), _result("s8")]
    return compare_on_core(results, _RPI4, lambda _: 0.01, 1, lambda *_: None, print, tools)


def test_the_fastest_kernels_count(tmp_path: Path) -> None:
    (floats, byte), peers = _compared(_tools(tmp_path, 1.0))
    seconds = 5 * 1_500_000 / (_RPI4.core.clock_mhz * 1e6)  # of ARMV8
    assert floats.peers["openblas"].seconds == pytest.approx(seconds)
    assert (floats.cost, floats.ratio) == (0.01, pytest.approx(seconds / 0.01))
    assert byte == _result("s8") and peers.versions == {
        "openblas": "of NumPy 2.3; nothing is packed ahead"
    }


def test_a_wrong_product_has_no_time(tmp_path: Path) -> None:
    results, peers = _compared(_tools(tmp_path, 1.01))
    assert results == [_result("f32"), _result("s8")]
    assert "found other values" in peers.missing["openblas"]


def test_a_board_without_wheels_has_no_peer(tmp_path: Path) -> None:
    def refuse(*_: Any) -> Any:
        raise InputError("estimates: expected wheels of numpy, found none")

    tools = Tools(_tools(tmp_path, 1.0).root, refuse)
    assert "expected wheels of numpy" in _compared(tools)[1].missing["openblas"]
