"""edgekit lab bench sparse, tune sparse and kb lookup --spmv on this machine; rejected input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.hotspots import classify, parse_annotation, parse_report
from edgekit.device.runtime.arrays.sparse_table import read_table

_SMALL = ("--matrix", "banded:400:3", "--seconds", "0.1")


@pytest.mark.slow
def test_sparse_products_are_compared_with_the_memory_bandwidth(edgekit: Any) -> None:
    done = edgekit("lab", "bench", "sparse", *_SMALL, "--matrix", "power:300:5", "--json")
    assert done.code == 0
    found = done.document
    assert (found["schema"], found["unit"]) == ("edgekit.bench.spmv/1", "seconds")
    assert [m["name"] for m in found["matrices"]] == ["banded:400:3", "power:300:5"]
    for matrix in found["matrices"]:
        assert matrix["triad"] > 1e8 and matrix["features"]["nonzeros"] > 0
        (form,) = matrix["forms"]
        assert 0 < form["p10"] <= form["median"] <= form["p90"] and 1 <= form["padding"] <= 1.6


@pytest.mark.slow
def test_others_are_timed_or_named(edgekit: Any) -> None:
    done = edgekit("lab", "bench", "sparse", *_SMALL, "--peers", "--dtype", "float16", "--json")
    assert done.code == 0
    (matrix,) = done.document["matrices"]
    assert [peer["name"] for peer in matrix["peers"]] == ["scipy", "torch", "mkl"]
    assert all(peer["missing"] or peer["ratio"] > 0 for peer in matrix["peers"])
    assert "NaN" not in done.out and matrix["gathers"] > 0
    shown = edgekit("lab", "bench", "sparse", *_SMALL, "--peers", "--threads", "2")
    assert shown.code == 0 and "scipy: has one thread" in shown.out


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--matrix", "circle:3"], "circle:3: expected a .mtx or .npz file, or a class"),
        (["--matrix", "banded:10"], "or a class such as"),
        (["--matrix", "random:100000:1"], "up to 268435456 non-zeros"),
        (["--matrix", "none.mtx"], "No such file"),
    ],
)
def test_what_is_refused(edgekit: Any, arguments: list[str], complaint: str) -> None:
    done = edgekit("lab", "bench", "sparse", *arguments)
    assert done.code == 2 and complaint in done.err and done.err.count("\n") == 1


@pytest.mark.slow
def test_tuning_fills_a_table_that_is_looked_up(edgekit: Any, home: Path) -> None:
    tuned = edgekit(
        "lab", "tune", "sparse", "--allow-noise", *_SMALL, "--output", "table.json", "--json"
    )
    assert tuned.code == 0
    (row,) = tuned.document["rows"]
    assert row["matrix"] == "banded:400:3" and row["tried"] > 5 and 0 < row["ratio"] <= 1
    (read,) = read_table(home / "table.json").rows
    assert (read.key.spread, read.key.band) == ("even", "narrow")


def test_a_look_up_says_its_rule(edgekit: Any, home: Path) -> None:
    head = "%%MatrixMarket matrix coordinate real general\n"
    (home / "m.mtx").write_text(f"{head}2 2 2\n1 1 1\n2 2 1\n")
    done = edgekit("lab", "kb", "lookup", "--spmv", "m.mtx", "--board", "a57", "--json")
    assert done.code == 0
    found = done.document
    assert found["schema"] == "edgekit.kb.lookup.spmv/1" and found["features"]["nonzeros"] == 2
    assert found["rule"] in ("exact", "nearest", "patent") and found["settings"]["width"] >= 1
    both = edgekit("lab", "kb", "lookup", "--spmv", "m.mtx", "--gemm", "1,2,3")
    assert both.code == 2 and "expected --gemm or --spmv, found both" in both.complaint


def test_bottlenecks_are_distinguished() -> None:
    calm = {"wa": 0, "b": 0, "si": 0, "so": 0}
    assert classify(calm, 100.0, 0.3).kind == "cpu"
    assert classify(calm, 100.0, 0.8).kind == "memory"
    assert classify(calm, 100.0, 5.0).kind == "cpu"  # faster than memory: the matrix is in a cache
    assert classify(calm | {"wa": 50}, 10.0, 0.1).kind == "io"
    assert classify(calm | {"so": 9}, 100.0, 0.1).why.startswith("swapping")
    assert "other programs" in classify(calm, 20.0, 0.1).why
    assert classify(None, None, 0.1).kind == "cpu"


def test_words_of_perf_are_understood() -> None:
    report = "# a comment\n    98.30%  python3  lib.so  [.] ek_spmv_f32_task\n  0.7%  x\n"
    (function,) = parse_report(report)
    assert (function.percent, function.name) == (98.3, "lib.so ek_spmv_f32_task")
    text = "  Percent |\n    0.10 :   7157:   add $0x20,%r13\n   11.82 :   7130:   vfmadd (%rax)\n"
    found = parse_annotation(text)
    assert [each.percent for each in found] == [11.82, 0.1]
    assert found[0].text == "7130: vfmadd (%rax)"
