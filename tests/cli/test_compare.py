"""`edgekit compare`: float, quantized and a board's kernels under the real emulator."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.onnx_models import model, node, recurrent, save, value

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-aarch64"), reason="apt-get install qemu-user"),
]


def network(folder: Path, name: str, sign: float = 1.0) -> Path:
    """Two convolutions and a pooling; `sign`: of the second one's weights."""
    rng = np.random.default_rng(5)
    first = rng.normal(size=(8, 3, 3, 3)).astype(np.float32) / 4
    second = sign * rng.normal(size=(4, 8, 3, 3)).astype(np.float32) / 8
    parts = [
        node("Conv", ["x", "w1"], ["a"], name="first", pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"], name="relu"),
        node("Conv", ["b", "w2"], ["c"], name="second", pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", ["c"], ["y"], name="pool"),
    ]
    made = model(parts, [value("x", (1, 3, 8, 8))], ["y"], {"w1": first, "w2": second})
    return save(made, folder, name)


@pytest.fixture
def samples(home: Path) -> Path:
    found = np.random.default_rng(6).normal(size=(8, 1, 3, 8, 8)).astype(np.float32)
    np.savez(home / "samples.npz", x=found)
    return home / "samples.npz"


def by_name(document: Any) -> dict[str, Any]:
    return {each["name"]: each for each in document["operators"]}


def test_a_float_model_equals_its_reference(edgekit: Any, home: Path) -> None:
    found = edgekit("compare", network(home, "m.onnx"), "--board", "rpi4", "--json").document
    assert found["reference"] == "the model in float" and found["rounding"] == 0
    assert all(each["board"]["sqnr_db"] > 100 for each in found["operators"] if each["board"])
    assert found["outputs"]["y"]["cosine"] == pytest.approx(1.0)
    assert "no operator rounds" in edgekit("compare", home / "m.onnx", "--board", "rpi4").out


def test_this_machine_runs_its_own_kernels(edgekit: Any, home: Path, samples: Path) -> None:
    command = ("compare", network(home, "m.onnx"), "--samples", samples)
    found = edgekit(*command, "--html", "c.html", "--json").document
    layers = [each for each in found["operators"] if each["board"]]
    assert found["board"] == "local" and len(layers) >= 3
    assert all(each["measured_us"] > 0 for each in layers)
    assert [each["steps"] for each in layers if each["kind"] == "conv2d"] == [0, 0]
    assert 0.9 < found["outputs"]["y"]["cosine"] < 1 and found["tried"] > 0
    assert "<svg" in (home / "c.html").read_text() and "conv2d" in edgekit(*command).out


def test_a_quantized_model_is_compared_by_operator(edgekit: Any, home: Path, samples: Path) -> None:
    command = ("compare", network(home, "m.onnx"), "--board", "rpi4", "--samples", samples)
    pages = ("--html", "c.html", "--node-data", "nd.json")
    found = edgekit(*command, *pages, "--json").document
    layers = [each for each in found["operators"] if each["board"]]
    assert len(layers) >= 3
    for each in layers:
        assert each["board"]["sqnr_db"] > 15 and each["board"] == each["quantized"], each
        assert each["steps"] == 0.0  # integer kernels are exact
    assert found["tried"] == found["rounding"] >= 2
    gains = [each["db"] for each in found["brought"]]
    assert gains == sorted(gains, reverse=True) and gains[0] > 0
    page = (home / "c.html").read_text()
    assert page.count("<rect class='error") == len(found["operators"]) and "<script" not in page
    data = json.loads((home / "nd.json").read_text())
    assert data["results"].keys() == {each["tensor"] for each in layers}
    assert {stop["stop"] for stop in data["gradient"]} == {0, 1}
    assert json.loads((home / "nd.time.json").read_text())["name"] == "estimated µs"
    assert "outputs gain dB" in edgekit(*command).out


def test_half_precision_is_compared_by_operator(edgekit: Any, home: Path) -> None:
    command = ("compare", network(home, "m.onnx"), "--board", "rpi5", "--precision", "f16")
    found = edgekit(*command, "--json").document
    halves = [each["board"]["sqnr_db"] for each in found["operators"]]
    assert len(halves) >= 4 and all(40 < each < 110 for each in halves), found["operators"]
    assert "loss     not split by operator" in edgekit(*command).out


def test_another_reference_shows_where_it_differs(edgekit: Any, home: Path) -> None:
    other = network(home, "float.onnx", sign=-1.0)
    command = ("compare", network(home, "m.onnx"), "--board", "rpi4", "--reference", other)
    found = by_name(edgekit(*command, "--json").document)
    errors = {name: each["board"]["sqnr_db"] for name, each in found.items() if each["board"]}
    first, *_, last = errors.values()
    assert first > 100 and last < 0


def test_states_are_no_inputs(edgekit: Any, home: Path) -> None:
    np.savez(home / "x.npz", in0=np.ones((1, 16), np.float32))
    np.savez(home / "both.npz", x=np.ones((1, 16)), before=np.ones((1, 24)))
    command = ("compare", recurrent(home), "--board", "rpi4", "--state", "before=after")
    assert edgekit(*command, "--input", "x.npz", "--json").document["outputs"].keys() == {"y"}
    assert "expected inputs x, found before, x" in edgekit(*command, "--input", "both.npz").err


def test_bad_requests_are_one_line(edgekit: Any, home: Path) -> None:
    path = network(home, "m.onnx")
    wide = save(
        model([node("Relu", ["x"], ["y"])], [value("x", (1, 3, 9, 9))], ["y"]), home, "w.onnx"
    )
    for words, said in (
        (("--board", "rpi4", "--reference", "none.onnx"), "none.onnx: no such file"),
        (("--board", "rpi4", "--reference", wide), "--reference: expected an input x of shape"),
        (("--board", "rpi4", "--html", "none/c.html"), "none"),
    ):
        done = edgekit("compare", path, *words)
        assert done.code == 2 and said in done.err.splitlines()[-1], done.err
