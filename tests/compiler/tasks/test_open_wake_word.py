"""openWakeWord's three models as one that takes the next samples, against NumPy."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.host.compiler.tasks import with_task
from edgekit.host.errors import InputError
from tests.support.onnx_models import model, node, save, value

_OPTIONS = replace(DEFAULT_OPTIONS, task="keyword")
_COUNT = 5  # embeddings that the word is heard in


def _weights():
    rng = np.random.default_rng(0)
    shapes = (1, 32), (32, 96), (96, 1)
    return [rng.normal(0, 1, shape).astype(np.float32) for shape in shapes]


def _models(folder):
    """Each has means of what it takes, times weights; returns the one of the word."""
    bands, vector, word = _weights()
    parts = [
        node("Abs", ["x"], ["a"]),
        node("Reshape", ["a", "shape"], ["r"]),
        node("ReduceMean", ["r"], ["m"], axes=[3], keepdims=1),
        node("MatMul", ["m", "w"], ["y"]),
    ]
    constants = {"w": bands / 1000, "shape": np.array([1, 1, 8, 220])}
    made = model(parts, [value("x", ["batch", "samples"])], ["y"], constants, opset=13)
    shutil.move(save(made, folder), folder / "melspectrogram.onnx")
    parts = [
        node("Squeeze", ["x", "three"], ["s"]),
        node("ReduceMean", ["s"], ["m"], axes=[1], keepdims=1),
        node("MatMul", ["m", "w"], ["p"]),
        node("Reshape", ["p", "shape"], ["y"]),
    ]
    constants = {"w": vector, "three": np.array([3]), "shape": np.array([1, 1, 1, 96])}
    made = model(parts, [value("x", ["batch", 76, 32, 1])], ["y"], constants, opset=13)
    shutil.move(save(made, folder), folder / "embedding_model.onnx")
    parts = [
        node("Mul", ["x", "x"], ["q"]),
        node("ReduceMean", ["q"], ["m"], axes=[1], keepdims=0),
        node("MatMul", ["m", "w"], ["p"]),
        node("Sigmoid", ["p"], ["y"]),
    ]
    made = model(parts, [value("x", [1, _COUNT, 96])], ["y"], {"w": word / 100}, opset=13)
    shutil.move(save(made, folder), folder / "hey_you_v0.1.onnx")
    return folder / "hey_you_v0.1.onnx"


def _scores(samples):
    bands, vector, word = _weights()
    sound = np.concatenate([np.zeros(480), samples * 32768])
    rows, vectors = np.ones((68, 32)), np.zeros((_COUNT - 1, 96))
    for start in range(0, len(samples), 1280):
        means = np.abs(sound[start : start + 1760]).reshape(8, 220).mean(1)[:, None]
        rows = np.concatenate([rows, means @ bands / 1000 / 10 + 2])[-76:]
        vectors = np.concatenate([vectors, [rows.mean(0) @ vector]])[-_COUNT:]
        yield 1 / (1 + np.exp(-(vectors**2).mean(0) @ word[:, 0] / 100))


def test_three_models_hear_the_next_samples(tmp_path):
    path = _models(tmp_path)
    made = with_task(path, import_model(path, {}), _OPTIONS)
    assert made.task is not None and made.task.labels == ("hey you",)
    assert "melspectrogram.onnx and embedding_model.onnx of openWakeWord" in made.source
    samples = np.random.default_rng(1).normal(0, 0.3, 8 * 1280)
    samples[: 3 * 1280] /= 100
    states, found = None, []
    for part in samples.astype(np.float32).reshape(8, 1, 1280):
        done = evaluate(made.graph, {made.task.input: part}, states)
        states = done.states
        found.append(done.outputs[made.task.output].item())
    expected = list(_scores(samples))
    assert np.ptp(expected) > 0.02
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_missing_and_other_files_are_told(tmp_path):
    path = _models(tmp_path)
    graph = import_model(path, {})
    shutil.copyfile(path, tmp_path / "melspectrogram.onnx")
    with pytest.raises(
        InputError, match=r"melspectrogram\.onnx: expected openWakeWord's model with"
    ):
        with_task(path, graph, _OPTIONS)
    (tmp_path / "melspectrogram.onnx").unlink()
    made = with_task(path, graph, replace(_OPTIONS, task="guess"))
    assert (
        made.task is None and "melspectrogram.onnx and embedding_model.onnx are next" in made.source
    )
