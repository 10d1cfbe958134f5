"""edgekit lab bench gemm: its JSON document, with and without peers, and rejected input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

_PEERS = {"openblas", "onnxruntime", "onednn", "torch"}
_METHOD = {"mc", "kc", "nc", "pack_a", "pack_b", "mr", "nr", "split"}
_PRODUCT = {
    "m", "k", "n", "group", "weights", "dtype", "rule", "method", "cost", "spread", "gflops",
    "gain", "transposed", "peers", "best_peer", "ratio",
}  # fmt: skip


@pytest.fixture
def shapes(home: Path) -> str:
    (home / "shapes.txt").write_text("8,8,8\n1,64,32  # a row\n\n33,5,1\n")
    return "shapes.txt"


@pytest.mark.slow
def test_the_document_without_peers(edgekit: Any, shapes: str) -> None:
    done = edgekit("lab", "bench", "gemm", "--shapes", shapes, "--json")
    assert done.code == 0
    found = done.document
    assert (found["schema"], found["board"]) == ("edgekit.bench.gemm/1", "local")
    assert (found["unit"], found["threads"], found["refused"]) == ("seconds", 1, 0)
    assert found["peers"] is None and found["regret"] is None and found["s8_over_f32"] is None
    assert found["lookup_ns"]["repeated"] > 0
    keys = [(p["dtype"], p["m"], p["k"], p["n"]) for p in found["products"]]
    wanted = [(8, 8, 8), (1, 64, 32), (33, 5, 1)]
    assert keys == [(dtype, *shape) for dtype in ("f32", "s8") for shape in wanted]
    for product in found["products"]:
        assert set(product) == _PRODUCT and set(product["method"]) == _METHOD
        assert product["cost"] > 0 and product["gflops"] > 0 and product["gain"] > 0
        assert (product["peers"], product["best_peer"], product["ratio"]) == ({}, None, None)
    assert [(s["dtype"], s["group"], s["products"], s["ratio"]) for s in found["summary"]] == [
        ("f32", "file", 3, None),
        ("s8", "file", 3, None),
    ]


@pytest.mark.slow
def test_with_peers_each_is_timed_or_named(edgekit: Any, shapes: str) -> None:
    done = edgekit(
        "lab", "bench", "gemm", "--shapes", shapes, "--peers", "--dtype", "f32", "--json"
    )
    assert done.code == 0
    peers, products = done.document["peers"], done.document["products"]
    assert set(peers["versions"]) | set(peers["missing"]) == _PEERS
    for product in products:
        assert set(product["peers"]) == set(peers["versions"])
        if product["peers"]:
            best = min(product["peers"], key=lambda name: product["peers"][name]["cost"])
            assert product["best_peer"] == best
            assert product["ratio"] == product["peers"][best]["ratio"] > 0


@pytest.mark.slow
def test_two_threads_and_a_table_for_people(edgekit: Any, shapes: str) -> None:
    done = edgekit("lab", "bench", "gemm", "--shapes", shapes, "--threads", "2", "--dtype", "s8")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split()[:3] == ["m,k,n", "dtype", "rule"]
    assert lines[1].split()[:2] == ["8,8,8", "s8"]
    assert any(line.startswith("gain ") and "3 products" in line for line in lines)
    assert any(line.startswith("look-up ") for line in lines)


@pytest.mark.parametrize(
    "content, complaint",
    [
        (b"garbage\n", "line 1: expected m,k,n"),
        (b"1,2\n", "line 1: expected m,k,n"),
        (b"8,8,8\n-1,2,3\n", "line 2: expected sizes from 1"),
        (b"99999999999,1,1\n", "expected sizes from 1 to 2147483647"),
        (b"1048576,8,1048576\n", "at most 134217728 elements"),
        (b"0,1,1\n", "found '0,1,1'; an empty product needs no method"),
        (b"\xff\xfe\x00", "expected lines of m,k,n"),
        (b"", "expected lines of m,k,n, found none"),
    ],
)
def test_a_file_of_shapes_that_is_none(
    edgekit: Any, home: Path, content: bytes, complaint: str
) -> None:
    (home / "bad.txt").write_bytes(content)
    done = edgekit("lab", "bench", "gemm", "--shapes", "bad.txt")
    assert (done.code, done.out) == (2, "")
    assert complaint in done.complaint


def test_a_file_of_shapes_that_is_not_there(edgekit: Any) -> None:
    done = edgekit("lab", "bench", "gemm", "--shapes", "none.txt")
    assert done.code == 2
    assert done.complaint.endswith(
        "none.txt: expected lines of m,k,n, found: No such file or directory"
    )


def test_peers_of_outlier_products_are_for_this_machine(edgekit: Any, shapes: str) -> None:
    words = ("--board", "a57", "--peers", "--dtype", "outlier", "--shapes", shapes)
    done = edgekit("lab", "bench", "gemm", *words)
    assert done.code == 2 and "other libraries are timed on this machine only" in done.complaint


@pytest.mark.parametrize("option", [["--threads", "0"], ["--dtype", "f64"], ["--threads", "999"]])
def test_options_out_of_range(edgekit: Any, option: list[str]) -> None:
    done = edgekit("lab", "bench", "gemm", *option)
    assert done.code == 2 and option[0] in done.complaint


def test_a_seed_is_for_the_regret(edgekit: Any, shapes: str) -> None:
    done = edgekit("lab", "bench", "gemm", "--shapes", shapes, "--seed", "5")
    assert done.code == 2 and "expected --regret with --seed" in done.complaint
