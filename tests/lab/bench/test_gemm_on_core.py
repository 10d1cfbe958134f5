"""Other libraries beside our products on a board's core: times, versions, and wrong products."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.tables.gemm_table import GemmChoice
from edgekit.host.errors import InputError
from edgekit.host.lab.bench.board_peers import Tools
from edgekit.host.lab.bench.gemm import CaseResult
from edgekit.host.lab.bench.gemm_cases import GemmCase
from edgekit.host.lab.bench.gemm_libraries import LIBRARIES
from edgekit.host.lab.bench.gemm_on_core import compare_on_core
from edgekit.host.lab.bench.peer_check import Expected
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
    """The guest's product is `factor` times the right one. OpenBLAS takes as many cycles as its
    kernels' name has letters, times 1.5 million; ONNX Runtime 1 million, and another per output;
    a library of Debian's twice as many as its name has letters, times a million."""
    root = SystemRoot("aarch64", tmp_path / "root", "3.11")

    def expected(model: Path, _: Any) -> Expected:
        graph = onnx.load(model).graph
        m, n = (each.dim_value for each in graph.output[0].type.tensor_type.shape.dim)
        return Expected({}, (np.full((m, n), 100, np.int32),), (0.0,))

    def infer(job: Any) -> Any:
        graph = onnx.load(job.command[4]).graph
        shape = [each.dim_value for each in graph.output[0].type.tensor_type.shape.dim]
        folder = Path(job.command[6])
        np.full(shape, 100 * factor, np.int32).tofile(folder / "out0")
        (folder / "outputs.json").write_text(json.dumps([{"shape": shape, "dtype": "int32"}]))
        region = SimpleNamespace(cost=SimpleNamespace(cycles=1_000_000 * (1 + math.prod(shape))))
        return SimpleNamespace(regions=(region,), said="version 1.32\n")

    def multiply(job: Any) -> Any:
        _, name, dtype, *sizes, folder = job.command
        m, n, k = map(int, sizes)
        read = np.float32 if dtype == "f32" else np.int8
        a, b = (np.fromfile(Path(folder) / each, read).astype(np.float64) for each in "ab")
        c = a.reshape(m, k) @ b.reshape(k, n) * factor
        if dtype == "s8" and name == "xnnpack":
            np.rint(c / (64 * k)).astype(np.int8).tofile(Path(folder) / "c")
        else:
            c.astype(np.float32 if dtype == "f32" else np.int32).tofile(Path(folder) / "c")
        region = SimpleNamespace(cost=SimpleNamespace(cycles=2_000_000 * len(name)))
        return SimpleNamespace(regions=(region,), said="")

    def run(_: Any, __: Any, job: Any) -> Any:
        if job.command[0] == "product":
            return multiply(job)
        if job.command[3] == "onnxruntime":
            return infer(job)
        m, n, k, folder = *map(int, job.command[3:6]), Path(job.command[6])
        a, b = (np.fromfile(folder / name, "f4") for name in "ab")
        (a.reshape(m, k) @ b.reshape(k, n) * np.float32(factor)).tofile(folder / "c")
        cycles = 1_500_000 * len(job.variables["OPENBLAS_CORETYPE"])
        region = SimpleNamespace(cost=SimpleNamespace(cycles=cycles))
        return SimpleNamespace(regions=(region,), said="version 2.3\n")

    places = lambda *_: root, lambda *_: tmp_path, lambda *_: root
    made = {"packages": lambda *_: root, "build": lambda _: Path("product")}
    return Tools(*places, run, expected, **made)


@pytest.fixture(autouse=True)
def emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    write_emulator(tmp_path)


def _compared(tools: Tools) -> Any:
    results = [_result("f32"), _result("s8")]
    return compare_on_core(results, _RPI4, lambda *_: 0.01, 1, lambda *_: None, print, tools)


def test_the_fastest_kernels_count(tmp_path: Path) -> None:
    (floats, byte), peers = _compared(_tools(tmp_path, 1.0))
    seconds = 5 * 1_500_000 / (_RPI4.core.clock_mhz * 1e6)  # of ARMV8
    assert floats.peers["openblas"].seconds == pytest.approx(seconds)
    assert (floats.cost, floats.peers["openblas"].ratio) == (0.01, pytest.approx(seconds / 0.01))
    for result, names in ((floats, LIBRARIES), (byte, ("onednn", "xnnpack"))):
        for name in names:
            seconds = 2_000_000 * len(name) / (_RPI4.core.clock_mhz * 1e6)
            assert result.peers[name].seconds == pytest.approx(seconds)
            assert result.peers[name].ratio == pytest.approx(seconds / 0.01)
    session = 1_000_000 * (1 + 4)  # of 1 x 4 outputs
    bytes_seconds = (1_000_000 * (1 + 4 * 5) - session) / (_RPI4.core.clock_mhz * 1e6)
    assert byte.peers["onnxruntime"].seconds == pytest.approx(bytes_seconds)
    assert byte.peers["onnxruntime"].ratio == pytest.approx(bytes_seconds / byte.cost)
    assert peers.versions == {
        **{name: each.note for name, each in LIBRARIES.items()},
        "openblas": "of NumPy 2.3; nothing is packed ahead",
        "onnxruntime": "1.32; weights are packed ahead",
    }


def test_a_wrong_product_has_no_time(tmp_path: Path) -> None:
    results, peers = _compared(_tools(tmp_path, 1.02))
    assert results == [_result("f32"), _result("s8")]
    assert "found other values" in peers.missing["openblas"]
    assert "expected outputs within" in peers.missing["onnxruntime"]
    assert "found other values" in peers.missing["eigen"]


def test_a_board_without_wheels_has_no_peer(tmp_path: Path) -> None:
    def refuse(*_: Any) -> Any:
        raise InputError("estimates: expected wheels of numpy, found none")

    tools = Tools(_tools(tmp_path, 1.0).root, refuse, packages=refuse)
    missing = _compared(tools)[1].missing
    names = ("openblas", "onnxruntime", *LIBRARIES)
    assert all("expected wheels of numpy" in missing[name] for name in names)
