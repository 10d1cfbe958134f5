"""`edgekit run` of models that listen, and the same on the board."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime.application import InputError as DeviceInputError
from edgekit.device.runtime.application import listen
from edgekit.device.runtime.application import open as open_on_board
from edgekit.host.compiler.toolchain.zig import kernels_folder
from tests.support.onnx_models import model, node, save, value
from tests.support.wyoming import heard_by, wyoming_server

_RATE = 16000
_WINDOW = 4000


def _wav(path: Path, samples, rate: int = _RATE, bits: int = 16, channels: int = 1) -> None:
    """Writes samples of -1 to 1; 32 bits are floats."""
    wide = np.repeat(np.asarray(samples)[:, None], channels, 1).reshape(-1)
    if bits == 32:
        code, data = 3, wide.astype("<f4").tobytes()
    else:
        code, top = 1, (1 << (bits - 1)) - 1
        whole = np.round(wide * top).astype("<i4")
        rows = whole.view(np.uint8).reshape(-1, 4)[:, : bits // 8]
        data = (whole + 128).astype(np.uint8).tobytes() if bits == 8 else rows.tobytes()
    align = channels * bits // 8
    form = struct.pack("<HHIIHH", code, channels, rate, rate * align, align, bits)
    body = b"fmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", len(data)) + data
    path.write_bytes(b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body)


def _words(folder: Path) -> Path:
    """Scores of silence, low and high: by the energy of the sound and of its differences."""
    nodes = [
        node("Mul", ["x", "x"], ["squares"]),
        node("ReduceMean", ["squares"], ["loud"], axes=[1], keepdims=1),
        node("Slice", ["x", "one", "end", "axis"], ["later"]),
        node("Slice", ["x", "zero", "last", "axis"], ["sooner"]),
        node("Sub", ["later", "sooner"], ["step"]),
        node("Mul", ["step", "step"], ["steps"]),
        node("ReduceMean", ["steps"], ["high"], axes=[1], keepdims=1),
        node("Concat", ["loud", "high"], ["both"], axis=1),
        node("MatMul", ["both", "weights"], ["product"]),
        node("Add", ["product", "bias"], ["logits"]),
    ]
    constants = {
        "one": np.array([1]), "end": np.array([_WINDOW]), "axis": np.array([1]),
        "zero": np.array([0]), "last": np.array([_WINDOW - 1]),
        "weights": np.array([[0, 200, 0], [0, -200, 200]], np.float32),
        "bias": np.array([[5, 0, 0]], np.float32),
    }  # fmt: skip
    made = model(nodes, [value("x", [1, _WINDOW])], ["logits"], constants, opset=13)
    (folder / "m_labels.txt").write_text("_silence_\nlow\nhigh\n")
    return save(made, folder)


def _scores(window) -> np.ndarray:
    """What `_words` computes, in NumPy, as shares."""
    loud, high = np.mean(window**2), np.mean(np.diff(window) ** 2)
    logits = np.array([5, 200 * loud - 200 * high, 200 * high])
    shares = np.exp(logits - logits.max())
    return shares / shares.sum()


def _expected(samples) -> list[tuple[int, float, float, float]]:
    """Class, score, start and end: the means of two windows, from 0.5 until they are below 0.35."""
    step, last, state, found = _WINDOW // 4, None, {}, []
    starts = list(range(0, max(len(samples) - _WINDOW, 0) + 1, step))
    if starts[-1] + _WINDOW < len(samples):
        starts.append(starts[-1] + step)
    padded = np.concatenate([samples, np.zeros(_WINDOW)])
    for start in starts:
        scores = _scores(padded[start : start + _WINDOW])
        mean, last = scores if last is None else (scores + last) / 2, scores
        for number in (1, 2):
            if number in state and mean[number] < 0.35:
                found.append((number, *state.pop(number)))
            elif mean[number] >= (0.35 if number in state else 0.5):
                best, first, _ = state.get(number, (0.0, start, 0))
                state[number] = max(best, mean[number]), first, start + _WINDOW
    found += [(number, *state[number]) for number in sorted(state)]
    return [(n, score, a / _RATE, b / _RATE) for n, score, a, b in found]


def _melody() -> np.ndarray:
    """Silence, a low tone, silence, a high one, silence."""
    time = np.arange(6000) / _RATE
    low, high = 0.5 * np.sin(2 * np.pi * 200 * time), 0.5 * np.sin(2 * np.pi * 3000 * time)
    quiet = np.zeros(7000)
    return np.concatenate([quiet, low, quiet, high, quiet, np.zeros(300)])


def _same(found, expected) -> None:
    assert len(found) == len(expected)
    for heard, (number, score, start, end) in zip(found, expected, strict=True):
        assert heard["number"] == number and heard["label"] == ("", "low", "high")[number]
        assert heard["score"] == pytest.approx(score, abs=2e-3)
        assert (heard["start"], heard["end"]) == pytest.approx((start, end))


@pytest.mark.slow
def test_words_are_heard_in_files_and_on_the_board(edgekit, home):
    path, sound = _words(home), _melody()
    _wav(home / "x.wav", sound)
    expected = _expected(sound)
    assert [number for number, *_ in expected] == [1, 2]
    done = edgekit("run", path, "--input", "x.wav", "--json")
    assert done.code == 0 and "hears, because 4000 samples give scores" in done.err
    _same(done.document["inputs"][0]["heard"], expected)
    shown = edgekit("run", "--input", "x.wav").out
    assert "heard    x.wav: 2\n" in shown and shown.rstrip().endswith("high")
    (home / "right.csv").write_text("file,label\nx.wav,Low\n")
    scored = edgekit("run", "--evaluate", "right.csv", "--json").document["evaluation"]
    assert scored == {"sounds": 1, "precision": 0.5, "recall": 1, "f1": pytest.approx(2 / 3)}
    (home / "right.csv").write_text("x.wav,middle\n")
    done = edgekit("run", "--evaluate", "right.csv")
    assert done.code == 2 and "expected labels of the model, such as '_silence_'" in done.err
    with open_on_board(root=home.parent / "home/boards/local") as deployed:
        assert deployed.task is not None and deployed.task.rate == _RATE
        ear, heard = listen(deployed), []
        for start in range(0, len(sound), 777):  # as a microphone gives it
            heard += ear.feed(sound[start : start + 777].tolist())
        _same([each._asdict() for each in [*heard, *ear.finish()]], expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "bits", "channels"),
    [(16000, 8, 1), (44100, 24, 2), (8000, 16, 1), (48000, 32, 2)],
)
def test_sound_of_any_form_is_converted(edgekit, home, rate, bits, channels):
    length = round(33300 * rate / _RATE)
    at = np.arange(length) / rate
    loud = ((at > 0.4375) & (at < 0.8)) * 0.5 * np.sin(2 * np.pi * 200 * at)
    _wav(home / "x.wav", loud, rate, bits, channels)
    done = edgekit("run", _words(home), "--input", "x.wav", "--json", "--task", "keyword")
    assert done.code == 0, done.err
    (heard,) = done.document["inputs"][0]["heard"]
    assert heard["label"] == "low" and heard["score"] > 0.9
    assert heard["start"] == pytest.approx(0.4, abs=0.1)


@pytest.mark.slow
def test_sound_that_is_none_is_one_line(edgekit, home):
    path = _words(home)
    for data in (b"", b"no sound", b"RIFF\x00\x00\x00\x00WAVE"):
        (home / "x.wav").write_bytes(data)
        done = edgekit("run", path, "--input", "x.wav")
        assert done.code == 2 and "x.wav: expected a WAV file of" in done.err.splitlines()[-1]
    _wav(home / "x.wav", np.full(16000, np.nan), bits=32)
    assert "found no finite sample in it" in edgekit("run", path, "--input", "x.wav").err
    (home / "labels.txt").write_text("a\nb\n")
    _wav(home / "x.wav", np.zeros(9))
    assert "heard    x.wav: nothing" in edgekit("run", path, "--input", "x.wav").out


def _silero(folder: Path, window: int, later: str = "stateN") -> Path:
    """Speech is what is loud; a state that is carried smooths it. The rate is an input, too."""
    nodes = [
        node("Slice", ["input", "from", "to", "axis"], ["own"]),
        node("Mul", ["own", "own"], ["squares"]),
        node("ReduceMean", ["squares"], ["loud"], axes=[1], keepdims=1),
        node("Slice", ["state", "zero", "one", "axis"], ["first"]),
        node("Reshape", ["loud", "shape"], ["now"]),
        node("Mul", ["state", "half"], ["kept"]),
        node("Add", ["kept", "now"], [later]),
        node("ReduceMean", [later], ["level"], axes=[0, 2], keepdims=0),
        node("Cast", ["sr"], ["rate"], to=1),
        node("Mul", ["rate", "none"], ["nothing"]),
        node("Mul", ["level", "gain"], ["amplified"]),
        node("Add", ["amplified", "bias"], ["sum"]),
        node("Add", ["sum", "nothing"], ["logit"]),
        node("Reshape", ["logit", "single"], ["one_logit"]),
        node("Sigmoid", ["one_logit"], ["output"]),
    ]
    constants = {
        "from": np.array([window - 512]), "to": np.array([window]), "axis": np.array([1]),
        "zero": np.array([0]), "one": np.array([1]), "shape": np.array([1, 1, 1]),
        "half": np.array(0.5, np.float32), "none": np.array(0, np.float32),
        "gain": np.array(40, np.float32), "bias": np.array(-3, np.float32),
        "single": np.array([1, 1]),
    }  # fmt: skip
    inputs = [
        value("input", [1, window]),
        value("state", [2, 1, 128]),
        value("sr", [], np.dtype(np.int64)),
    ]
    nodes = [each for each in nodes if each.output[0] != "first"]
    return save(model(nodes, inputs, ["output", later], constants, opset=13), folder)


@pytest.mark.slow
@pytest.mark.parametrize(("window", "later"), [(512, "stateN"), (576, "cat_3")])
def test_speech_is_found_with_a_state_that_is_carried(edgekit, home, window, later):
    rng = np.random.default_rng(0)
    sound = np.zeros(24000)
    sound[6000:14000] = rng.uniform(-0.7, 0.7, 8000)
    sound[19000:19600] = 0.7  # too short
    _wav(home / "x.wav", sound)
    state, scores = 0.0, []
    padded = np.concatenate([sound, np.zeros(512 - len(sound) % 512)])
    for frame in padded.reshape(-1, 512):
        state = 0.5 * state + np.mean(frame**2)
        scores.append(1 / (1 + np.exp(3 - 40 * state)))
    (first, *_), loud = np.flatnonzero(np.array(scores) >= 0.5), np.array(scores) >= 0.35
    last = first + int(np.argmin(loud[first:]))
    done = edgekit("run", _silero(home, window, later), "--input", "x.wav", "--json")
    assert done.code == 0, done.err
    assert "finds speech, because a window of samples and a state give one score" in done.err
    (heard,) = done.document["inputs"][0]["heard"]
    assert heard["label"] == "speech"
    assert heard["start"] == pytest.approx(first * 512 / _RATE - 0.03)
    assert heard["end"] == pytest.approx(last * 512 / _RATE + 0.03)
    assert heard["score"] == pytest.approx(max(scores[first:last]), abs=1e-3)
    with open_on_board(root=home.parent / "home/boards/local") as deployed:
        ear = listen(deployed)
        (there,) = [*ear.feed(sound.tolist()), *ear.finish()]
        assert there._asdict() == pytest.approx(heard, abs=1e-4)
    if window == 512:
        (home / "right.csv").write_text(f"x.wav,{heard['start']},{2 * heard['end']}\n")
        scored = edgekit("run", "--evaluate", "right.csv", "--json").document["evaluation"]
        share = (heard["end"] - heard["start"]) / (2 * heard["end"] - heard["start"])
        assert scored["precision"] == 1 and scored["recall"] == pytest.approx(share, abs=0.01)
        (home / "right.csv").write_text("x.wav,0.5\n")
        refused = edgekit("run", "--evaluate", "right.csv")
        assert refused.code == 2 and "expected start and end of speech in seconds" in refused.err


@pytest.mark.slow
def test_the_microphone_template_tells_of_words(edgekit, home):
    _wav(home / "x.wav", _melody())
    expected = _expected(_melody())
    assert edgekit("deploy", _words(home), "--task", "keyword").code == 0
    board = home.parent / "home/boards/local"
    program = kernels_folder().parent / "templates/microphone/main.py"
    environment = {
        **os.environ,
        "PYTHONPATH": str(board / "current/runtime.pyz"),
        "EDGEKIT_ROOT": str(board),
    }
    words = [sys.executable, str(program), "--wav", "x.wav"]
    done = subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"heard {('', 'low', 'high')[number]} from {start:.2f} to {end:.2f} s, {score:.2f}"
        for number, score, start, end in expected
    ]

    with wyoming_server(board) as port:
        ((kind, about),) = heard_by(port, [("describe", {})], [])
        (program,) = about["wake"]
        assert kind == "info" and [m["name"] for m in program["models"]][1:] == ["low", "high"]
        found = heard_by(port, [("detect", {"names": None})], _melody())
        assert [(kind, data["name"]) for kind, data in found] == [
            ("detection", "low"),
            ("detection", "high"),
        ]
        found = heard_by(port, [("detect", {"names": ["high"]})], _melody()[:16000])
        assert found == [("not-detected", {})]
        ((kind, error),) = heard_by(port, [], _melody(), 44100)
        assert kind == "error" and "expected sound of 16000 samples a second" in error["text"]


def test_other_models_do_not_listen(edgekit, home):
    made = model([node("Softmax", ["x"], ["y"])], [value("x", [1, 1960])], ["y"])
    path = save(made, home)
    done = edgekit("compile", path, "--task", "keyword", "-o", "x.ekb")
    assert done.code == 2
    assert "--task keyword: expected an input of at least 4000 samples" in done.err.splitlines()[-1]
    assert edgekit("deploy", path).code == 0
    with (
        open_on_board(root=home.parent / "home/boards/local") as deployed,
        pytest.raises(DeviceInputError, match="expected a model compiled with --task keyword or"),
    ):
        listen(deployed)


def _sounds() -> dict[str, np.ndarray]:
    return dict(np.load(Path(__file__).parents[1] / "support" / "wake_word.npz"))


@pytest.mark.slow
def test_the_wake_word_of_microwakeword_is_heard(edgekit, face_model, home):
    said = _sounds()
    parts = [said["open_the_door"], said["okay_nabu"], np.zeros(16000, "<i2")]
    _wav(home / "x.wav", np.concatenate(parts) / 32768)
    path = face_model.with_name("okay_nabu.tflite")
    assert "hears words in WAV files, because the input is" in edgekit("inspect", path).out
    done = edgekit("run", path, "--input", "x.wav", "--json")
    assert done.code == 0, done.err
    (heard,) = done.document["inputs"][0]["heard"]
    assert heard["label"] == "wake word" and heard["score"] > 0.85
    copy = Path(shutil.copy(path, home))
    about = {"type": "micro", "wake_word": "Okay Nabu", "model": copy.name}
    copy.with_suffix(".json").write_text(json.dumps(about))
    assert edgekit("run", copy, "--input", "x.wav").out.rstrip().endswith("Okay Nabu")
    start = len(parts[0]) / _RATE
    assert start < heard["end"] < start + len(parts[1]) / _RATE + 0.5
    _wav(home / "x.wav", said["open_the_door"] / 32768)
    assert "heard    x.wav: nothing" in edgekit("run", path, "--input", "x.wav").out


@pytest.mark.parametrize(("last", "samples"), [(128, 576), (64, 512)])
def test_open_shapes_of_speech_are_those_of_silero(edgekit, home, last, samples):
    """576 samples are a window with the end of the one before."""
    nodes = [
        node("ReduceMean", ["input"], ["level"], axes=[1], keepdims=1),
        node("Sigmoid", ["level"], ["output"]),
        node("Identity", ["state"], ["stateN"]),
    ]
    inputs = [value("input", ["batch", "samples"]), value("state", [2, "batch", last])]
    path = save(model(nodes, inputs, ["output", "stateN"]), home)
    done = edgekit("compile", path, "-o", "x.ekb")
    assert done.code == 0, done.err
    assert f"open shapes are input=1,{samples}, for a window of speech" in done.err


def test_the_third_version_of_silero_gives_a_score_of_silence_first(edgekit, home):
    nodes = [
        node("Mul", ["input", "input"], ["squares"]),
        node("ReduceMean", ["squares"], ["loud"], axes=[1], keepdims=1),
        node("Sub", ["loud", "half"], ["level"]),
        node("Mul", ["level", "gains"], ["both"]),
        node("Sigmoid", ["both"], ["shares"]),
        node("Reshape", ["shares", "shape"], ["output"]),
        *(node("Add", [f"{n}0", "loud"], [f"{n}n"]) for n in "hc"),
    ]
    gains, half = np.array([[-9, 9]], np.float32), np.array([[0.5]], np.float32)
    constants = {"gains": gains, "half": half, "shape": np.array([1, 2, 1])}
    inputs = [value("input", [1, "sequence"]), *(value(f"{n}0", [2, 1, 64]) for n in "hc")]
    outputs = ["output", "hn", "cn"]
    path = save(model(nodes, inputs, outputs, constants, opset=13), home)
    sound = np.zeros(16 * 1536)
    sound[4 * 1536 : 10 * 1536] = np.tile([0.9, -0.9], 3 * 1536)
    _wav(home / "x.wav", sound)
    done = edgekit("run", path, "--input", "x.wav", "--json")
    assert done.code == 0 and "open shapes are input=1,1536, for a window" in done.err
    (heard,) = done.document["inputs"][0]["heard"]
    assert heard["start"] == pytest.approx(4 * 1536 / _RATE - 0.03)
    assert heard["end"] == pytest.approx(10 * 1536 / _RATE + 0.03)


@pytest.mark.slow
def test_features_that_a_file_states_are_computed_on_the_board(edgekit, home):
    """A model of 30 rows of 8 bands: the word is low or high by where the sound is loud."""
    weights = np.zeros((8, 3), np.float32)
    weights[:4, 1] = weights[4:, 2] = 1
    nodes = [
        node("ReduceMean", ["x"], ["means"], axes=[1], keepdims=0),
        node("MatMul", ["means", "weights"], ["product"]),
        node("Add", ["product", "bias"], ["logits"]),
    ]
    constants = {"weights": weights, "bias": np.array([[-14, 0, 0]], np.float32)}
    path = save(model(nodes, [value("x", [1, 30, 8])], ["logits"], constants, opset=13), home)
    _wav(home / "a.wav", _tone(0.6, 300))
    refused = edgekit("run", path, "--input", "a.wav")
    assert refused.code == 2
    assert "or say in a .toml file next to the model how they are computed" in refused.err
    features = 'bands = 8\nhigh = 8000\noffset = 1e-3\nlabels = ["silence", "low", "high"]\n'
    (home / "m.toml").write_text(f"[features]\n{features}")
    for hertz, word in ((300, "low"), (5000, "high")):
        sound = np.concatenate([np.zeros(8000), _tone(0.6, hertz), np.zeros(8000)])
        _wav(home / "a.wav", sound)
        done = edgekit("run", path, "--input", "a.wav", "--json")
        assert "hears, with the features of sound in m.toml" in done.err
        (heard,) = done.document["inputs"][0]["heard"]
        assert heard["label"] == word and 0 <= heard["start"] < 0.7 < heard["end"] < 2
        with open_on_board(root=home.parent / "home/boards/local") as opened:
            listener = listen(opened)
            found = listener.feed(sound) + listener.finish()
        assert [each.label for each in found] == [word]


def _tone(seconds: float, hertz: float):
    return 0.3 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * _RATE)) / _RATE)


def test_a_state_that_no_output_continues_is_no_speech_model(edgekit, home):
    nodes = [
        node("ReduceMean", ["input"], ["level"], axes=[1], keepdims=1),
        node("ReduceMean", ["state"], ["kept"], axes=[0, 2], keepdims=0),
        node("Add", ["level", "kept"], ["sum"]),
        node("Sigmoid", ["sum"], ["output"]),
    ]
    inputs = [value("input", [1, 512]), value("state", [2, 1, 128])]
    path = save(model(nodes, inputs, ["output"]), home)
    done = edgekit("compile", path, "--task", "vad", "-o", "x.ekb")
    assert done.code == 2 and "--task vad: expected an input of 256 to 1536 samples" in done.err
