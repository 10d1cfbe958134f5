"""`quantize --evaluate` and `prune --evaluate`: the task's metric before and after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from tests.cli.test_hearing import _RATE, _wav, _words
from tests.cli.test_transcribe import spoken, transcriber
from tests.support.onnx_models import model, node, save, value
from tests.support.prune_models import SIZE, pointwise_net

_COUNT = 16  # of which 4 are held out
_HELD_OUT = (3, 7, 11, 15)


def _with_metadata(path: Path, **more: Any) -> Path:
    made = onnx.load(path)
    for key, text in more.items():
        entry = made.metadata_props.add()
        entry.key, entry.value = key, str(text)
    path.write_bytes(made.SerializeToString())
    return path


def _detector(folder: Path) -> Path:
    """Finds a cat at the left of what is red, and a hat at the right of what is green. Its outputs
    are those of RF-DETR: boxes, and logits of two queries."""
    weights = np.zeros((4, 3), np.float32)
    weights[0, 0] = weights[3, 1] = 3
    constants = {
        "w": weights[:, :, None, None],
        "b": np.array([0, -8, -8, 0], np.float32),
        "zero": np.zeros(1, np.float32),
        "boxes": np.array([[[0.25, 0.5, 0.3, 0.5], [0.75, 0.25, 0.5, 0.5]]], np.float32),
        "shape": np.array([1, 2, 2]),
    }
    nodes = [
        node("Conv", ["images", "w", "b"], ["colors"]),
        node("GlobalAveragePool", ["colors"], ["means"]),
        node("Reshape", ["means", "shape"], ["labels"]),
        node("ReduceMean", ["images"], ["mean"], keepdims=0),
        node("Mul", ["mean", "zero"], ["none"]),
        node("Add", ["boxes", "none"], ["dets"]),
    ]
    made = model(nodes, [value("images", [1, 3, 64, 96])], ["dets", "labels"], constants, opset=13)
    return _with_metadata(save(made, folder), task="detect", names={0: "cat", 1: "hat"})


def _annotations(**more: Any) -> dict[str, Any]:
    """Those of the pictures that `scenes` makes. The last one that is held out has its box
    elsewhere."""
    images = [{"id": i, "file_name": f"p{i}.png"} for i in range(_COUNT)]
    boxes = [[9.6, 16, 28.8, 32], [48, 0, 48, 32]]
    entries = [
        {"image_id": i, "category_id": i // 2 % 2, "iscrowd": 0, "bbox": boxes[i // 2 % 2]}
        for i in range(_COUNT)
    ]
    entries[_HELD_OUT[-1]]["bbox"] = [0, 40, 20, 20]
    categories = [{"id": 0, "name": "cat"}, {"id": 1, "name": "hat"}]
    return {"images": images, "annotations": entries, "categories": categories, **more}


@pytest.fixture
def scenes(home: Path) -> Path:
    """Pictures that are red, or green, and annotations of them."""
    (home / "photos").mkdir()
    rng = np.random.default_rng(4)
    for i in range(_COUNT):
        pixels = rng.integers(0, 20, (64, 96, 3), np.uint8)
        pixels[:, :, i // 2 % 2] += np.uint8(180 + 3 * i)
        Image.fromarray(pixels).save(home / f"photos/p{i}.png")
    (home / "instances.json").write_text(json.dumps(_annotations()))
    return home / "photos"


@pytest.mark.slow
def test_boxes_of_held_out_pictures_are_compared(edgekit: Any, home: Path, scenes: Path) -> None:
    line = ("quantize", _detector(home), "--samples", scenes, "--evaluate", "instances.json")
    done = edgekit(*line, "--json")
    assert done.code == 0, done.err
    found = done.document["metric"]
    # p3, p7, p11 and p15 are green: three of four hats are where they should be.
    assert found["name"] == "mAP"
    assert 0.5 < found["before"] < 0.8
    assert found["after"] == pytest.approx(found["before"], abs=0.1)
    only = [each for each in _annotations()["images"] if each["id"] in _HELD_OUT]
    (scenes / "held.json").write_text(json.dumps(_annotations(images=only)))
    run = edgekit("run", "m.onnx", "--input", scenes, "--evaluate", scenes / "held.json", "--json")
    assert run.document["evaluation"]["every"] == pytest.approx(found["before"], abs=1e-6)
    text = edgekit(*line).out
    assert f"mAP      {found['before']:.4f} in floats, {found['after']:.4f} in int8" in text
    assert "of 4 files held out\n" in text


@pytest.fixture
def colors(home: Path) -> Path:
    """A classifier, and pictures with lines of what it finds in them; of the last one, it is
    wrong."""
    names = dict(enumerate("abcde"))
    path = _with_metadata(pointwise_net(home, channels=3), task="classify", names=names)
    graph, rng, lines = import_model(path), np.random.default_rng(2), []
    (home / "photos").mkdir()
    for i in range(_COUNT):
        pixels = rng.integers(0, 256, (3, 3, 3), np.uint8).repeat(3, 0).repeat(3, 1)
        Image.fromarray(pixels).save(home / f"photos/p{i}.png")
        x = pixels.transpose(2, 0, 1)[None].astype(np.float32) / 255
        best = int(evaluate(graph, {"x": x}).outputs["y"].argmax())
        lines.append(f"p{i}.png,{names[(best + (i == _HELD_OUT[-1])) % 5]}")
    (home / "right.csv").write_text("\n".join(lines))
    return path


@pytest.mark.slow
def test_classes_of_lines_are_compared(edgekit: Any, colors: Path) -> None:
    given = ("--samples", "photos", "--evaluate", "right.csv")
    done = edgekit("prune", colors, *given, "--sparsity", "0.3", "--json")
    assert done.code == 0, done.err
    found = done.document["metric"]
    assert (found["name"], found["before"]) == ("top-1", 0.75)
    assert found["after"] in (0.5, 0.75, 1.0)
    text = edgekit("quantize", colors, *given).out
    assert "\ntop-1    0.7500 in floats, " in text
    assert "; right: " not in text


@pytest.mark.parametrize(
    ("labels", "text", "said"),
    [
        ("x.csv", "p3.png,a\nq.png,b\n", "expected the file photos/q.png, found none there; name"),
        ("x.csv", "p3.png,a\n../net.onnx,b\n", "net.onnx, which is none of the samples; leave its"),
        ("x.csv", "p0.png,a\n", "held out (every fourth, such as p11.png, p15.png, p3.png), found"),
        ("x.csv", "p3.png,pink\n", "expected labels of the model, such as 'a', or numbers below 5"),
        ("x.txt", "cat\n", "lines of file and label or text, or a folder of each class, found"),
        ("x.json", json.dumps(_annotations()), "expected a model that can detect, for --evaluate"),
        ("x.json", "{}", "expected COCO's instances.json"),
        ("photos", "", "expected a folder of files for each class, found none"),
    ],
)
def test_labels_that_do_not_fit_are_one_line(
    edgekit: Any, home: Path, colors: Path, labels: str, text: str, said: str
) -> None:
    if text:
        (home / labels).write_text(text)
    for command in ("quantize", "prune"):
        done = edgekit(command, colors, "--samples", "photos", "--evaluate", labels)
        assert (done.code, done.out) == (2, "")
        assert said in done.complaint
    assert not [*home.glob("net.*.onnx")]


def test_files_are_no_labels_of_arrays(edgekit: Any, home: Path, scenes: Path) -> None:
    np.savez(home / "x.npz", images=np.zeros((8, 3, 64, 96), np.float32))
    given = ("--samples", "x.npz", "--evaluate", "instances.json")
    done = edgekit("quantize", _detector(home), *given)
    assert done.code == 2
    assert "expected a class number for each sample in x.npz, found other labels" in done.complaint


def test_a_task_without_a_metric_is_one_line(edgekit: Any, home: Path, scenes: Path) -> None:
    constants = {"w": np.ones((2, 3, 1, 1), np.float32)}
    nodes = [node("Conv", ["images", "w"], ["y"])]
    path = save(model(nodes, [value("images", [1, 3, SIZE, SIZE])], ["y"], constants), home)
    done = edgekit("prune", path, "--samples", scenes, "--evaluate", "instances.json")
    assert done.code == 2
    assert "expected a model whose task has a metric (detect, " in done.complaint
    assert "found no known task; leave out --evaluate" in done.complaint


@pytest.mark.slow
def test_words_and_texts_of_sounds_are_compared(edgekit: Any, home: Path) -> None:
    (home / "s").mkdir()
    times, names = np.arange(_RATE // 2) / _RATE, ("silence", "low", "high")
    for i in range(_COUNT):
        tone = np.sin(2 * np.pi * (0, 200, 3000)[i % 3] * times)
        _wav(home / f"s/{i}.wav", (0.3 + 0.02 * i) * tone)
    lines = [f"{i}.wav,{names[i % 3]}" for i in range(_COUNT)]
    lines[_HELD_OUT[1]] = "7.wav,high"  # a low one is heard, and the high one missed
    (home / "right.csv").write_text("\n".join(lines))
    given = ("--samples", "s", "--evaluate", "right.csv")
    done = edgekit("quantize", _words(home), *given, "--json")
    assert done.code == 0, done.err
    # 3 is silent and 15, too; 7 and 11 are heard as low and high.
    assert done.document["metric"]["name"] == "F1"
    assert done.document["metric"]["before"] == pytest.approx(0.5)
    for i in range(_COUNT):
        _wav(home / f"s/{i}.wav", spoken("AB BA"[: 1 + i % 5], 0.1 + 0.01 * i))
    lines = [f"{i}.wav,{'AB BA'[: 1 + i % 5].strip()}" for i in range(_COUNT)]
    lines[_HELD_OUT[0]] = "3.wav,AB C"
    (home / "right.csv").write_text("\n".join(lines))
    done = edgekit("quantize", transcriber(home), *given, "--json")
    assert done.code == 0, done.err
    # 3, 7, 11 and 15 say "AB B", "AB", "AB" and "A". Ranges are of sound as the model takes it,
    # which is normalized; those of quieter sound gave a model that hears nothing.
    right = pytest.approx(1 / 5)
    assert done.document["metric"] == {"name": "WER", "before": right, "after": right}


@pytest.mark.slow
def test_a_model_that_gives_no_results_any_more_is_one_line(
    edgekit: Any, home: Path, scenes: Path
) -> None:
    """Corners, scores and classes have one scale in 8 bits, so that no class is a whole number."""
    constants = {
        "w": np.array([[0.9, 0, 0], [0, 0.9, 0]], np.float32)[:, :, None, None],
        "boxes": np.array([[[8, 16, 40, 48], [48, 0, 96, 32]]], np.float32),
        "classes": np.array([[[0], [1]]], np.float32),
        "shape": np.array([1, 2, 1]),
    }
    nodes = [
        node("Conv", ["images", "w"], ["colors"]),
        node("GlobalAveragePool", ["colors"], ["means"]),
        node("Reshape", ["means", "shape"], ["scores"]),
        node("Concat", ["boxes", "scores", "classes"], ["y"], axis=2),
    ]
    path = save(model(nodes, [value("images", [1, 3, 64, 96])], ["y"], constants), home)
    path = _with_metadata(path, task="detect", names={0: "cat", 1: "hat"})
    done = edgekit("quantize", path, "--samples", scenes, "--evaluate", "instances.json")
    assert (done.code, done.out) == (2, "")
    assert "the written model gives no results: expected whole numbers of cl" in done.complaint
