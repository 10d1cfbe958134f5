"""edgekit lab bench gemm --dtype outlier on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

_BENCH = ("lab", "bench", "gemm", "--dtype", "outlier")
_CONTENDERS = {"edgekit", "edgekit int8", "edgekit f32"}


def test_json_has_cells_bars_and_the_reason(edgekit: Any, home: Path) -> None:
    (home / "shapes.txt").write_text("3,64,40\n1,100,33\n")
    done = edgekit(*_BENCH, "--shapes", "shapes.txt", "--json")
    assert done.code == 0
    found = done.document
    assert (found["schema"], found["threads"]) == ("edgekit.bench.outlier/1", 1)
    assert [(cell["m"], cell["k"], cell["n"]) for cell in found["cells"]] == [
        (3, 64, 40),
        (1, 100, 33),
    ]
    for cell in found["cells"]:
        assert set(cell["errors"]) == _CONTENDERS
        assert set(cell["costs"]) == _CONTENDERS | {"bytes alone"}
        assert all(seconds > 0 for seconds in cell["costs"].values())
        assert cell["errors"]["edgekit"] < 0.02 and cell["errors"]["edgekit f32"] < 1e-5
        assert f"{cell['outliers']} of {cell['k']} channels" in cell["reason"]
    assert {bar["name"] for bar in found["bars"]} == {"plain dynamic int8", "best f32 product"}
    for bar in found["bars"]:
        assert 0 < bar["worst"] <= bar["mean"] and bar["held"] == (bar["worst"] >= bar["least"])


@pytest.mark.slow
def test_a_board_times_them_itself(edgekit: Any, home: Path) -> None:
    (home / "shapes.txt").write_text("3,64,40\n")
    (home / "edgekit.toml").write_text('[boards.own]\ntransport = "local"\nprofile = "local"\n')
    done = edgekit(*_BENCH, "--shapes", "shapes.txt", "--board", "own", "--json")
    assert done.code == 0
    (cell,) = done.document["cells"]
    assert set(cell["costs"]) == _CONTENDERS and min(cell["costs"].values()) > 0
    assert 0 < cell["errors"]["edgekit"] < 0.02 and "1 of 64 channels" in cell["reason"]


@pytest.mark.slow
def test_peers_in_plain_text(edgekit: Any, home: Path) -> None:
    (home / "shapes.txt").write_text("5,48,24\n")
    threads = str(min(2, len(os.sched_getaffinity(0))))
    done = edgekit(*_BENCH, "--shapes", "shapes.txt", "--peers", "--threads", threads)
    assert done.code == 0
    assert "peer     numpy" in done.out
    assert "x as fast as operators of NumPy (worst" in done.out
    for name in ("torch", "bitsandbytes"):
        assert f"peer     {name}" in done.out or f"missing  {name}" in done.out


def test_a_bad_file_of_shapes_is_refused(edgekit: Any, home: Path) -> None:
    (home / "shapes.txt").write_text("5,48\n")
    done = edgekit(*_BENCH, "--shapes", "shapes.txt")
    assert done.code == 2 and "shapes.txt" in done.err and done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--board", "a57", "--peers"), "expected the board local for --peers, found a57"),
        (("--regret",), "expected --regret or --dtype outlier, found both"),
    ],
)
def test_options_of_other_products(edgekit: Any, options: tuple[str, ...], complaint: str) -> None:
    done = edgekit(*_BENCH, *options)
    assert (done.code, done.out) == (2, "") and complaint in done.complaint
