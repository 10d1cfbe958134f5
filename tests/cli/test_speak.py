"""`edgekit run` of voices: phonemes or their numbers become WAV files; the same on the board."""

from __future__ import annotations

import json
import wave

import numpy as np
import pytest

from edgekit.device.runtime.agent.task import TaskSpec
from edgekit.device.runtime.agent.voice import samples_of
from edgekit.device.runtime.application import InputError
from edgekit.device.runtime.application import open as open_on_board
from tests.support.voices import RATE, expected_samples, voice_model

_AB = [1, 0, 3, 0, 4, 5, 0, 2]  # "ab" as Piper's training has it
_TILDE = [1, 0, 3, 0, 6, 0, 2]  # "a" with a tilde, which is decomposed


def said(path):
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        return np.frombuffer(file.readframes(1 << 20), "<i2") / 32767


def same(found, expected):
    assert len(found) == len(expected) and np.abs(found - expected).max() < 2e-3


def test_phonemes_become_a_sound(edgekit, home):
    path = voice_model(home)
    (home / "ab.txt").write_text("ab\n")
    done = edgekit("run", path, "--input", "ab.txt")
    assert done.code == 0, done.err
    assert "open shapes are input=1,256, for so many phonemes" in done.err
    assert "speaks with the phonemes of voice.onnx.json" in done.err
    expected = expected_samples(_AB)
    same(said(home / "ab.out.wav"), expected)
    assert f"spoken   ab.out.wav: {len(expected) / RATE:.2f} s" in done.out
    lines = ["\u00e3", json.dumps(_AB), json.dumps({"phoneme_ids": _AB[:3]})]
    (home / "many.jsonl").write_text("\n".join(lines))
    done = edgekit("run", "--input", "many.jsonl", "--output", "all.wav", "--json")
    assert done.code == 0, done.err
    pause = np.zeros(RATE // 5)
    parts = [expected_samples(numbers) for numbers in (_TILDE, _AB, _AB[:3])]
    whole = np.concatenate([parts[0], pause, parts[1], pause, parts[2]])
    same(said(home / "all.wav"), whole)
    (found,) = done.document["inputs"]
    assert found["spoken"] == {"file": "all.wav", "s": pytest.approx(len(whole) / RATE)}
    for text, wrong in (("axb", "found 'x'"), ("a" * 200, "input=1,403"), ("[1, true]", "numbers")):
        (home / "wrong.txt").write_text(text)
        done = edgekit("run", "--input", "wrong.txt")
        assert done.code == 2 and wrong in done.err, done.err
    for output in ("x.json", "-"):
        done = edgekit("run", "--input", "ab.txt", "--output", output)
        assert done.code == 2 and f"{output}: expected a .wav or a folder" in done.err, done.err
    assert not (home / "x.json").exists()
    assert edgekit("run", "--input", "ab.txt", "--output", "out").code == 0
    same(said(home / "out" / "ab.wav"), expected)
    with open_on_board(root=home.parent / "home/boards/local") as board:
        same(np.array(board.speak("ab")), expected)
        same(np.array(board.speak(_AB)), expected)
        with pytest.raises(InputError, match="--task transcribe"):
            board.transcribe([])


def test_models_that_are_no_voices_say_so(edgekit, home):
    path = voice_model(home)
    (home / "ab.txt").write_text("ab\n")
    done = edgekit("run", path, "--input", "ab.txt", "--output", "x.wav", "--task", "none",
                   "--input-shape", "input=1,9")  # fmt: skip
    assert done.code == 2 and "x.wav: expected a model with --task speak" in done.err
    shape = ("--task", "none", "--input-shape", "input=1,9")
    assert edgekit("deploy", path, *shape).code == 0
    given = {"input": np.zeros((1, 9), np.int64), "input_lengths": np.array([9])}
    np.savez(home / "in.npz", **given, scales=np.ones(3, np.float32))
    done = edgekit("run", "--input", "in.npz", "--output", "x.wav")
    assert done.code == 2 and "x.wav: expected a model with --task speak" in done.err
    assert not (home / "x.wav").exists()
    for audio in ("{}", "[1]"):
        (home / "voice.onnx.json").write_text(f'{{"phoneme_id_map": {{}}, "audio": {audio}}}')
        done = edgekit("compile", path, "-o", "x.ekb")
        assert done.code == 2 and "expected audio.sample_rate, found None" in done.err, done.err
    (home / "voice.onnx.json").unlink()
    done = edgekit("compile", path, "-o", "x.ekb", "--task", "speak", "--input-shape", "input=1,9")
    assert done.code == 2 and "voice.onnx.json next to the model, found 'input' [1, 9]" in done.err


def test_speech_that_has_no_room_is_not_cut():
    task = TaskSpec("speak", "input", "output", rate=RATE, mask="length")
    made = {"output": np.ones(RATE, np.float32), "length": np.array([RATE])}
    assert len(samples_of(task, made)) == RATE
    with pytest.raises(InputError, match=r"at most 1\.0 s of speech, found 1\.5 s; shorten"):
        samples_of(task, {**made, "length": np.array([RATE * 3 // 2])})
