"""`edgekit run` of an encoder and a decoder that transcribe speech, and the same on the
board."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edgekit.device.runtime.application import open as open_on_board
from edgekit.host import compile_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.tasks.log_mel import LogMel, log_mel
from tests.cli.test_detect import served
from tests.cli.test_hearing import _wav
from tests.support.applications import FORM, form_with
from tests.support.dictation_models import (
    RATE,
    dictation_model,
    expected_subtitles,
    expected_text,
)

_TIMED_SEED = 8


def sweep(start, slope, seconds):
    t = np.arange(int(RATE * seconds)) / RATE
    return (0.5 * np.sin(2 * np.pi * (start + slope * t) * t)).astype(np.float32)


@pytest.mark.slow
def test_an_encoder_and_a_decoder_transcribe_speech(edgekit, home):
    """As NumPy does: features, language, suppressed tokens, texts that the shorter decoder does
    not take, and a sound of two windows, which is cut where it is quiet."""
    path = dictation_model(home)
    sounds = [sweep(200, 900, 0.75), sweep(2000, -700, 0.9)]
    texts = [expected_text(sound) for sound in sounds]
    assert texts[0] != texts[1] and max(map(len, texts)) > 28, texts
    _wav(home / "a.wav", sounds[0], bits=32)
    done = edgekit("run", path, "--input", "a.wav", "--json")
    assert done.code == 0, done.err
    assert "transcribes speech in windows of 1 s" in done.err
    (found,) = done.document["inputs"]
    assert found["line"]["text"] == texts[0] and 0 < found["line"]["score"] < 1
    both = np.concatenate([np.pad(sounds[0], (0, 2400)), sounds[1]])
    _wav(home / "b.wav", both, bits=32)
    _wav(home / "none.wav", np.zeros(0))
    (home / "right.csv").write_text(f"a.wav,{texts[0]}\n")
    assert edgekit("run", "--evaluate", "right.csv", "--json").document["evaluation"]["wer"] == 0
    with open_on_board(root=home.parent / "home/boards/local") as board:
        line = board.transcribe(sounds[0].tolist())
        assert (line.text, line.score) == (texts[0], pytest.approx(found["line"]["score"]))
        assert board.transcribe(sounds[1].tolist()).text == texts[1]
        assert board.transcribe([]) == ("", 0)
        joined = board.transcribe(both.tolist()).text
    assert f"text     b.wav: {joined}\n" in edgekit("run", "--input", "b.wav").out
    first, second = joined.split()
    assert first == expected_text(np.pad(sounds[0], (0, 2400))[: first_cut(both)])
    assert second == expected_text(both[first_cut(both) :])


@pytest.mark.slow
def test_a_decoder_with_a_cache_writes_the_same(edgekit, home):
    """One token at a time, with its keys and values as states, also for a second sound. One that
    takes something else is left out."""
    path = dictation_model(home, cached=True)
    sounds = [sweep(200, 900, 0.75), sweep(2000, -700, 0.9)]
    for name, sound in zip("ab", sounds, strict=True):
        _wav(home / f"{name}.wav", sound, bits=32)
    done = edgekit("run", path, "--input", ".", "--json")
    assert done.code == 0, done.err
    found = [each["line"]["text"] for each in done.document["inputs"]]
    assert found == [expected_text(sound) for sound in sounds]
    listens, writes = compiled(path)
    assert listens.memory.state_bytes < writes.memory.state_bytes
    with open_on_board(root=home.parent / "home/boards/local") as board:
        assert [board.transcribe(sound.tolist()).text for sound in sounds] == found
    (home / "decoder_with_past_model.onnx").write_bytes((home / "encoder_model.onnx").read_bytes())
    assert len(compiled(path)) == 3


@pytest.mark.slow
def test_decoders_that_are_merged_write_the_same(edgekit, home):
    path = dictation_model(home, merged=True)
    sound = sweep(200, 900, 0.75)
    _wav(home / "a.wav", sound, bits=32)
    done = edgekit("run", path, "--input", "a.wav")
    assert done.code == 0, done.err
    assert f"text     a.wav: {expected_text(sound)}\n" in done.out
    listens, writes = compiled(path)
    assert listens.memory.state_bytes < writes.memory.state_bytes
    other = (home / "encoder_model.onnx").read_bytes()
    (home / "decoder_model_merged.onnx").write_bytes(other)
    assert "if decoder_model.onnx with the inputs" in edgekit("inspect", path).out


def compiled(path):
    return compile_model(path, task="guess").manifest.every_variant()


@pytest.mark.slow
def test_what_is_said_is_told_with_its_times(edgekit, home):
    path = dictation_model(home, seed=_TIMED_SEED, timed=True)
    sounds = [sweep(200, 900, 0.75), sweep(2000, -700, 0.9)]
    expected = [expected_subtitles(sound, _TIMED_SEED) for sound in sounds]
    assert len(expected[0]) > 1 and len(expected[1]) > 1, expected
    for name, sound in zip(("a.wav", "b.wav"), sounds, strict=True):
        _wav(home / name, sound, bits=32)
    done = edgekit("run", path, "--input", ".", "--timestamps", "--json")
    assert done.code == 0, done.err
    for made, (said, sound) in zip(
        done.document["inputs"], zip(expected, sounds, strict=True), strict=True
    ):
        found = made["subtitles"]
        assert [s["text"] for s in found] == [text for text, *_ in said]
        for each, (_, start, end) in zip(found, said, strict=True):
            assert (each["start"], each["end"]) == pytest.approx((start, end), abs=1e-6)
            assert 0 < each["score"] < 1
        with open_on_board(root=home.parent / "home/boards/local") as board:
            assert board.subtitles(sound.tolist())[0].text == said[0][0]
    assert edgekit("run", "--input", "a.wav", "--output", "a.srt").code == 0
    number, clock, text, *_ = (home / "a.srt").read_text().splitlines()
    (first, start, end), *_ = expected[0]
    wanted = " --> ".join(f"00:00:00,{round(1000 * at):03}" for at in (start, end))
    assert (number, clock, text) == ("1", wanted, first)
    _told_by_http(home, expected[0])
    refused = edgekit("run", "--input", ".", "--output", "a.srt")
    assert refused.code == 2 and "expected one sound for a model that transcribes" in refused.err


def _told_by_http(home, expected):
    """The same as OpenAI's clients ask for it."""
    root, path = home.parent / "home/boards/local", "/v1/audio/transcriptions"
    _wav(home / "short.wav", sweep(200, 900, 0.75))
    body = (home / "short.wav").read_bytes()
    asked = {}
    for wanted in ("srt", "vtt", "verbose_json", "xml"):
        form = form_with(file=body, response_format=wanted.encode())
        ((status, said),) = served(home, root, {path: form}, kind=FORM).values()
        asked[wanted] = said if status == 200 else status
    assert asked["xml"] == 400
    found = json.loads(asked["verbose_json"])
    assert found["duration"] == pytest.approx(0.75, abs=1e-3)
    segments = [(s["text"], s["start"], s["end"]) for s in found["segments"]]
    for (text, *times), (wanted, *others) in zip(segments, expected, strict=True):
        assert text == wanted and times == pytest.approx(others, abs=1e-6)
    number, clock, first, *_ = asked["srt"].splitlines()
    assert (number, first) == ("1", segments[0][0])
    assert asked["vtt"].splitlines()[:4] == ["WEBVTT", "", clock.replace(",", "."), first]


