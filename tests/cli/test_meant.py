"""Errors of the command line say what was probably meant."""

from __future__ import annotations

from pathlib import Path
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
        ("board add mypi ssh://pi@h", "edgekit board add mypi --host pi@h"),
        (
            "board add b /dev/ttyUSB0",
            "edgekit board add b --transport serial --device /dev/ttyUSB0",
        ),
        ("complie my.tflite", "edgekit compile"),
        ("compile my.tflite --bord a57", "--board"),
        ("run my.tflite photo.png", "edgekit run my.tflite --input photo.png"),
        ("compile my.tflite --precision FP16", "f16"),
        ("run my.tflite --task detection", "detect"),
        ("run my.tflite --task classification", "classify"),
        ("convert my.onnx", "edgekit compile"),
        ("board start a57", "edgekit board up"),
        ("remove wake-word", "edgekit remove --name wake-word"),
        ("rollback wake-word", "edgekit rollback --name wake-word"),
        ("compile my.tflite --precision int8", "--weights int8"),
        ("run my.tflite -i photo.png", "--input"),
        ("deploy my.tflite --device pi4", "--board"),
        ("compile my.tflite --target pi4", "--board"),
        ("path/my.tflite", "edgekit deploy path/my.tflite"),
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
        ("deploy m.onnx --threads 257", "--threads: expected 1 to 256, found 257"),
        ("compile m.onnx --threads 0", "--threads: expected at least 1, found 0"),
        ("fleet serve --port 0", "--port: expected 1 to 65535, found 0"),
        ("estimate m.onnx --timeout x", "--timeout: expected a number, found x"),
        (
            "compile m.onnx --precision f17",
            "--precision: expected one of 'f32', 'f16', 'auto', found f17",
        ),
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


@pytest.mark.slow
def test_names_that_are_something_else_are_said(edgekit: Any) -> None:
    for line, complaint in (
        (("status", "--board", ""), "--board: expected a name, found an empty one"),
        (("estimate", "rpi4"), "a board is named by --board rpi4"),
        (("cache", "clear"), "found 'clear'; empty it: edgekit cache --clean"),
    ):
        done = edgekit(*line)
        assert (done.code, done.out) == (2, "")
        assert complaint in done.complaint


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("compile wake.tflit", "did you mean wake.tflite?"),
        ("compile wake", "did you mean wake.tflite?"),
        ("run wake.tflite --input phot.png", "did you mean photo.png?"),
        (
            "compile https://example.org/m.onnx",
            "fetch it first: curl -LO https://example.org/m.onnx",
        ),
        ("run wake.tflite --input http://a/b.png", "fetch it first: curl -LO http://a/b.png"),
    ],
)
def test_a_file_that_is_not_there_gets_a_proposal(
    edgekit: Any, line: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("wake.tflite", "wake.npz", "photo.png"):
        (tmp_path / name).touch()
    done = edgekit(*line.split())
    assert done.code == 2 and done.complaint.rstrip().endswith(advice)


def test_a_model_is_not_a_board_by_its_suffix(edgekit: Any) -> None:
    done = edgekit("deploy", "model.h5")  # an Allwinner H5 is a profile
    assert done.code == 2 and "no such file" in done.complaint
    assert "--board" not in done.complaint


def test_nothing_is_proposed_for_an_unlike_file(edgekit: Any, tmp_path: Path) -> None:
    (tmp_path / "wake.tflite").touch()
    assert "did you mean" not in edgekit("compile", str(tmp_path / "other.onnx")).complaint
    assert "did you mean" not in edgekit("compile", str(tmp_path / "no" / "wake.tflite")).complaint


@pytest.mark.parametrize("address", ["pi@raspberrypi.local", "10.0.0.7", "pi@10.0.0.7:22"])
def test_an_address_as_board_gets_the_command_that_names_it(edgekit: Any, address: str) -> None:
    for command in ("status", "estimate"):
        complaint = edgekit(command, "--board", address).complaint
        assert f"edgekit board add NAME --host {address}" in complaint


def test_a_file_as_application_gets_the_command_that_makes_one(
    edgekit: Any, tmp_path: Path
) -> None:
    (tmp_path / "app.py").touch()
    complaint = edgekit("app", "install", str(tmp_path / "app.py")).complaint
    assert "found a file" in complaint and "edgekit app new serve" in complaint


def test_an_option_of_one_value_may_not_have_two(edgekit: Any) -> None:
    done = edgekit("compile", "m.tflite", "--board", "rpi4", "--board=rpi5")
    assert (done.code, done.out) == (2, "")
    assert "--board: expected one value, found rpi4 and rpi5" in done.complaint
    same = edgekit("status", "--board", "nosuch", "--board", "nosuch").complaint
    assert "expected one value" not in same
