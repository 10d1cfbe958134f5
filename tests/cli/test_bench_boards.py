"""edgekit lab bench gemm, sparse and nna for boards that are not there: estimates, and refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_PRODUCTS = (
    ("gemm", "--shapes", "shapes.txt"),
    ("gemm", "--dtype", "outlier", "--shapes", "shapes.txt"),
    ("sparse", "--matrix", "banded:200:3"),
    ("sparse", "--weights", "w.npz", "--pixels", "40"),
)


@pytest.fixture
def files(home: Path) -> Path:
    """The files that the commands read."""
    (home / "shapes.txt").write_text("8,40,24\n")
    w = np.zeros((16, 24), np.float32)
    w[:, ::3] = 1
    np.savez(home / "w.npz", w=w)
    return home


@pytest.mark.parametrize("words", _PRODUCTS)
@pytest.mark.parametrize(
    ("board", "complaint"),
    [
        ("nosuch", "expected a board that can be reached, found none named 'nosuch'"),
        ("rv64gcv-zvl512b", "rv64gcv-zvl512b: expected a board whose core has a timing model"),
    ],
)
def test_boards_that_can_be_neither_measured_nor_estimated(
    edgekit: Any, files: Path, words: tuple[str, ...], board: str, complaint: str
) -> None:
    done = edgekit("lab", "bench", *words, "--board", board)
    assert (done.code, done.out) == (2, "") and complaint in done.complaint


def test_hot_spots_need_a_board(edgekit: Any, files: Path) -> None:
    done = edgekit("lab", "bench", *_PRODUCTS[2], "--board", "rpi4", "--hotspots")
    assert done.code == 2
    assert "expected a board that can be reached for --hotspots, found only" in done.complaint


_estimates = pytest.mark.skipif(
    not shutil.which("qemu-aarch64"),
    reason="QEMU's user emulators are not installed: apt-get install qemu-user",
)


@pytest.mark.cross
@pytest.mark.exhaustive
@_estimates
def test_settings_of_sparse_matrices_are_tuned_without_a_board(edgekit: Any, home: Path) -> None:
    tune = ("lab", "tune", "sparse", "--board", "a57", "--output", "t.json")
    found = edgekit(*tune, "--matrix", "blocks:64:64:4:0.2", "--json").document
    (row,) = found["rows"]
    assert row["matrix"] == "blocks:64:64:4:0.2" and row["tried"] > 5 and 0 < row["ratio"] <= 1
    kept = json.loads((home / "t.json").read_text())
    assert kept["platform"] == "cortex-a57" and [r["key"] for r in kept["rows"]] == [row["key"]]
    refused = edgekit(*tune, "--threads", "100")
    assert (refused.code, refused.out) == (2, "") and "--threads: expected at" in refused.complaint


@pytest.mark.cross
@pytest.mark.slow
@_estimates
@pytest.mark.parametrize("words", _PRODUCTS)
def test_products_are_estimated(edgekit: Any, files: Path, words: tuple[str, ...]) -> None:
    bench = ("lab", "bench", *words, "--board", "a57")
    found = edgekit(*bench, "--json").document
    assert (found["board"], found["unit"], found["threads"]) == ("a57", "seconds", 1)
    assert found["estimate"]["core"] == "a57"
    shown = edgekit(*bench)
    assert "estimated for a57 (a57): " in shown.out
    assert all(len(line) <= 80 for line in shown.out.splitlines() if not line.startswith("mean"))
    if "products" in found:  # at most four multiply-adds per cycle and pipe, on two pipes
        (product,) = (p for p in found["products"] if p["dtype"] == "f32")
        assert 0.5 < product["gflops"] < 2 * 2 * 4 * found["estimate"]["clock_mhz"] / 1e3
    elif "cells" in found:
        (cell,) = found["cells"]
        assert set(cell["costs"]) == {"edgekit", "edgekit int8", "edgekit f32"}
        assert 0 < cell["errors"]["edgekit"] < 0.02 and cell["path"] == "split"
    elif "layers" in found:
        (layer,) = found["layers"]
        assert 0 < layer["sparse"] < layer["dense"] and layer["density"] == pytest.approx(1 / 3)
    else:
        (matrix,) = found["matrices"]
        assert matrix["height"] == 4 and 1 <= matrix["padding"] < 1.1 and matrix["seconds"] > 0
        assert matrix["bytes"] > 4 * matrix["padding"] * matrix["nonzeros"]  # values and indices
