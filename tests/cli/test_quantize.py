"""`edgekit quantize` and `compile --quantize`, on a small network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.exporters import write_tflite
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.inputs import read_attached
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.transforms.passes.quantized import integer_form
from tests.support.onnx_models import model, node, save, value
from tests.support.places import few_or_all
from tests.support.quantize_models import CLASSES, SIZE, classifier, samples, save_samples

pytestmark = pytest.mark.slow

_MODELS = Path(__file__).parents[2] / "models"


def _float_outputs(path: Path, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    graph = import_model(path)
    return np.stack([evaluate(graph, {"x": x[None]}).outputs["y"] for x in inputs])


def _board_outputs(edgekit: Any, file: str, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    made = []
    for x in inputs:
        np.savez("x.npz", x=x[None])
        done = edgekit("run", file, "--input", "x.npz", "--output", "y.npz")
        assert done.code == 0, done.err
        with np.load("y.npz") as found:
            made.append(found["y"])
    return np.stack(made)


def _cosine(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


@pytest.mark.parametrize(
    "file", few_or_all(["net.int8.tflite", "net.int8.onnx"], ["net.int8.onnx"])
)
def test_a_quantized_file_computes_what_the_floats_do(edgekit: Any, home: Path, file: str) -> None:
    path, data = classifier(home), save_samples(home)
    done = edgekit("quantize", path, "--samples", data, "-o", file, "--json")
    assert done.code == 0, done.err
    document = done.document
    assert document["schema"] == "edgekit.quantize/1"
    assert document["samples"] == {"calibration": 24, "held_out": 8}
    assert document["outputs"]["y"]["cosine"] >= 0.995
    assert [layer["quantized"] for layer in document["layers"]].count(True) >= 5
    graph = integer_form(import_model(home / file))
    products = [n for n in graph.nodes if isinstance(n.op, ops.Weighted)]
    assert [graph.tensors[n.inputs[1] or ""].dtype.value for n in products] == ["s8"] * 4
    others = samples(4, seed=9)
    made = _board_outputs(edgekit, file, others)
    assert _cosine(made, _float_outputs(path, others)) >= 0.995


def test_compile_quantizes_in_one_step(edgekit: Any, home: Path) -> None:
    path, data = classifier(home), save_samples(home)
    plain = edgekit("compile", path, "-o", "float.ekb", "--json").document
    done = edgekit("compile", path, "--samples", data, "-o", "int8.ekb", "--json")
    assert done.code == 0, done.err
    assert "quantized to int8: cosine 0.99" in done.err
    assert done.document["release"] != plain["release"]
    others = samples(2, seed=9)
    made = _board_outputs(edgekit, "int8.ekb", others)
    assert _cosine(made, _float_outputs(path, others)) >= 0.995


def test_labels_are_counted(edgekit: Any, home: Path) -> None:
    path, given = classifier(home), samples(32)
    data = save_samples(home, x=given)
    right = _float_outputs(path, given).reshape(32, CLASSES).argmax(axis=1)
    (home / "labels.txt").write_text("\n".join(map(str, right)) + "\n")
    done = edgekit("quantize", path, "--samples", data, "--evaluate", "labels.txt", "--json")
    assert done.code == 0, done.err
    found = done.document["classes"]
    assert done.document["metric"]["name"] == "top-1"
    assert found["float_right"] == 1.0
    assert found["quantized_right"] == found["same"] >= 0.75
    text = edgekit("quantize", path, "--samples", data, "--evaluate", "labels.txt")
    assert "classes  " in text.out
    assert "in floats" in text.out
    assert "written  net.int8.onnx" in text.out


def test_a_folder_of_arrays(edgekit: Any, home: Path) -> None:
    path, folder = classifier(home), home / "arrays"
    folder.mkdir()
    for i, x in enumerate(samples(12)):
        np.save(folder / f"{i}.npy", x[None])
    done = edgekit("quantize", path, "--samples", folder, "--json")
    assert done.code == 0, done.err
    assert done.document["samples"] == {"calibration": 9, "held_out": 3}


_NAN = samples(16)
_NAN[11, 0, 0, 0] = np.nan


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"x": samples(16)[:, :, :5]}, "expected samples of shape [N, 3, 13, 13], found [16, 3, 5"),
        ({"x": _NAN}, "found NaN or infinity in sample 12"),
        ({"x": np.ones((16, 3, SIZE, SIZE), np.float32)}, "found constant ones"),
        ({"x": samples(1).repeat(16, axis=0)}, "found 16 copies of one"),
        ({"x": samples(7)}, "expected at least 8 samples"),
        ({"x": samples(16), "z": samples(16)}, "expected arrays x, found x, z"),
        ({"x": samples(16).astype("U4")}, "expected f32 values"),
    ],
)
def test_bad_samples(edgekit: Any, home: Path, arrays: Any, complaint: str) -> None:
    path = classifier(home)
    data = save_samples(home, **arrays)
    for line in (("quantize", path, "--samples", data), ("compile", path, "--samples", data)):
        done = edgekit(*line)
        assert (done.code, done.out) == (2, "")
        assert complaint in done.complaint
        assert "samples.npz: " in done.complaint
    assert sorted(p.name for p in home.iterdir()) == ["net.onnx", "samples.npz"]


@pytest.mark.parametrize(
    ("labels", "complaint"),
    [
        ("0\n1\n", "expected a label for each of 16 samples, found 2"),
        ("0\n" * 15 + "5\n", "expected labels from 0 to 4, found 5"),
        ("0\n" * 15 + "cat\n", "expected a class number on each line, found 'cat' on line 16"),
        (None, "expected a file with labels, found none"),
    ],
)
def test_bad_labels(edgekit: Any, home: Path, labels: str | None, complaint: str) -> None:
    path, data = classifier(home), save_samples(home, 16)
    if labels is not None:
        (home / "labels.txt").write_text(labels)
    done = edgekit("quantize", path, "--samples", data, "--evaluate", "labels.txt")
    assert done.code == 2
    assert complaint in done.complaint


def test_bad_models_and_files(edgekit: Any, home: Path) -> None:
    path, data = classifier(home), save_samples(home, 12)

    def complaint(*line: Any) -> str:
        done = edgekit("quantize", *line)
        assert done.code == 2
        return str(done.complaint)

    assert "--samples: expected" in complaint(path)
    assert "folder, found none" in complaint(path, "--samples", "none.npz")
    assert "expected a name ending in" in complaint(path, "--samples", data, "-o", "net.bin")
    assert "expected a number between 0 and 1" in complaint(
        path, "--samples", data, "--min-cosine", "1"
    )
    assert edgekit("quantize", path, "--samples", data, "-o", "net.tflite").code == 0
    assert "found the model" in complaint("net.tflite", "--samples", data, "-o", "net.tflite")
    assert "an already quantized one" in complaint("net.tflite", "--samples", data)
    nothing = save(model([node("Relu", ["x"], ["y"])], [value("x", [1, 3, 13, 13])], ["y"]), home)
    assert "found none; compile it unchanged" in complaint(nothing, "--samples", data)
    assert "expected a model with one output" in complaint(
        _two_outputs(home), "--samples", data, "--evaluate", "labels.txt"
    )


@pytest.mark.peers
def test_litert_computes_the_same(edgekit: Any, home: Path, litert_session: Any) -> None:
    path, data = classifier(home), save_samples(home)
    assert edgekit("quantize", path, "--samples", data, "-o", "net.int8.tflite").code == 0
    graph = import_model(home / "net.int8.tflite")
    run = litert_session((home / "net.int8.tflite").read_bytes())
    for x in samples(3, seed=5):
        expected = evaluate(graph, {"x": x[None]}).outputs["y"]
        np.testing.assert_array_equal(run({"x": x[None]})["y"], expected)


def test_probabilities_that_are_next_to_nothing_keep_no_layer_in_floats(
    edgekit: Any, home: Path
) -> None:
    weights = {"w": np.full((4, 3, 1, 1), 0.01, np.float32), "b": np.full(4, -9, np.float32)}
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"]),
        node("Sigmoid", ["c"], ["y"]),
        node("Conv", ["x", "w"], ["z"]),
    ]
    made = model(nodes, [value("x", [1, 3, SIZE, SIZE])], ["y", "z"], weights)
    path, data = save(made, home, "rare.onnx"), save_samples(home)
    done = edgekit("quantize", path, "--samples", data, "--json")
    assert done.code == 0, done.err
    assert "warning" not in done.err
    assert all(layer["quantized"] for layer in done.document["layers"])
    assert done.document["outputs"]["y"]["cosine"] == 1.0
    assert done.document["outputs"]["z"]["cosine"] >= 0.995


def _two_outputs(home: Path) -> Path:
    weights = {"w": np.ones((4, 3, 1, 1), np.float32)}
    nodes = [node("Conv", ["x", "w"], ["y"]), node("Relu", ["y"], ["z"])]
    made = model(nodes, [value("x", [1, 3, SIZE, SIZE])], ["y", "z"], weights)
    return save(made, home, "two.onnx")


def test_notes_on_inputs_and_labels_stay_with_the_model(edgekit: Any, home: Path) -> None:
    notes = read_attached(_MODELS / "hand_landmark_lite.tflite")
    described = home / "described.tflite"
    graph = import_model(classifier(home))
    described.write_bytes(write_tflite(graph, notes.metadata, notes.files))
    done = edgekit("quantize", described, "--samples", save_samples(home), "-o", "net.tflite")
    assert done.code == 0, done.err
    assert read_attached(home / "net.tflite") == notes and notes.files


def test_a_target_out_of_reach_is_one_line(edgekit: Any, home: Path) -> None:
    path, data = classifier(home), save_samples(home, 12)
    done = edgekit("quantize", path, "--samples", data, "--min-cosine", "0.99999999")
    assert done.code == 0, done.err
    (said,) = [line for line in done.err.splitlines() if "warning" in line]
    assert "the target was not reached: an output's cosine is 0.99" in said
    assert "expected at least 0.99999999" in said
    assert (home / "net.int8.onnx").is_file()


def test_what_the_file_cannot_hold_is_said_before_the_work(edgekit: Any, home: Path) -> None:
    rng = np.random.default_rng(4)
    sizes = (("w", 3), ("r", 6))
    weights = {n: rng.standard_normal((1, 24, k)).astype(np.float32) for n, k in sizes}
    functions = ["Sigmoid", "Softsign", "Tanh"]  # compiled as a loop, which ONNX export rejects
    nodes = [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=6, activations=functions)]
    path = save(model(nodes, [value("x", [20, 1, 3])], ["y"], weights), home, "lstm.onnx")
    done = edgekit("quantize", path, "--samples", "no_samples_yet.npz")
    assert done.code == 2
    assert "(loop) cannot be written as ONNX" in done.complaint
    assert "compile the model without writing it" in done.complaint


@pytest.mark.parametrize(
    "file", few_or_all(["net.int8.tflite", "net.int8.onnx", None], ["net.int8.tflite", None])
)
def test_the_loss_of_held_out_samples_goes_with_the_release(
    edgekit: Any, home: Path, file: str | None
) -> None:
    path, data = classifier(home), save_samples(home)
    if file is None:
        model, how = path, ("--samples", data)
    else:
        done = edgekit("quantize", path, "--samples", data, "-o", file, "--json")
        (output,) = done.document["outputs"].values()
        model, how = home / file, ()
    done = edgekit("compile", model, *how, "-o", "int8.ekb", "--json")
    assert done.code == 0, done.err
    loss = done.document["loss"]
    assert 0.995 <= loss["cosine"] < 1 and 0 < loss["off"] < 0.5 and loss["samples"] == 8
    if file is not None:
        assert (loss["cosine"], loss["off"]) == (output["cosine"], output["off"])
    shown = f"outputs of 8 held-out samples have a cosine of {loss['cosine']:.5f} with the float"
    assert shown in edgekit("deploy", "int8.ekb", "--board", "local").out
    assert shown in edgekit("status", "--board", "local").out


@pytest.mark.parametrize("said", [b"{", b"[]", b'{"cosine": 2, "off": 0, "samples": 1}', b"\xff"])
def test_what_a_file_says_of_its_loss_is_not_trusted(edgekit: Any, home: Path, said: bytes) -> None:
    graph = import_model(classifier(home))
    (home / "odd.tflite").write_bytes(write_tflite(graph, {"edgekit.loss": said}))
    done = edgekit("compile", "odd.tflite", "-o", "odd.ekb", "--json")
    assert done.code == 0, done.err
    assert done.document["loss"] is None
