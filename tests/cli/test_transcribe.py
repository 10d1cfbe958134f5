"""`edgekit run` of models that transcribe speech, and the same on the board."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from edgekit.device.runtime.application import InputError
from edgekit.device.runtime.application import open as open_on_board
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks import import_for_task, with_task
from tests.cli.test_detect import served
from tests.cli.test_hearing import _RATE, _wav
from tests.support.applications import FORM, form_with
from tests.support.onnx_models import model, node, save, value
from tests.support.wyoming import heard_by, wyoming_server

_HOP, _FIELD, _PLACES = 320, 400, 60
_WINDOW = _FIELD + (_PLACES - 1) * _HOP
_TONES = {"A": 1000, "B": 2000, "É": 3000, "|": 4000}
_VOCABULARY = {"|": 0, "A": 1, "<pad>": 2, "B": 3, "É": 4, "<unk>": 5}
_TOKENS = ["|", "A", "<pad>", "B", "É"]


def transcriber(folder, window=_WINDOW):
    """Hears a character by its tone at each step of 20 ms, as wav2vec 2.0 places them: by the
    energy at its frequency. Its sound is normalized, so that a quiet one has the same text."""
    t = 2 * np.pi * np.arange(_FIELD) / _RATE
    filters = np.zeros((12, 1, _FIELD), np.float32)
    for number, name in enumerate(_TOKENS):
        if name in _TONES:
            filters[2 * number, 0] = np.cos(t * _TONES[name]) / _FIELD
            filters[2 * number + 1, 0] = np.sin(t * _TONES[name]) / _FIELD
    sums = np.zeros((12, 6), np.float32)
    for number in range(6):
        sums[2 * number : 2 * number + 2, number] = 100
    bias = np.float32([0, 0, 4, 0, 0, -50])  # silence is <pad>
    nodes = [
        node("Unsqueeze", ["input_values", "one"], ["wide"]),
        node("Conv", ["wide", "filters"], ["parts"], strides=[_HOP]),
        node("Mul", ["parts", "parts"], ["energy"]),
        node("Transpose", ["energy"], ["rows"], perm=[0, 2, 1]),
        node("MatMul", ["rows", "sums"], ["product"]),
        node("Add", ["product", "bias"], ["logits"]),
    ]
    constants = {"one": np.array([1]), "filters": filters, "sums": sums, "bias": bias}
    made = model(nodes, [value("input_values", [1, window])], ["logits"], constants, opset=13)
    (folder / "vocab.json").write_text(json.dumps(_VOCABULARY))
    (folder / "config.json").write_text(json.dumps({"architectures": ["Wav2Vec2ForCTC"]}))
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"do_normalize": True, "sampling_rate": _RATE})
    )
    return save(made, folder)


def spoken(text, loud=0.1):
    """Each character for 0.1 s, and 0.06 s of silence after it."""
    t = np.arange(_RATE // 10) / _RATE
    gap = np.zeros(_RATE * 6 // 100)
    tones = (np.sin(2 * np.pi * _TONES["|" if c == " " else c] * t) for c in text)
    return loud * np.concatenate([part for tone in tones for part in (tone, gap)])


def test_a_sound_of_several_windows_is_written_down(edgekit, home):
    """Also what lies where windows meet, and without the vocabulary's specials."""
    path, text = transcriber(home), "AAB ÉA BÉÉ AB AAÉB A"
    _wav(home / "a.wav", spoken(text))
    done = edgekit("run", path, "--input", "a.wav", "--json")
    assert done.code == 0, done.err
    assert "transcribes speech in windows of 1.21 s" in done.err
    (found,) = done.document["inputs"]
    assert found["line"]["text"] == text and found["line"]["score"] > 0.5
    _wav(home / "quiet.wav", spoken(text[:3], 0.001), bits=32)
    assert "text     quiet.wav: AAB\n" in edgekit("run", "--input", "quiet.wav").out
    _wav(home / "none.wav", np.zeros(8000))
    assert "text     none.wav: none\n" in edgekit("run", "--input", "none.wav").out
    (home / "right.csv").write_text('a.wav,"aab, éa béé ab aaéb b!"\nquiet.wav,AAB\n')
    done = edgekit("run", "--evaluate", "right.csv", "--json")
    wrong = {"files": 2, "words": 7, "wer": pytest.approx(1 / 7), "cer": pytest.approx(17 / 25)}
    assert done.document["evaluation"] == wrong
    with open_on_board(root=home.parent / "home/boards/local") as heard:
        line = heard.transcribe(spoken(text).tolist())
        assert (line.text, line.score) == (text, pytest.approx(found["line"]["score"], abs=1e-3))
        assert heard.transcribe([]).text == ""
        with pytest.raises(InputError, match="--task detect"):
            heard.detect(b"", 1, 1)
    root, body = home.parent / "home/boards/local", (home / "a.wav").read_bytes()
    form = form_with(model=b"m", file=body)
    bodies = {"/transcribe": body, "/v1/audio/transcriptions": form, "/detect": b""}
    answers = served(home, root, bodies, kind=FORM)
    assert json.loads(answers["/transcribe"][1])["text"] == text
    assert json.loads(answers["/v1/audio/transcriptions"][1]) == {"text": text}
    with wyoming_server(root) as port:
        assert "asr" in heard_by(port, [("describe", {})], [])[0][1]
        asked = [("transcribe", {"language": "en"})]
        assert heard_by(port, asked, spoken(text)) == [("transcript", {"text": text})]
    for where, wrong in (("/transcribe", b"no sound"), ("/v1/audio/transcriptions", form[:90])):
        ((status, said),) = served(home, root, {where: wrong}, kind="text/plain").values()
        assert status == 400 and "expected" in said


@pytest.mark.parametrize("samples", ["samples", 10000])
def test_a_mask_of_samples_is_full(tmp_path, samples):
    """As of files for sounds that are padded: its sums, of many samples, are then known."""
    made = onnx.load(transcriber(tmp_path, samples))
    made.graph.input.append(value("attention_mask", [1, samples], "s64"))
    nodes = [
        node("CumSum", ["attention_mask", "one"], ["so_far"]),
        node("ReduceMax", ["so_far"], ["length"], keepdims=0),
        node("Cast", ["length"], ["count"], to=1),
        node("Sub", ["count", "count"], ["none"]),
        node("Add", ["own", "none"], ["logits"]),
    ]
    made.graph.node[-1].output[0] = "own"
    made.graph.node.extend(nodes)
    path, options = save(made, tmp_path), CompileOptions(task="guess")
    graph = import_for_task(path, options)
    task = with_task(path, graph, options).task
    assert task is not None and task.kind == "transcribe" and graph.inputs == ("input_values",)


def test_open_length_and_missing_characters(edgekit, home):
    path = transcriber(home, "samples")
    done = edgekit("compile", path, "-o", "x.ekb")
    assert done.code == 0 and "open shapes are input_values=1,160000, 10 s of sound" in done.err
    transcriber(home)
    (home / "vocab.json").unlink()
    done = edgekit("compile", path, "--task", "transcribe", "-o", "x.ekb")
    assert done.code == 2 and "expected vocab.json next to the model with a" in done.err
