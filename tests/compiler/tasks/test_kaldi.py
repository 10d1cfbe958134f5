"""Models that take Kaldi's features of sound: recognized, and fed as NumPy computes the features,
one step after the other."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from edgekit.device.runtime.agent.sound_vectors import vector_of_sound
from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.agent.task import TaskSpec
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks import import_for_task, with_task
from edgekit.host.errors import InputError
from tests.support.onnx_models import model, node, save, value

_CURVES = {
    "povey": lambda n: (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n) / (n - 1))) ** 0.85,
    "hamming": lambda n: 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(n) / (n - 1)),
    "hanning": lambda n: 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n) / (n - 1)),
}


def _expected(x, curve, high=8000, bands=80, mirrored=False):
    """Kaldi's compute-fbank-feats without dither; x as 16-bit numbers, or from -1 to 1."""
    count = (len(x) + 80) // 160 if mirrored else 1 + (len(x) - 400) // 160
    edges = 1127 * np.log(1 + np.array([20, high]) / 700)
    edges = np.linspace(*edges, bands + 2)
    mel = 1127 * np.log(1 + np.arange(257) * 16000 / 512 / 700)
    weights = np.stack([np.interp(mel, edges[i : i + 3], [0, 1, 0]) for i in range(bands)], 1)
    weights[-1] = 0
    rows = []
    for row in range(count):
        places = np.arange(400) + 160 * row - (120 if mirrored else 0)
        places = np.where(places < 0, -places - 1, places)
        places = np.where(places >= len(x), 2 * len(x) - 1 - places, places)
        window = x[places].astype(np.float64)
        window -= window.mean()
        window -= 0.97 * np.concatenate([window[:1], window[:-1]])
        power = np.abs(np.fft.rfft(window * _CURVES[curve](400), 512)) ** 2
        rows.append(np.log(np.maximum(power @ weights, np.finfo(np.float32).eps)))
    return np.array(rows)


def _sound(count):
    rng = np.random.default_rng(count)
    return (0.1 + 0.2 * np.sin(np.arange(count) * 0.05) + rng.normal(0, 0.02, count)).astype("f4")


def _prepared(path, **options):
    own = CompileOptions(task=options.pop("task", "guess"))
    return with_task(path, import_for_task(path, own), own)


def _file(folder, nodes, inputs, outputs, constants=(), name="m.onnx", **about):
    made = model(nodes, inputs, outputs, dict(constants), opset=13)
    for key, text in about.items():
        entry = made.metadata_props.add()
        entry.key, entry.value = key, str(text)
    return save(made, folder, name)


def _with_shape(path, name, shape):
    """The file with the shape of its output."""
    made = onnx.load(path)
    (end,) = (each for each in made.graph.output if each.name == name)
    end.CopyFrom(value(name, shape))
    onnx.save(made, path)


def _run(made, x):
    (name,) = made.graph.inputs
    assert made.graph.tensors[name].shape == (1, len(x))
    return evaluate(made.graph, {name: x[None]}).outputs[made.task.output]


@pytest.mark.parametrize(
    ("name", "about", "curve", "loud"),
    [
        ("m.onnx", {"framework": "wespeaker"}, "hamming", 32768),
        ("m.onnx", {"framework": "3d-speaker", "normalize_samples": 1}, "povey", 1),
        ("campplus.onnx", {}, "povey", 1),
        ("model.onnx", {}, "hamming", 32768),
    ],
)
def test_vectors_of_speakers(tmp_path, name, about, curve, loud):
    sound = '{"feature_extractor_type": "WeSpeakerFeatureExtractor"}'  # of Hugging Face's folders
    (tmp_path / "preprocessor_config.json").write_text(sound if name == "model.onnx" else "{}")
    weights = np.random.default_rng(0).normal(0, 1, (80, 16)).astype(np.float32)
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["r"]),
             node("ReduceMean", ["r"], ["y"], axes=[1], keepdims=0)]  # fmt: skip
    given = [value("x", ["n", "t", 80])]
    made = _prepared(_file(tmp_path, nodes, given, ["y"], {"w": weights}, name, **about))
    assert made.task is not None and (made.task.kind, made.task.rate) == ("embed", 16000)
    assert "in windows of 3 s" in made.graph.notes[-1]
    x = _sound(47920)
    rows = _expected(x * loud, curve)
    vector = np.maximum((rows - rows.mean(0)) @ weights, 0).mean(0)
    np.testing.assert_allclose(_run(made, x)[0], vector / np.linalg.norm(vector), atol=1e-4)


