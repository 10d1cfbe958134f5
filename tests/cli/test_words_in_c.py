"""C programs get words, speech, lines of text and vectors, as Python programs do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime.application import listen
from edgekit.device.runtime.application import open as open_on_board
from tests.cli.test_hearing import _melody, _silero, _words
from tests.cli.test_last_window import late_or_early
from tests.cli.test_ocr import line_reader, stripes
from tests.cli.test_transcribe import spoken, transcriber
from tests.support.c_application import build_program
from tests.support.detectors import detector
from tests.support.onnx_models import model, node, save, value

_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ek_app.h"

enum { MOST = 1 << 20 };

static void show(const ek_heard *heard, int count) {
    for (int i = 0; i < count; i++)
        printf("%d %.4f %.3f %.3f %s\\n", heard[i].number, heard[i].score, heard[i].start,
               heard[i].end, heard[i].label);
}

static int hear(ek_app *app, const float *samples, int64_t count, int64_t at_once) {
    ek_heard heard[1];
    ek_listener *listener = ek_app_listen(app);
    int found = 0;
    if (!listener)
        return -1;
    for (int64_t at = 0; at < count; at += at_once) {
        const int64_t left = count - at < at_once ? count - at : at_once;
        found = ek_listener_feed(listener, samples + at, left, heard, 1);
        show(heard, found);
    }
    while ((found = ek_listener_finish(listener, heard, 1)) > 0)
        show(heard, found);
    ek_listener_close(listener);
    return found;
}

int main(int count, char **argument) {
    char error[512], text[64] = "?";
    static unsigned char data[MOST];
    static float vector[8];
    ek_app *app = ek_app_open(argument[1], NULL, 1, error, sizeof error);
    if (!app || count < 5)
        return puts(error), 1;
    const char *kind = argument[2];
    const int first = atoi(argument[3]), second = atoi(argument[4]);
    const size_t bytes = fread(data, 1, sizeof data, stdin);
    const ek_frame frame = {data, first, second, 0};
    float score = -1;
    int64_t found = 0;
    if (!strcmp(kind, "hear"))
        found = hear(app, (float *)data, (int64_t)(bytes / 4), first);
    else if (!strcmp(kind, "embed"))
        for (int i = 0; i < (found = ek_app_embed(app, &frame, vector, 8)) && i < 8; i++)
            printf("%.5f\\n", vector[i]);
    else if (!strcmp(kind, "ocr"))
        found = ek_app_ocr(app, &frame, text, sizeof text, &score);
    else
        found = ek_app_transcribe(app, (float *)data, (int64_t)(bytes / 4), text, first, &score);
    if (found < 0)
        puts(ek_app_error(app));
    else if (strcmp(kind, "hear"))
        printf("%d %s %.3f\\n", (int)found, text, score);
    printf("%d\\n", ek_app_rate(app));
    ek_app_close(app);
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "p.c").write_text(_PROGRAM)
    return build_program(folder, folder / "p.c")


@pytest.fixture
def root(home) -> Path:
    return home.parent / "home/boards/local"


def _lines(program: Path, root: Path, kind: str, data: bytes, *sizes: int) -> list[str]:
    words = [program, root, kind, *map(str, (*sizes, 0, 0)[:2])]
    done = subprocess.run(words, input=data, capture_output=True, check=True)
    return done.stdout.decode().splitlines()


def _expected(found) -> list[str]:
    return [f"{h.number} {h.score:.4f} {h.start:.3f} {h.end:.3f} {h.label}" for h in found]


def test_what_is_heard_is_that_of_python(edgekit, home, root, program):
    sound = _melody().astype(np.float32)
    assert edgekit("deploy", _words(home), "--task", "keyword").code == 0
    with open_on_board(root=root) as model:
        ear = listen(model)
        expected = _expected([*ear.feed(sound.tolist()), *ear.finish()])
    assert len(expected) == 2
    for at_once in (len(sound), 1601):
        *lines, rate = _lines(program, root, "hear", sound.tobytes(), at_once)
        assert (lines, rate) == (expected, "16000")
    refused = _lines(program, root, "embed", bytes(27), 3, 3)[0]
    assert refused == "expected a model compiled with --task embed, found another"


@pytest.mark.slow
def test_the_last_window_ends_where_the_sound_does(edgekit, home, root, program):
    assert edgekit("deploy", late_or_early(home), "--task", "keyword").code == 0
    for quiet in (0, 10100):
        sound = np.zeros(quiet + 900, np.float32)
        sound[quiet:] = 0.3 * np.sin(np.arange(900))
        with open_on_board(root=root) as model:
            ear = listen(model)
            expected = _expected([*ear.feed(sound.tolist()), *ear.finish()])
        assert [each.split()[-1] for each in expected] == ["late"]
        assert _lines(program, root, "hear", sound.tobytes(), 777)[:-1] == expected


@pytest.mark.slow
@pytest.mark.parametrize("window", [512, 576])
def test_states_are_carried_from_window_to_window(edgekit, home, root, program, window):
    sound = np.zeros(24000, np.float32)
    sound[6000:14000] = np.random.default_rng(0).uniform(-0.7, 0.7, 8000)
    sound[23000:] = 0.7  # does not end before the sound does, and is too short
    assert edgekit("deploy", _silero(home, window), "--task", "vad").code == 0
    with open_on_board(root=root) as model:
        ear = listen(model)
        expected = _expected([*ear.feed(sound.tolist()), *ear.finish()])
    assert len(expected) == 1
    assert _lines(program, root, "hear", sound.tobytes(), 7001)[:-1] == expected


def _in_parts(folder: Path) -> Path:
    """As pyannote: 80 parts of a second, of which those that are loud have another class than the
    first."""
    nodes = [
        node("Reshape", ["x", "shape"], ["parts"]),
        node("ReduceMax", ["parts"], ["loud"], axes=[2], keepdims=1),
        node("Mul", ["loud", "gain"], ["logits"]),
        node("Add", ["logits", "bias"], ["y"]),
    ]
    bias = np.float32([9, 0, 0, 0, 0, 0, 0])
    constants = {"shape": np.array([1, 80, 200]), "gain": np.float32([0, *[40] * 6]), "bias": bias}
    made = model(nodes, [value("x", [1, 1, 16000])], ["y"], constants, opset=13)
    return save(made, folder)


def test_speech_in_parts_of_a_window(edgekit, home, root, program):
    sound = np.zeros(40000, np.float32)
    sound[5000:20000] = 0.5
    assert edgekit("deploy", _in_parts(home), "--task", "vad").code == 0
    with open_on_board(root=root) as board:
        ear = listen(board)
        found = [*ear.feed(sound.tolist()), *ear.finish()]
    ((start, end),) = ((each.start, each.end) for each in found)
    assert (start, end) == pytest.approx((5000 / 16000 - 0.03, 20000 / 16000 + 0.03))
    assert _lines(program, root, "hear", sound.tobytes(), 7001)[:-1] == _expected(found)


def test_what_is_said_is_that_of_python(edgekit, home, root, program):
    text = "AAB ÉA BÉÉ AB AAÉB A"
    assert edgekit("deploy", transcriber(home), "--task", "transcribe").code == 0
    for said, loud in ((text, 0.1), ("AAB", 0.001), ("", 0)):
        sound = np.asarray(spoken(said, loud) if said else np.zeros(8000), np.float32)
        with open_on_board(root=root) as model:
            line = model.transcribe(sound.tolist())
        expected = f"{len(said.encode())} {said} {line.score:.3f}"
        assert _lines(program, root, "transcribe", sound.tobytes(), 64)[0] == expected
    cut, rate = _lines(program, root, "transcribe", np.float32(spoken(text)).tobytes(), 6)
    assert cut.startswith("24 AAB  ") and rate == "16000"  # no half of the next character
    refused = _lines(program, root, "hear", bytes(4), 1)[0]
    assert refused == "expected a model compiled with --task keyword or vad, found another"


@pytest.mark.slow
def test_lines_and_vectors_are_those_of_python(edgekit, home, root, program):
    assert edgekit("deploy", line_reader(home), "--task", "ocr").code == 0
    short = stripes(["é", "é", None, "é", "\u3000", "c", "c", None])
    long = stripes(["é", "c"] * 8)
    long[0] = 0  # not plain: there is no gap between characters
    apart = stripes([*["é", "c"] * 3, *[None] * 3, *["c", "é"] * 3])
    apart[0, :72], apart[0, 108:] = 0, 0
    for frame in (short, long, apart, stripes(["c"], 24), stripes([None])):
        with open_on_board(root=root) as model:
            line = model.ocr(frame)
        expected = f"{len(line.text.encode())} {line.text} {line.score:.3f}"
        height, width, _ = frame.shape
        assert _lines(program, root, "ocr", frame.tobytes(), width, height)[0] == expected
    vector = np.random.default_rng(0).normal(0, 1, (1, 12)).astype(np.float32)
    path = detector(home, {"y": vector}, (8, 8))
    assert edgekit("deploy", path, "--task", "embed").code == 0
    *lines, count, _ = _lines(program, root, "embed", bytes(192), 8, 8)
    assert [float(line) for line in lines] == pytest.approx(
        (vector[0] / np.linalg.norm(vector)).tolist()[:8], abs=1e-5
    )
    assert count.startswith("12 ")