def first_cut(sound):
    """The middle of the quietest tenth of a second in the last fifth of the first second."""
    energies = [float(np.sum(sound[at : at + 1600] ** 2)) for at in (12800, 14400)]
    return (12800, 14400)[int(np.argmin(energies))] + 800


def test_features_are_those_of_hugging_face():
    """Values of WhisperFeatureExtractor (transformers 5.24) for the same sound."""
    features = LogMel(RATE, RATE, 80)
    sound = np.pad(sweep(200, 900, 0.75), (0, RATE // 4))[None]
    found = evaluate(log_mel(features, "samples", "rows"), {"samples": sound}).outputs["rows"][0]
    values = {
        (0, 0): 1.168, (5, 3): 1.3801, (11, 20): 0.6059, (20, 0): 0.5771, (31, 50): 0.638,
        (40, 74): 0.4482, (48, 75): 0.5903, (60, 76): -0.0994, (79, 99): -0.5495,
    }  # fmt: skip
    for place, value in values.items():
        assert found[place] == pytest.approx(value, abs=1e-3), place
    assert found.mean() == pytest.approx(-0.36073753, abs=1e-4)


def test_files_that_are_missing_are_named(edgekit, home):
    path = dictation_model(home)
    about = json.loads((home / "generation_config.json").read_text())
    for change, said in (
        ({"language": "fr"}, "generation_config.json: language: expected one of en, de, found"),
        ({"eos_token_id": None}, "with decoder_start_token_id and eos_token_id, found none"),
        ({"language": "fr", "forced_decoder_ids": [[[1], 2]]}, "language: expected one of"),
        ({"decoder_start_token_id": 1 << 30}, "dictation.json.start: expected"),
    ):
        (home / "generation_config.json").write_text(json.dumps({**about, **change}))
        done = edgekit("compile", path, "-o", "x.ekb")
        assert done.code == 2 and said in done.err
    (home / "tokenizer.json").unlink()
    (home / "generation_config.json").write_text(json.dumps(about))
    done = edgekit("compile", path, "-o", "x.ekb")
    assert done.code == 2 and "expected tokenizer.json in it, found none" in done.err
    (home / "decoder_model.onnx").unlink()
    done = edgekit("compile", path, "-o", "x.ekb", "--task", "transcribe")
    wanted = "decoder_model.onnx with the inputs input_ids and encoder_hidden_states is next to it"
    assert done.code == 2 and f"expected that {wanted}, found none; fetch it, too" in done.err
    assert f"transcribes speech if {wanted}, but it is not" in edgekit("inspect", path).out