def _slaney(bands, fft=512):
    """librosa.filters.mel(sr=16000, n_fft=fft, n_mels=bands) [lines, bands]."""
    mel = np.linspace(0, 15 + 27 * np.log(8) / np.log(6.4), bands + 2)
    edges = np.where(mel < 15, mel * 200 / 3, 1000 * 6.4 ** ((mel - 15) / 27))
    lines = np.arange(fft // 2 + 1) * 16000 / fft
    rows = [np.interp(lines, edges[i : i + 3], [0, 2 / (edges[i + 2] - edges[i]), 0])
            for i in range(bands)]  # fmt: skip
    return np.stack(rows, 1)


def _frames(x, window, fft, curve, count):
    """Powers of torch.stft with center=True and pad_mode="constant" [count, lines]."""
    padded = np.concatenate([np.zeros(window // 2), x, np.zeros(window)])
    frames = np.stack([padded[160 * i : 160 * i + window] for i in range(count)])
    return np.abs(np.fft.rfft(frames * curve, fft)) ** 2


@pytest.mark.parametrize(("bands", "window", "said"), [(64, 320, 15000), (80, 400, 16000)])
def test_speech_of_nemo(tmp_path, bands, window, said):
    """NeMo's AudioToMelSpectrogramPreprocessor; what is behind the sound is left out."""
    (tmp_path / "vocab.txt").write_text("\N{LOWER ONE EIGHTH BLOCK}a 0\nb 1\n<blk> 2\n")
    weights = np.random.default_rng(0).normal(0, 1, (bands, 3)).astype(np.float32)
    nodes = [node("Cast", ["length"], ["n"], to=1), node("Sub", ["n", "rows"], ["zero"]),
             node("Add", ["audio_signal", "zero"], ["own"]),
             node("Transpose", ["own"], ["x"], perm=[0, 2, 1]),
             node("MatMul", ["x", "w"], ["logprobs"])]  # fmt: skip
    given = [value("audio_signal", ["n", bands, 100]), value("length", ["n"], "s64")]
    constants = {"w": weights, "rows": np.array([100], np.float32)}
    path = _file(tmp_path, nodes, given, ["logprobs"], constants)
    made = _prepared(path)
    assert made.task is not None and (made.task.kind, made.task.rate) == ("transcribe", 16000)
    assert json.loads(made.files["characters.json"])["characters"] == [" a", "b"]
    x = np.concatenate([_sound(said), np.zeros(16000 - said)]).astype(np.float32)
    louder = np.concatenate([x[:1], x[1:] - np.float32(0.97) * x[:-1]])
    power = _frames(louder, window, 512, np.hanning(window), 100)
    count = min((said + window // 2) // 160 + 1, 100)
    rows = np.log(power @ _slaney(bands) + 2**-24)[:count]
    rows = (rows - rows.mean(0)) / (rows.std(0, ddof=1) + 1e-5)
    scores = np.exp(np.concatenate([rows, np.zeros((100 - count, bands))]) @ weights)
    shares = scores / scores.sum(1, keepdims=True)
    found = _run(made, x)[0]
    assert (found[:95, 0] == np.roll(shares, 1, 1).argmax(1)[:95]).mean() > 0.98
    np.testing.assert_allclose(found[:95, 1], shares.max(1)[:95], atol=5e-3)


@pytest.mark.parametrize("parts", [50, 1])
def test_speech_in_parts_by_marble_net(tmp_path, parts):
    """NeMo's features as they are, and a score for every second row, or for all of them."""
    weights = np.random.default_rng(0).normal(0, 0.02, (80, 2)).astype(np.float32)
    nodes = [
        node("Transpose", ["audio_signal"], ["x"], perm=[0, 2, 1]),
        node("MatMul", ["x", "w"], ["each"]),
        node("Reshape", ["each", "shape"], ["apart"]),
        node("ReduceMean", ["apart"], ["logits"], axes=[2 if parts > 1 else 1], keepdims=0),
    ]
    ends = [1, parts, 100 // parts, 2] if parts > 1 else [1, 100, 2]
    constants = {"w": weights, "shape": np.array(ends)}
    given = [value("audio_signal", ["n", 80, 100]), value("length", ["n"], "s64")]
    nodes.append(node("Cast", ["length"], ["unused"], to=1))
    path = _file(tmp_path, nodes, given, ["logits"], constants)
    _with_shape(path, "logits", [1, parts, 2] if parts > 1 else [1, 2])
    made = _prepared(path)
    assert made.task is not None and (made.task.kind, made.task.rate) == ("vad", 16000)
    assert "finds speech as MarbleNet" in made.graph.notes[-1]
    x = _sound(16000)
    louder = np.concatenate([x[:1], x[1:] - np.float32(0.97) * x[:-1]])
    power = _frames(louder, 400, 512, np.hanning(400), 100)
    logits = np.log(power @ _slaney(80) + 2**-24) @ weights
    logits = logits.reshape(parts, -1, 2).mean(1)
    speech = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    np.testing.assert_allclose(_run(made, x)[0], speech, atol=1e-4)


def test_speech_of_anybody_by_pyannote(tmp_path):
    """Its first class is silence, the others are who speaks; the file may take any length."""
    nodes = [node("Reshape", ["x", "shape"], ["apart"]), node("Mul", ["apart", "w"], ["each"]),
             node("ReduceMean", ["each"], ["level"], axes=[2], keepdims=1),
             node("Mul", ["level", "gain"], ["logits"]),
             node("LogSoftmax", ["logits"], ["y"], axis=2)]  # fmt: skip
    gain = np.arange(7, dtype=np.float32)
    constants = {"shape": np.array([1, -1, 200]), "w": np.float32([9]), "gain": gain}
    path = _file(tmp_path, nodes, [value("x", ["n", 1, "t"])], ["y"], constants)
    _with_shape(path, "y", ["n", "p", 7])
    options = CompileOptions(task="guess")
    made = with_task(path, import_for_task(path, options), options)
    assert made.task is not None and (made.task.kind, made.task.labels) == ("vad", ("speech",))
    x = _sound(160000)
    logits = 9 * x.reshape(800, 200).mean(1, keepdims=True) * gain
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    found = evaluate(made.graph, {"x": x[None, None]}).outputs[made.task.output]
    np.testing.assert_allclose(found[0], 1 - shares[:, 0], atol=1e-5)


def test_speakers_of_nemo_and_speech_brain(tmp_path):
    weights = np.random.default_rng(1).normal(0, 1, (80, 16)).astype(np.float32)
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Abs", ["h"], ["r"]),
             node("ReduceMean", ["r"], ["y"], axes=[1], keepdims=1)]  # fmt: skip
    path = _file(tmp_path, nodes, [value("x", ["n", 50, 80])], ["y"], {"w": weights})
    (tmp_path / "hyperparams.yaml").write_text(
        "n_mels: 80\ncompute_features: !new:speechbrain.lobes.features.Fbank\n"
        "    n_mels: !ref <n_mels>\nmean_var_norm: !new:x.InputNormalization\n"
        "    norm_type: sentence\n    std_norm: False\n"
    )
    made = _prepared(path)
    assert made.task is not None and made.task.kind == "embed" and "SpeechBrain" in made.source
    x = _sound(8000)
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 82) / 2595) - 1)
    slope = (np.arange(201)[:, None] * 40 - edges[1:-1]) / (edges[1:-1] - edges[:-2])
    curve = 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(400) / 400)
    bands = _frames(x, 400, 400, curve, 50) @ np.maximum(0, np.minimum(slope + 1, 1 - slope))
    rows = 10 * np.log10(np.maximum(bands, 1e-10))
    rows = np.maximum(rows, rows.max() - 80)
    vector = np.abs((rows - rows.mean(0)) @ weights).mean(0)
    np.testing.assert_allclose(_run(made, x)[0], vector / np.linalg.norm(vector), atol=1e-4)
    given = [value("audio_signal", ["n", 80, 50]), value("length", ["n"], "s64")]
    nodes = [node("ReduceMean", ["audio_signal"], ["logits"], axes=[2], keepdims=0),
             node("Identity", ["logits"], ["embs"])]  # fmt: skip
    made = _prepared(_file(tmp_path, nodes, given, ["logits", "embs"]))
    assert made.task is not None and made.task.kind == "embed" and "NeMo" in made.source


def _tokens(folder, names):
    lines = (f"{name} {i}" for i, name in enumerate(names))
    (folder / "tokens.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("kind", "samples", "loud", "more"),
    [
        ("zipformer2_ctc", 998 * 160, 1, {"high": 7600, "mirrored": True}),
        ("wenet_ctc", 997 * 160 + 400, 32768, {}),
    ],
)
def test_speech_of_zipformer_and_wenet(tmp_path, kind, samples, loud, more):
    """Their places have the mean of four rows each."""
    weights = np.random.default_rng(1).normal(0, 1, (80, 5)).astype(np.float32)
    nodes = [node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
             node("AveragePool", ["t"], ["a"], kernel_shape=[4], strides=[4]),
             node("Transpose", ["a"], ["b"], perm=[0, 2, 1]),
             node("MatMul", ["b", "w"], ["h"]), node("LogSoftmax", ["h"], ["log_probs"]),
             node("Identity", ["x_lens"], ["n"])]  # fmt: skip
    given = [value("x", ["n", "t", 80]), value("x_lens", ["n"], "s64")]
    ends = ["log_probs", "n"]
    path = _file(tmp_path, nodes, given, ends, {"w": weights}, model_type=kind)
    missing = _prepared(path)
    assert missing.task is None and "if tokens.txt with its 5 tokens is next to" in missing.source
    with pytest.raises(InputError, match="fetch it, too"):
        _prepared(path, task="transcribe")
    _tokens(tmp_path, ("<unk>", "\u2581a", "b", "<sos/eos>", "<blk>"))
    made = _prepared(path)
    assert made.task is not None and made.task.kind == "transcribe"
    assert json.loads(made.files["characters.json"])["characters"] == ["", " a", "b", ""]
    x = _sound(samples)
    rows = _expected(x * loud, "povey", **more)[:996].reshape(249, 4, 80).mean(1) @ weights
    found = _run(made, x)[0]
    np.testing.assert_array_equal(found[:, 0], np.array([1, 2, 3, 4, 0])[rows.argmax(1)])
    shares = np.exp(rows - rows.max(1, keepdims=True))
    np.testing.assert_allclose(found[:, 1], 1 / shares.sum(1), rtol=1e-3)


def test_speech_of_sense_voice(tmp_path):
    """Its rows are of seven; four places come before those of the words."""
    rng = np.random.default_rng(2)
    weights = rng.normal(0, 1, (560, 4)).astype(np.float32)
    shift, factor = rng.normal(-8, 1, 560), rng.uniform(0.1, 0.3, 560)
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Gather", ["table", "language"], ["l"]),
             node("Add", ["h", "l"], ["k"]), node("Cast", ["length"], ["f"], to=1),
             node("Mul", ["f", "zero"], ["z"]), node("Add", ["k", "z"], ["v"]),
             node("Gather", ["v", "first"], ["p"], axis=1),
             node("Concat", ["p", "v"], ["logits"], axis=1),
             node("Identity", ["style"], ["s"])]  # fmt: skip
    table = np.zeros((9, 4), np.float32)
    table[5] = (3, 2, 1, 0)
    constants = {"w": weights, "table": table, "zero": np.zeros(1, np.float32),
                 "first": np.zeros(4, np.int64)}  # fmt: skip
    given = [value("x", ["n", "t", 560])]
    given += [value(name, ["n"], np.dtype("i4")) for name in ("length", "language", "style")]
    about = {
        "model_type": "sense_voice_ctc", "lfr_window_size": 7, "lfr_window_shift": 6,
        "normalize_samples": 0, "lang_auto": 5, "with_itn": 14,
        "neg_mean": ",".join(map(repr, shift.tolist())),
        "inv_stddev": ",".join(map(repr, factor.tolist())),
    }  # fmt: skip
    path = _file(tmp_path, nodes, given, ["logits", "s"], constants, **about)
    _tokens(tmp_path, ("<unk>", "\u2581ja", "nein", "<|en|>"))
    made = _prepared(path)
    assert made.task is not None and made.task.kind == "transcribe"
    x = _sound(159760)
    rows = _expected(x * 32768, "hamming")
    stacked = np.stack([rows[6 * i : 6 * i + 7].ravel() for i in range(166)])
    scores = ((stacked + shift) * factor) @ weights + table[5]
    np.testing.assert_array_equal(_run(made, x)[0][:, 0], scores.argmax(1))


def test_classes_of_the_audio_spectrogram_transformer(tmp_path):
    """Rows behind the end of a sound are zeros before they are scaled."""
    nodes = [node("ReduceMean", ["input_values"], ["y"], axes=[1], keepdims=0)]
    path = _file(tmp_path, nodes, [value("input_values", ["b", "t", "f"])], ["y"])
    hub = {
        "config.json": {"architectures": ["ASTForAudioClassification"], "model_type": "ast",
                        "id2label": {str(i): f"sound {i}" for i in range(40)}},
        "preprocessor_config.json": {
            "feature_extractor_type": "ASTFeatureExtractor", "max_length": 64, "num_mel_bins": 40,
            "mean": -4.5, "std": 2.0, "sampling_rate": 16000},
    }  # fmt: skip
    for name, document in hub.items():
        (tmp_path / name).write_text(json.dumps(document))
    made = _prepared(path)
    assert made.task is not None and made.task.labels[3] == "sound 3"
    x = _sound(63 * 160 + 400)
    x[40 * 160 :] = 0
    rows = _expected(x, "hanning", bands=40)
    rows[40:] = 0
    powers = np.exp(((rows + 4.5) / 4).mean(0))
    np.testing.assert_allclose(_run(made, x)[0], powers / powers.sum(), rtol=1e-3)


def test_a_vector_of_a_sound_is_the_mean_of_its_windows():
    spec = TensorSpec("x", "f32", (1, 4), None, None)
    task = TaskSpec("embed", "x", "y", rate=16000)
    taken = []

    def run(inputs):
        taken.append(inputs["x"].tolist())
        return {"y": np.array([[max(taken[-1]), 1]], np.float32)}

    assert vector_of_sound([1, 2, 3, 4, 5, 3], task, [spec], run) == pytest.approx(
        np.array([9, 2]) / np.hypot(9, 2)
    )
    assert taken == [[1, 2, 3, 4], [3, 4, 5, 3]]
    vector_of_sound([1, 2, 3], task, [spec], run)
    assert taken[-1] == [1, 2, 3, 1]
    with pytest.raises(DeviceInputError, match="found no samples"):
        vector_of_sound([], task, [spec], run)
