"""`edgekit prune`, on a small network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from tests.support.onnx_models import model, node, save, value
from tests.support.prune_models import SIZE, images, pointwise_net, two_branches

pytestmark = pytest.mark.slow


def _saved(home: Path, count: int = 32, **arrays: Any) -> Path:
    path = home / "samples.npz"
    np.savez(path, **(arrays or {"x": images(count)}))
    return path


@pytest.mark.parametrize("file", ["net.pruned.tflite", "net.pruned.onnx"])
def test_a_pruned_file_runs(edgekit: Any, home: Path, file: str) -> None:
    path, data = pointwise_net(home), _saved(home)
    done = edgekit("prune", path, "--samples", data, "--sparsity", "0.6", "-o", file, "--json")
    assert done.code == 0, done.err
    document = done.document
    assert document["schema"] == "edgekit.prune/1"
    assert document["sparsity"] == pytest.approx(0.6, abs=0.01)
    assert document["samples"] == {"calibration": 24, "held_out": 8}
    assert document["outputs"]["y"]["cosine"] > 0.9
    assert {layer["runs"] for layer in document["layers"]} <= {"sparse", "dense"}
    graph = import_model(home / file)
    x = images(1, seed=7)
    np.savez(home / "x.npz", x=x)
    assert edgekit("run", file, "--input", "x.npz", "--output", "y.npz").code == 0
    with np.load(home / "y.npz") as found:
        expected = evaluate(graph, {"x": x}).outputs["y"]
        np.testing.assert_allclose(found["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
def test_sparse_weights_make_a_tflite_file_smaller(edgekit: Any, home: Path) -> None:
    path, data = pointwise_net(home), _saved(home)
    sizes = {}
    for sparsity in ("0.1", "0.9"):
        done = edgekit(
            "prune",
            path,
            "--samples",
            data,
            "--all-layers",
            "--sparsity",
            sparsity,
            "-o",
            "y.tflite",
        )
        assert done.code == 0, done.err
        sizes[sparsity] = (home / "y.tflite").stat().st_size
    assert sizes["0.9"] < 0.5 * sizes["0.1"]


def test_the_report_says_what_stays_dense_and_why(edgekit: Any, home: Path) -> None:
    path, data = pointwise_net(home), _saved(home, 12)
    done = edgekit("prune", path, "--samples", data, "--board", "rpi4")
    assert done.code == 0, done.err
    assert "pruned   3 of 5 layers, 80.0% zeros" in done.out
    assert "dense    1 layer: 3x3: sparse saves less there (--all-layers)" in done.out
    assert "of 3 pruned layers sparse on rpi4" in done.out
    assert "samples  9 for fitting, 3 held out" in done.out
    assert "written  net.pruned.onnx" in done.out


def test_zeros_that_save_no_time_are_reported(edgekit: Any, home: Path) -> None:
    path, data = pointwise_net(home), _saved(home, 12)
    done = edgekit("prune", path, "--samples", data, "--board", "rpi4", "--sparsity", "0.1")
    assert done.code == 0, done.err
    assert "expected a faster model on rpi4, found no gain" in done.err


def test_labels_are_counted(edgekit: Any, home: Path) -> None:
    path, data = pointwise_net(home), _saved(home)
    graph = import_model(path)
    right = [int(evaluate(graph, {"x": x[None]}).outputs["y"].argmax()) for x in images(32)]
    wrong = [*right[:-1], (right[-1] + 1) % 5]  # the last sample is one of the 8 held out
    (home / "labels.txt").write_text("\n".join(map(str, wrong)) + "\n")
    line = ("prune", path, "--samples", data, "--sparsity", "0.3", "--evaluate", "labels.txt")
    done = edgekit(*line, "--json")
    assert done.code == 0, done.err
    found = done.document["classes"]
    assert done.document["metric"]["name"] == "top-1"
    assert found["right_before"] == 7 / 8
    assert abs(found["right_after"] - found["same"]) <= 1 / 8
    assert "; right: 87.5% before, " in edgekit(*line).out


@pytest.mark.parametrize(
    ("labels", "complaint"),
    [
        ("0\n1\n", "expected a label for each of 16 samples, found 2"),
        ("0\n" * 15 + "5\n", "expected labels from 0 to 4, found 5"),
    ],
)
def test_bad_labels(edgekit: Any, home: Path, labels: str, complaint: str) -> None:
    path, data = pointwise_net(home), _saved(home, 16)
    (home / "labels.txt").write_text(labels)
    done = edgekit("prune", path, "--samples", data, "--evaluate", "labels.txt")
    assert (done.code, done.out) == (2, "")
    assert complaint in done.complaint
    assert not (home / "net.pruned.onnx").exists()


def test_a_model_that_is_probably_broken_is_named(edgekit: Any, home: Path) -> None:
    path, data = two_branches(home, 1.0), _saved(home)
    found = {}
    for sparsity in ("0.3", "0.95"):
        line = ("prune", path, "--samples", data, "--sparsity", sparsity)
        done, document = edgekit(*line), edgekit(*line, "--json").document
        assert done.code == 0, done.err
        found[sparsity] = ("probably broken" in done.err, document["broken"], document["peaks"])
    assert found["0.3"][:2] == (False, None)
    assert found["0.3"][2]["y"] < 0.3
    assert found["0.95"][:2] == (True, "y")
    assert found["0.95"][2]["y"] > 1


def test_a_share_that_breaks_the_model_is_not_the_default(edgekit: Any, home: Path) -> None:
    noise = np.random.default_rng(3).standard_normal((24, 16, SIZE, SIZE)).astype(np.float32)
    noise **= 5  # few values are large, as scores of detectors
    path, data = two_branches(home, 1.0), _saved(home, x=noise)
    line = ("prune", path, "--samples", data)
    assert edgekit(*line, "--sparsity", "0.8", "--json").document["broken"] == "y"
    done, document = edgekit(*line), edgekit(*line, "--json").document
    assert (document["broken"], document["broken_at"]) == (None, 0.8)
    assert document["sparsity"] < 0.6 and document["peaks"]["y"] <= 1
    assert "fewer    zeros than 80%, which would probably break the model" in done.out
    assert "probably broken" not in done.err


_NAN = images(16)
_NAN[3, 0, 0, 0] = np.nan


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"x": images(16)[:, :, :5]}, "expected samples of shape [N, 16, 9, 9], found [16, 16, 5"),
        ({"x": _NAN}, "found NaN or infinity in sample 4"),
        ({"x": np.ones((16, 16, SIZE, SIZE), np.float32)}, "found constant ones"),
        ({"x": images(7)}, "expected at least 8 samples"),
    ],
)
def test_bad_samples(edgekit: Any, home: Path, arrays: Any, complaint: str) -> None:
    path = pointwise_net(home)
    done = edgekit("prune", path, "--samples", _saved(home, **arrays))
    assert (done.code, done.out) == (2, "")
    assert complaint in done.complaint
    assert sorted(p.name for p in home.iterdir()) == ["net.onnx", "samples.npz"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--sparsity", "0"), "--sparsity: expected a share of weights between 0 and 1"),
        (("--sparsity", "1"), "--sparsity: expected a share of weights between 0 and 1"),
        (("--sparsity", "1.5"), "such as 0.8, found 1.5"),
        (("--sparsity", "nan"), "such as 0.8, found nan"),
        (("--pattern", "rows"), "--pattern: expected free, block or n:m with 0 < n < m"),
        (("--pattern", "4:4"), "such as 2:4, found 4:4"),
        (("--pattern", "2:4", "--sparsity", "0.8"), "expected 0.5, the share that 2:4 removes"),
        (("--pattern", "3:5"), "expected layers to prune, found none among 5: 16 inputs do not"),
    ],
)
def test_bad_options(edgekit: Any, home: Path, options: tuple[str, ...], complaint: str) -> None:
    path, data = pointwise_net(home), _saved(home, 8)
    done = edgekit("prune", path, "--samples", data, *options)
    assert (done.code, done.out) == (2, "")
    assert complaint in done.complaint
    assert not (home / "net.pruned.onnx").exists()


def test_bad_models_and_files(edgekit: Any, home: Path) -> None:
    path, data = pointwise_net(home), _saved(home, 8)

    def complaint(*line: Any) -> str:
        done = edgekit("prune", *line)
        assert done.code == 2
        return str(done.complaint)

    assert "--samples: expected" in complaint(path)
    assert "folder, found none" in complaint(path, "--samples", "none.npz")
    assert "expected a name ending in" in complaint(path, "--samples", data, "-o", "net.bin")
    assert edgekit("quantize", path, "--samples", data, "-o", "net.int8.tflite").code == 0
    assert "an already quantized one" in complaint("net.int8.tflite", "--samples", data)
    nothing = save(model([node("Relu", ["x"], ["y"])], [value("x", [1, 16, 9, 9])], ["y"]), home)
    assert "fully connected layers to prune, found none" in complaint(nothing, "--samples", data)


@pytest.mark.peers
def test_litert_computes_the_same(edgekit: Any, home: Path, litert_session: Any) -> None:
    path, data = pointwise_net(home), _saved(home)
    assert edgekit("prune", path, "--samples", data, "-o", "net.tflite").code == 0
    graph = import_model(home / "net.tflite")
    assert any(t.sparse for t in graph.tensors.values())
    run = litert_session((home / "net.tflite").read_bytes())
    for x in images(3, seed=5):
        expected = evaluate(graph, {"x": x[None]}).outputs["y"]
        np.testing.assert_allclose(run({"x": x[None]})["y"], expected, rtol=1e-4, atol=1e-5)


def test_what_the_file_cannot_hold_is_said_before_the_work(edgekit: Any, home: Path) -> None:
    rng = np.random.default_rng(4)
    shapes = {"w": (1, 24, 3), "r": (1, 24, 6)}
    weights = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    functions = ["Sigmoid", "Softsign", "Tanh"]  # compiled as a loop, which ONNX export rejects
    nodes = [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=6, activations=functions)]
    path = save(model(nodes, [value("x", [20, 1, 3])], ["y"], weights), home, "lstm.onnx")
    done = edgekit("prune", path, "--samples", "no_samples_yet.npz")
    assert done.code == 2
    assert "(loop) cannot be written as ONNX" in done.complaint
