"""The runtime's gemm-bench: streamed answers, errors that name the request, no NumPy needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.gemm_bench import parse_request
from edgekit.device.runtime.arrays.find import find_library
from edgekit.device.runtime.errors import InputError
from edgekit.host.deploy.bundle.pyz import runtime_pyz
from tests.support.patience import AMPLE

_METHOD = {
    "mc": 8, "kc": 16, "nc": 48, "pack_a": False, "pack_b": True, "mr": 8, "nr": 48, "split": "m",
}  # fmt: skip
_REQUEST = {"dtype": "f32", "m": 9, "n": 17, "k": 5, "methods": [_METHOD], "seconds": 0.001}


@pytest.fixture(scope="module")
def library() -> Path:
    return find_library()[0]


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runtime") / "runtime.pyz"
    path.write_bytes(runtime_pyz())
    return path


def run(
    runtime: Path, library: Path, folder: Path, *lines: str
) -> tuple[dict[str, Any], list[dict[str, Any]], int]:
    """Runs gemm-bench without installed packages; returns document, answers and exit code."""
    requests = folder / "requests.jsonl"
    requests.write_text("\n".join(lines))
    command = [sys.executable, "-I", "-S", str(runtime), "gemm-bench"]
    done = subprocess.run(
        [*command, "--requests", str(requests), "--library", str(library)],
        capture_output=True,
        text=True,
        timeout=AMPLE,
        check=False,
    )
    answers = [
        json.loads(line.removeprefix("gemm "))
        for line in done.stderr.splitlines()
        if line.startswith("gemm ")
    ]
    return json.loads(done.stdout), answers, done.returncode


def test_each_line_is_answered_in_its_order(runtime, library, tmp_path):
    lines = [
        _REQUEST,
        {**_REQUEST, "dtype": "s8", "side": "b", "methods": [_METHOD, {**_METHOD, "nr": 16}]},
        {**_REQUEST, "dtype": "u8", "side": "a", "threads": 2},
        {**_REQUEST, "m": 0, "methods": []},
        {**_REQUEST, "m": 1, "n": 1, "k": 0, "default": _METHOD},
    ]
    document, answers, code = run(runtime, library, tmp_path, *map(json.dumps, lines))
    assert (code, document) == (0, {"schema": "edgekit.gemm-bench/1", "answered": 5})
    assert [a["index"] for a in answers] == list(range(5))
    for line, answer in zip(lines, answers, strict=True):
        assert len(answer["times"]) == len(line["methods"])
        for time in (*answer["times"], answer["default"]):
            assert 0 < time["p10_us"] <= time["median_us"] <= time["p90_us"] and time["n"] >= 3


def test_a_bad_line_stops_no_other(runtime, library, tmp_path):
    lines = ["{", json.dumps({**_REQUEST, "m": -1}), json.dumps(_REQUEST)]
    document, answers, code = run(runtime, library, tmp_path, *lines)
    assert (code, document["answered"]) == (0, 1)
    assert [a.get("error", {}).get("kind") for a in answers] == ["input", "input", None]


def test_a_product_beyond_memory_is_refused_before_it_is_made(runtime, library, tmp_path):
    huge = json.dumps({**_REQUEST, "m": 2**31 - 1, "n": 2**31 - 1})
    _, answers, _ = run(runtime, library, tmp_path, huge)
    assert "bytes of free memory" in answers[0]["error"]["message"]


def test_a_library_of_another_kind_is_named(runtime, tmp_path):
    other = tmp_path / "other.so"
    other.write_bytes(b"\x7fELF nonsense and more of it")
    document, answers, code = run(runtime, other, tmp_path, json.dumps(_REQUEST))
    assert code == 5 and not answers and "other.so" in document["error"]["message"]


def test_a_requests_file_that_is_not_there(runtime, library, tmp_path):
    command = [sys.executable, "-I", "-S", str(runtime), "gemm-bench"]
    done = subprocess.run(
        [*command, "--requests", str(tmp_path / "no"), "--library", str(library)],
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 2
    assert "expected a file of JSON lines" in json.loads(done.stdout)["error"]["message"]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"dtype": "f64"}, "dtype of one of f32, s8, u8, found 'f64'"),
        ({"dtype": ["f32"]}, "dtype of one of"),
        ({"n": 1.5}, "n of 0 to 2147483647, found '1.5'"),
        ({"k": 1 << 40}, "k of 0 to 2147483647"),
        ({"m": True}, "m of 0 to"),
        ({"threads": 0}, "threads of 1 to 256"),
        ({"side": "c"}, "side of a, b or null"),
        ({"seconds": float("nan")}, "seconds of more than 0"),
        ({"seconds": 1e9}, "seconds of more than 0"),
        ({"count": 1}, "count of true or false"),
        ({"count": True, "threads": 2}, "1 thread for counting"),
        ({"methods": 3}, "methods as a list"),
        ({"methods": [3]}, "a method as a JSON object"),
        ({"methods": [{**_METHOD, "mr": 0}]}, "mr of 1 to"),
        ({"methods": [{**_METHOD, "pack_a": 1}]}, "pack_a and pack_b true or false"),
        ({"methods": [{**_METHOD, "split": "k"}]}, "a split of m or n"),
        ({"default": {**_METHOD, "other": 1}}, "true or false and a split"),
        ({"other": 1}, "found 'other'"),
    ],
)
def test_an_invalid_request_is_described(change, message):
    with pytest.raises(InputError, match=message):
        parse_request(json.dumps({**_REQUEST, **change}))
