"""Features of sound that a file states: computed as NumPy computes them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks import with_task
from edgekit.host.compiler.tasks.log_mel import LogMel, log_mel
from edgekit.host.errors import InputError
from tests.compiler.tasks.test_heads import prepared
from tests.support.onnx_models import model, node, save, value


def _model(folder, shape):
    """Gives its input as scores, in a row."""
    nodes = [node("Reshape", ["x", "row"], ["y"])]
    constants = {"row": np.array([1, int(np.prod(shape))])}
    return save(model(nodes, [value("x", [1, *shape])], ["y"], constants, opset=13), folder)


def _hertz_to_mel(hertz):
    return 2595 * np.log10(1 + np.asarray(hertz) / 700)


def _expected(x, rows, window, step, fft, bands, low, high, power, offset, coefficients):
    edges = np.linspace(_hertz_to_mel(low), _hertz_to_mel(high), bands + 2)
    mel = _hertz_to_mel(np.arange(fft // 2 + 1) * 16000 / fft)
    weights = np.stack([np.interp(mel, edges[i : i + 3], [0, 1, 0]) for i in range(bands)], 1)
    weights[0] = 0
    hann = np.hanning(window + 1)[:-1]
    made = []
    for row in range(rows):
        lines = np.abs(np.fft.rfft(x[row * step : row * step + window] * hann, fft)) ** power
        logs = np.log(lines @ weights + offset)
        if coefficients:
            k = np.arange(coefficients)[:, None]
            waves = np.cos(np.pi * k * (2 * np.arange(bands) + 1) / (2 * bands))
            logs = waves @ logs * np.sqrt(2 / bands)
        made.append(logs)
    return np.array(made)


_PLAIN = "window = 400\nstep = 100\nbands = 12\nlow = 60\nhigh = 7600.0\npower = 2\noffset = 0.01"
_OWN = (400, 100, 512, 12, 60, 7600, 2, 0.01)
_TINY = (480, 320, 512, 40, 20, 4000, 1, 1e-6)


@pytest.mark.parametrize(
    ("text", "shape", "numbers"),
    [
        (_PLAIN, (7, 12), (*_OWN, 0)),
        (_PLAIN, (1, 12, 7), (*_OWN, 0)),
        (f"{_PLAIN}\ncoefficients = 5", (7, 1, 5), (*_OWN, 5)),
        ('like = "mlperf-tiny"', (490,), (*_TINY, 10)),
        ('like = "mlperf-tiny"\npeak = false\nstep = 160', (49, 10, 1), (480, 160, *_TINY[2:], 10)),
    ],
)
def test_rows_are_logarithms_of_mel_bands_or_mfcc(tmp_path, text, shape, numbers):
    path = _model(tmp_path, shape)
    (tmp_path / "m.toml").write_text(f"[features]\n{text}\n")
    made = with_task(path, import_model(path), CompileOptions())
    assert made.task is not None and (made.task.kind, made.task.rate) == ("keyword", 16000)
    assert "the features of sound in m.toml" in made.source
    (name,) = made.graph.inputs
    count = made.graph.tensors[name].shape[1]
    rows = int(np.prod(shape)) // (numbers[-1] or numbers[3])
    assert count == numbers[0] + (rows - 1) * numbers[1]
    x = np.random.default_rng(0).normal(0, 0.1, count)
    found = evaluate(made.graph, {name: x[None].astype(np.float32)}).outputs["y"]
    scaled = x / x.max() if text == 'like = "mlperf-tiny"' else x
    expected = _expected(scaled, rows, *numbers)
    expected = expected.T if shape == (1, 12, 7) else expected
    np.testing.assert_allclose(found.ravel(), expected.ravel(), atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize(
    ("shape", "like"),
    [((49, 10), "mlperf-tiny"), ((98, 40), "speech-commands"), ((90, 80), "kaldi"),
     ((80, 3000), "whisper"), ((7, 5), "kaldi")],
)  # fmt: skip
def test_features_that_nothing_states_are_asked_for(tmp_path, shape, like):
    path = _model(tmp_path, shape)
    said = with_task(path, import_model(path), CompileOptions(task="guess")).source
    assert "m.toml next to it how they are computed, such as the lines [features] and" in said
    assert f'then like = "{like}"' in said


def test_silence_has_features(tmp_path):
    path = _model(tmp_path, (49, 10))
    (tmp_path / "m.toml").write_text('[features]\nlike = "mlperf-tiny"\n')
    graph = with_task(path, import_model(path), CompileOptions()).graph
    count = graph.tensors[graph.inputs[0]].shape[1]
    found = evaluate(graph, {graph.inputs[0]: np.zeros((1, count), np.float32)}).outputs["y"]
    expected = np.zeros((49, 10))
    expected[:, 0] = 40 * np.log(1e-6) * np.sqrt(2 / 40)
    np.testing.assert_allclose(found.reshape(49, 10), expected, atol=1e-3)


@pytest.mark.parametrize("normalize", [False, True])
def test_features_of_whisper_by_a_table_or_by_files_of_hugging_face(tmp_path, normalize):
    nodes = [node("ReduceMean", ["input_features"], ["m"], axes=[2], keepdims=0),
             node("Softmax", ["m"], ["y"])]  # fmt: skip
    path = save(model(nodes, [value("input_features", [1, 80, 40])], ["y"], opset=13), tmp_path)
    assert with_task(path, import_model(path), CompileOptions()).task is None
    x = np.random.default_rng(0).normal(0.01, 0.1, (1, 6400)).astype(np.float32)
    own = (x - x.mean()) / np.sqrt(x.var() + 1e-7) if normalize else x
    rows = evaluate(log_mel(LogMel(16000, 6400, 80), "x", "rows"), {"x": own}).outputs["rows"]
    powers = np.exp(rows[0].mean(1))
    labels = {str(i): f"word {i}" for i in range(80)}
    hub = {
        "config.json": {
            "architectures": ["WhisperForAudioClassification"], "model_type": "whisper",
            "id2label": labels,
        },
        "preprocessor_config.json": {
            "feature_extractor_type": "WhisperFeatureExtractor", "do_normalize": normalize,
            "padding_side": "left" if normalize else "right",
        },
    }  # fmt: skip
    flag = str(normalize).lower()
    table = f'[features]\nlike = "whisper"\nnormalize = {flag}\nlast = {flag}\n'
    table += f"labels = {list(labels.values())}\n"
    for files in ({n: json.dumps(v) for n, v in hub.items()}, {"m.toml": table}):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        made = with_task(path, import_model(path), CompileOptions())
        assert made.task is not None and made.task.labels == tuple(labels.values())
        assert made.task.fit == ("last" if normalize else "stretch")
        (name,) = made.graph.inputs
        found = evaluate(made.graph, {name: x}).outputs["y"]
        np.testing.assert_allclose(found[0], powers / powers.sum(), rtol=1e-4)
        for name in files:
            (tmp_path / name).unlink()


@pytest.mark.parametrize(("end", "fit"), [("Sigmoid", "last"), ("Tanh", "")])
def test_smart_turn_hears_the_last_seconds(tmp_path, end, fit):
    """No file says how its features are computed; a share of 8 s of them shows it."""
    nodes = [node("ReduceMean", ["input_features"], ["m"], axes=[1, 2], keepdims=0),
             node("Reshape", ["m", "one"], ["n"]), node(end, ["n"], ["logits"])]  # fmt: skip
    x, constants = value("input_features", ["n", 80, 800]), {"one": np.array([1, 1])}
    path = save(model(nodes, [x], ["logits"], constants, opset=13), tmp_path)
    assert with_task(path, import_model(path), CompileOptions()).task is None
    made = with_task(path, import_model(path), CompileOptions(task="guess"))
    assert (made.task.fit if made.task else "") == fit
    assert "of Smart Turn, whose shapes it has" in made.source or not fit
    assert made.graph.tensors[made.graph.inputs[0]].shape == ((1, 128000) if fit else (1, 80, 800))


def test_features_of_mlperf_tiny_are_known_by_the_name(tmp_path):
    path = _model(tmp_path, (49, 10)).rename(tmp_path / "kws_ref_model.onnx")
    made = with_task(path, import_model(path), CompileOptions(task="guess"))
    assert made.task is not None and made.task.rate == 16000
    (samples,) = made.graph.inputs
    assert made.graph.tensors[samples].shape == (1, 15840)  # of 49 windows
    assert with_task(path, import_model(path), CompileOptions()).task is None
    path = path.rename(tmp_path / "kws.onnx")
    assert with_task(path, import_model(path), CompileOptions(task="guess")).task is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[features", "m.toml: expected TOML, found"),
        (
            '[features]\nlike = "kws"',
            "like: expected mlperf-tiny or hello-edge or speech",
        ),
        ("[features]\nmels = 40", "expected like, rate, window, .*, found 'mels'"),
        ('[features]\nstep = "20 ms"', "step: expected a number, found '20 ms'"),
        ("[features]\nwindow = 1024", "expected fft of at least window"),
        ("[features]\nhigh = 9000", "expected low and high frequencies up to 8000"),
        ("[features]\npeak = 1", "peak: expected true or false, found 1"),
        ("[features]\nlabels = [1]", "labels: expected a list of texts"),
        (
            '[features]\nlike = "whisper"',
            r"expected an input \[1, 80 or 128, frames\]",
        ),
        ('[features]\nlike = "whisper"\nstep = 80', "expected like, normalize, .*, found 'step'"),
        ("[features]\nbands = 13", "rows of 13 numbers, as 'features' says, found 'x' .1, 49, 10."),
    ],
)
def test_a_file_that_contradicts_the_model_or_itself_is_refused(tmp_path, text, error):
    path = _model(tmp_path, (49, 10))
    (tmp_path / "m.toml").write_text(text)
    with pytest.raises(InputError, match=error):
        with_task(path, import_model(path), CompileOptions())


def test_other_tables_and_tasks_leave_the_model_as_it_is(tmp_path):
    path = _model(tmp_path, (49, 10))
    (tmp_path / "m.toml").write_text("[tool]\nname = 1\n")
    assert with_task(path, import_model(path), CompileOptions()).task is None
    (tmp_path / "m.toml").write_text('[features]\nlike = "mlperf-tiny"\n')
    assert with_task(path, import_model(path), CompileOptions(task="none")).task is None


@pytest.mark.parametrize(("samples", "rate"), [(144_000, 48_000), (143_999, 16_000)])
def test_the_window_of_birdnet_has_its_rate_and_scores(tmp_path, samples, rate):
    """Several birds may sing at once: BirdNET's program takes the sigmoid of each score."""
    constants = {"from": np.array([0]), "to": np.array([3]), "axis": np.array([1])}
    nodes = [node("Slice", ["x", "from", "to", "axis"], ["y"])]
    made = model(nodes, [value("x", [1, samples])], ["y"], constants, opset=13)
    (tmp_path / "m.txt").write_text("Wren\nRobin\nLark\n")
    found = prepared(save(made, tmp_path))
    assert found.task is not None and found.task.rate == rate
    x = np.zeros((1, samples), np.float32)
    x[0, :3] = -1, 2, 3
    scores = evaluate(found.graph, {"x": x}).outputs[found.task.output]
    shares = np.exp(x[:, :3]) / np.exp(x[:, :3]).sum()
    expected = 1 / (1 + np.exp(-x[:, :3])) if rate == 48_000 else shares
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
