"""edgekit lab bench nna."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.arrays.nna_chip import NNA2


@pytest.mark.slow
def test_json_has_the_account_the_chip_and_the_speed(edgekit: Any) -> None:
    done = edgekit("lab", "bench", "nna", "--shape", "3,20,200", "--board", "nna1", "--json")
    assert done.code == 0
    found = done.document
    assert (found["schema"], found["board"]) == ("edgekit.bench.nna/1", "nna1")
    assert found["product"] == {"kind": "matmul", "m": 3, "k": 20, "n": 200}
    assert found["correct"] is True
    account = found["account"]
    assert account["cycles"] <= account["bound"] and account["better"] in ("nna", "vector")
    assert account["tail_cycles"] > 0 and account["stalls"]
    assert set(found["chip"]) == set(NNA2.__dataclass_fields__)
    assert found["chip"]["output_points"]["value"] == 4
    assert "patent" in found["chip"]["output_points"]["source"]
    assert found["emulation"]["python_over_native"] > 20
    assert found["emulation"]["native"]["useful_per_second"] > 0


@pytest.mark.slow
def test_a_convolution_in_plain_text_on_the_default_board(edgekit: Any) -> None:
    done = edgekit("lab", "bench", "nna", "--conv", "10,12,40,33", "--stride", "2")
    assert done.code == 0
    assert "3x3 convolution of [10, 12, 40] to 33 channels, stride 2 on nna2" in done.out
    assert "sums equal NumPy's" in done.out and "better   the NNA" in done.out
    assert "with overlap" in done.out and all(line.isprintable() for line in done.out.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "kind", "useful"),
    [
        pytest.param(
            *(["--pointwise", "20,300,70"], "pointwise", 20 * 300 * 70),
            marks=pytest.mark.exhaustive,
        ),
        (["--depthwise", "9,12,40", "--stride", "2"], "depthwise3x3", 5 * 6 * 9 * 40),
    ],
)
def test_layers_of_models(edgekit: Any, words: list[str], kind: str, useful: int) -> None:
    found = edgekit("lab", "bench", "nna", *words, "--json").document
    assert found["correct"] is True and found["product"]["kind"] == kind
    assert found["account"]["macs_useful"] == useful
    assert found["account"]["cycles"] <= found["account"]["bound"]
    assert "sums equal NumPy's" in edgekit("lab", "bench", "nna", *words).out


@pytest.mark.slow
def test_a_trace_is_written_for_viewers(edgekit: Any, home: Path) -> None:
    done = edgekit("lab", "bench", "nna", "--shape", "1,9,64", "--trace", "trace.json")
    assert done.code == 0 and "trace.json: " in done.err
    trace = json.loads((home / "trace.json").read_text())
    assert {e["name"] for e in trace["traceEvents"]} >= {"nnmacg", "nndwf", "nndww", "nndrdocb"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--shape", "1,2"], "expected --shape M,K,N as whole numbers, found '1,2'"),
        (["--shape", "1,-2,3"], "found '1,-2,3'"),
        (["--shape", "0,1,1"], "expected extents of 1 to"),
        (["--shape", "100000,100000,100000"], "choose a smaller shape"),
        (["--conv", "1,2,3"], "expected --conv H,W,IC,OC"),
        ([], "expected one of --shape, --conv, --depthwise, --pointwise, found none"),
        (["--shape", "1,2,3", "--conv", "1,2,3,4"], "found --shape and --conv; name one"),
        (["--depthwise", "1,2,3,4"], "expected --depthwise H,W,C"),
        (["--pointwise", "1,2"], "expected --pointwise P,IC,OC"),
        (["--pointwise", "1,2,3", "--stride", "2"], "found it with --pointwise"),
        (["--pointwise", "1,2,3", "--board", "a53"], "a board with an NNA"),
        (["--shape", "1,2,3", "--board", "a53"], "a board with an NNA (nna1, nna2), found a53"),
        (["--shape", "1,2,3", "--board", "nosuch"], "expected a board profile"),
        (["--shape", "1,2,3", "--trace", "nosuch/t.json"], "nosuch/t.json: expected its folder"),
        (["--conv", "9,9,9,9", "--stride", "3"], "--stride"),
        (["--shape", "1,2,3", "--stride", "2"], "expected --stride 2 with --conv or --depthwise"),
    ],
)
def test_bad_input_is_one_line(edgekit: Any, words: list[str], said: str) -> None:
    done = edgekit("lab", "bench", "nna", *words)
    assert done.code == 2 and said in done.complaint
