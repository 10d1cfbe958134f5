"""Errors of the command line say what was probably meant."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("help", "edgekit --help"),
        ("version", "edgekit --version"),
        ("list", "edgekit boards"),
        ("ls", "edgekit boards"),
        ("board rm mypi", "edgekit board remove"),
        ("undeploy", "edgekit remove"),
        ("install my.tflite", "edgekit deploy"),
        ("profile my.tflite", "edgekit bench model my.tflite"),
        ("board list", "edgekit boards"),
        ("bench my.tflite", "edgekit bench model my.tflite"),
        ("status local", "edgekit status --board local"),
        ("doctor pi4", "edgekit doctor --board pi4"),
        ("fleet add boards.csv", "edgekit fleet add --csv boards.csv"),
        ("deploy rpi4 my.tflite", "edgekit deploy my.tflite --board rpi4"),
        ("deploy my.tflite pi4", "edgekit deploy my.tflite --board pi4"),
        ("board add mypi pi@10.0.0.7", "edgekit board add mypi --host pi@10.0.0.7"),
        ("complie my.tflite", "edgekit compile"),
        ("compile my.tflite --bord a57", "--board"),
        ("run my.tflite photo.png", "edgekit run my.tflite --input photo.png"),
        ("compile my.tflite --precision FP16", "f16"),
        ("compile my.tflite --precision int8", "--weights int8"),
    ],
)
def test_a_near_miss_gets_a_proposal(edgekit: Any, line: str, meant: str) -> None:
    done = edgekit(*line.split())
    assert (done.code, done.out) == (2, "")
    assert f"did you mean {meant}" in done.complaint


@pytest.mark.parametrize("line", ["nosuch", "lab list", "deploy a.tflite b", "boards a b"])
def test_unlike_words_get_no_suggestion(edgekit: Any, line: str) -> None:
    done = edgekit(*line.split())
    assert (done.code, done.out) == (2, "")
    assert "did you mean" not in done.complaint and "--help" in done.complaint


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("nosuch", "expected a command, found 'nosuch'"),
        ("lab", "expected a command, found none"),
        ("boards --nosuch", "expected an option of this command, found --nosuch"),
        ("boards a b", "expected no more arguments, found a b"),
        ("board add", "expected NAME, found none"),
        ("deploy m.onnx --board", "expected a value after --board, found none"),
        ("deploy m.onnx --threads x", "--threads: expected an integer, found x"),
        ("deploy m.onnx --threads 0", "--threads: expected at least 1, found 0"),
        ("compile m.onnx --precision f17", "--precision: expected 'f32', 'f16', 'auto', found f17"),
    ],
)
def test_errors_of_the_command_line_say_expected_and_found(
    edgekit: Any, line: str, complaint: str
) -> None:
    done = edgekit(*line.split())
    assert (done.code, done.out) == (2, "")
    assert done.complaint.startswith(f"edgekit: {complaint};")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("inspect m.onnx --board", "expected a value after --board, found none"),
        ("lab bench nna --json=1", "expected --json without a value, found one"),
    ],
)
def test_the_help_that_is_named_is_of_the_command(edgekit: Any, line: str, complaint: str) -> None:
    command = line.partition(" m.")[0].partition(" --")[0]
    assert edgekit(*line.split()).complaint == f"edgekit: {complaint}; see edgekit {command} --help"


@pytest.mark.parametrize("name", ["x.so", "x.tflite"])
def test_an_output_named_like_another_file_is_refused(
    edgekit: Any, face_model: Any, home: Any, name: str
) -> None:
    done = edgekit("compile", face_model, "-o", home / name)
    assert (done.code, done.out) == (2, "")
    assert f"found {name}" in done.complaint and "-o x.ekb" in done.complaint
    assert not (home / name).exists()


def test_names_that_are_something_else_are_said(edgekit: Any) -> None:
    for line, complaint in (
        (("status", "--board", ""), "--board: expected a name, found an empty one"),
        (("estimate", "rpi4"), "a board is named by --board rpi4"),
        (("cache", "clear"), "expected a kind of the cache"),
    ):
        done = edgekit(*line)
        assert (done.code, done.out) == (2, "")
        assert complaint in done.complaint
