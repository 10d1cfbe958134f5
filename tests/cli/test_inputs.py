"""Bad files and boards on the command line: one line of error, exit code 2."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.cli.options import byte_count

TAKE_A_MODEL = (["compile"], ["deploy"], ["run", "--input", "x.npz", "--output", "y.npz"])


@pytest.mark.parametrize("command", [*TAKE_A_MODEL, ["bench", "model"]], ids=lambda c: c[0])
def test_missing_model(edgekit: Any, command: list[str]) -> None:
    done = edgekit(*command, "nosuch.tflite")
    assert (done.code, done.out) == (2, "")
    assert "nosuch.tflite: no such file" in done.complaint


@pytest.mark.parametrize("command", [*TAKE_A_MODEL, ["bench", "model"]], ids=lambda c: c[0])
def test_folder_for_a_model(edgekit: Any, home: Path, command: list[str]) -> None:
    (home / "models").mkdir()
    done = edgekit(*command, "models")
    assert done.code == 2
    assert "found a folder" in done.complaint


def _zip(*names: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), "content")  # the same at any time
    return content.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "advice"),
    [
        ("cat.jpg", b"\xff\xd8\xff\xe0", "a picture, which is an input: edgekit run MODEL"),
        ("net.pt", _zip("net/data.pkl", "net/version"), "edgekit compile FILE.py:FUNCTION"),
        ("old.pth", b"\x80\x02}q", "edgekit compile FILE.py:FUNCTION"),
        ("random.pt", b"\x8f\1\2", r"begins with b'\x8f\x01\x02', as none named .pt does"),
        ("random.h5", b"\x8f\1\2", "as none named .h5 does; fetch it again"),
        ("cut.safetensors", b"\2\0\0\0", "as none named .safetensors does"),
        ("net.py", b"import torch", "edgekit compile FILE.py:FUNCTION"),
        ("hub/pytorch_model.bin", b"\x80\2", "weights without their network"),
        ("pytorch_model.bin", b"\x80\2", "save them as safetensors"),
        ("script.jit", _zip("net/data.pkl", "net/version"), "edgekit compile FILE.py:FUNCTION"),
        ("net.h5", b"\x89HDF\r\n\x1a\n", "from_keras_model"),
        ("net.keras", _zip("config.json", "model.weights.h5"), "from_keras_model"),
        ("frozen.pb", b"\n\x10\n\x05input", "tf2onnx"),
        ("saved/saved_model.pb", b"\x08\x01", "from_saved_model"),
        ("w.safetensors", b"\2\0\0\0\0\0\0\0{}", "weights without their network"),
        ("net.mlmodel", b"\x08\4\x12\3abc", "a model for Core ML"),
        ("net.mlpackage/Manifest.json", b"{}", "a model for Core ML"),
        ("net.engine", b"ftrt", "a model for TensorRT"),
        ("net.mnn", b"\x1c", "a model for MNN"),
        ("net.pte", _zip("program"), "a model for ExecuTorch"),
        ("net.param", b"7767517\n", "a model for ncnn"),
        ("ncnn/net.param", b"7767517\n", "a folder with net.param, a model for ncnn"),
        ("net.xml", b"<?xml", "a model for OpenVINO"),
        ("net.pdmodel", b"\n\xf4", "paddle2onnx"),
        ("paddle/inference.pdiparams", b"\0", "paddle2onnx"),
        ("inference.json", b'{"base_code":{"magic":"pir"}}', "paddle2onnx"),
        ("net.caffemodel", b"\n\3net", "net.caffemodel: expected the network's text"),
        ("net.ckpt.data-00000-of-00001", b"\0", "a TensorFlow checkpoint"),
        ("tf/net.ckpt.index", b"\0", "a TensorFlow checkpoint"),
        ("booster.ubj", b"{L", "convert_xgboost"),
        ("booster.txt", b"tree\nversion=v4\n", "convert_lightgbm"),
        ("net.tar.gz", b"\x1f\x8b\x08", "an archive; unpack it and name the model inside"),
        ("net.tar", b"net.onnx\0", "an archive; unpack it and name the model inside"),
        ("empty.zip", _zip("README"), "an archive; unpack it and name the model inside"),
        ("cut.zip", _zip("README")[:30], "an archive that is cut or damaged"),
        ("svm.joblib", b"\x80\4\x95", "skl2onnx"),
        ("models.zip", _zip("a/m.onnx", "README"), "an archive with a/m.onnx"),
        ("models/m.onnx", b"\x08\4", "a folder with m.onnx; name the model"),
        ("lfs.onnx", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        ("page.onnx", b"<!DOCTYPE html>", "a web page; download the file itself"),
        ("error.tflite", b'{"message":"Not Found"}', "begins with b'{\"messag'"),
    ],
)  # fmt: skip
def test_a_file_of_another_kind_is_recognized(
    edgekit: Any, home: Path, name: str, content: bytes, advice: str
) -> None:
    path = home / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    done = edgekit("compile", Path(name).parts[0], "-o", "out.ekb")
    assert done.code == 2
    assert advice in done.complaint


def test_a_file_in_a_folder_of_another_format_is_recognized(edgekit: Any, home: Path) -> None:
    for name in ("saved_model.pb", "net.xml", "net.bin"):
        (home / "other").mkdir(exist_ok=True)
        (home / "other" / name).write_bytes(b"\x08\1\x12")
    assert "from_saved_model" in edgekit("inspect", "other/saved_model.pb").complaint
    assert "weights of a model for OpenVINO" in edgekit("inspect", "other/net.bin").complaint
    (home / "other" / "saved_model.pb").unlink()
    assert "a folder with net.xml, a model for OpenVINO" in edgekit("inspect", "other").complaint


def _bundle(path: Path, models: dict[str, bytes]) -> bytes:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in models.items():
            archive.writestr(name, content)
    return path.read_bytes()


def test_the_detector_of_a_bundle_of_mediapipe_is_taken(
    edgekit: Any, home: Path, face_model: Path
) -> None:
    finder = face_model.read_bytes()
    parts = {"face_detector.tflite": finder, "face_landmarks_detector.tflite": b"points"}
    inner = _bundle(home / "face_landmarker.task", {**parts, "geometry.binarypb": b"more"})
    _bundle(home / "outer.task", {"face_landmarker.task": inner, "embedder.tflite": b"other"})
    _bundle(home / "two.task", {"face_detector.tflite": finder, "pose_detector.tflite": finder})
    for name, others in (
        ("face_landmarker.task", "face_landmarks_detector.tflite"),
        ("outer.task", "face_landmarks_detector.tflite, embedder.tflite"),
    ):
        done = edgekit("inspect", name)
        assert done.code == 0 and "MediaPipe's face detectors" in done.out
        assert f"{name}: takes face_detector.tflite of this bundle of MediaPipe" in done.err
        assert f"not {others}, which take what it finds" in done.err
    said = edgekit("inspect", "two.task").complaint
    assert "an archive with face_detector.tflite, pose_detector.tflite" in said


def test_a_damaged_bundle_of_mediapipe_is_one_line(
    edgekit: Any, home: Path, face_model: Path
) -> None:
    path = home / "face_landmarker.task"
    data = bytearray(_bundle(path, {"face_detector.tflite": face_model.read_bytes()}))
    data[1000] ^= 255
    path.write_bytes(data)
    assert (
        "expected a bundle of MediaPipe, found one that is damaged"
        in edgekit("inspect", path.name).complaint
    )
    path.write_bytes(data[:5000])
    assert (
        "an archive that is cut or damaged; fetch it again"
        in edgekit("inspect", path.name).complaint
    )


def test_what_a_checkpoint_is_does_not_depend_on_its_size(edgekit: Any, home: Path) -> None:
    with (home / "big.pth").open("wb") as file:
        file.write(b"\x80\2}q")
        file.truncate(4 << 30)
    assert "found a PyTorch file; name a function" in edgekit("compile", "big.pth").complaint


def test_pickled_weights_of_hugging_face_are_named(edgekit: Any, home: Path) -> None:
    (home / "config.json").write_text("{}")
    (home / "pytorch_model.bin").write_bytes(b"\x80\2")
    assert "save them as safetensors" in edgekit("compile", str(home)).complaint


def test_other_commands_say_what_converts_a_program_of_pytorch(edgekit: Any, home: Path) -> None:
    (home / "net.pt2").write_bytes(_zip("net/models/model.json", "net/byteorder"))
    said = edgekit("inspect", "net.pt2").complaint
    assert "a program of torch.export; convert it: edgekit compile FILE.pt2 -o model.onnx" in said
    (home / "net.pt").write_bytes(_zip("net/data.pkl", "net/code/__torch__.py"))
    said = edgekit("inspect", "net.pt").complaint
    assert "a program of TorchScript; convert it: edgekit compile FILE.pt --input-shape" in said


@pytest.mark.parametrize("command", [["compile"], ["deploy"]], ids=lambda c: c[0])
def test_no_model_named(edgekit: Any, command: list[str]) -> None:
    done = edgekit(*command)
    assert done.code == 2
    assert "edgekit.toml" in done.complaint


@pytest.mark.parametrize(
    "command",
    [
        *TAKE_A_MODEL,
        ["bench", "model"],
        ["status"],
        ["rollback"],
        ["remove", "--default"],
        ["doctor"],
    ],
    ids=lambda c: c[0],
)
def test_unknown_board(edgekit: Any, face_model: Path, command: list[str]) -> None:
    model = [] if command[0] in ("status", "rollback", "remove", "doctor") else [face_model]
    done = edgekit(*command, *model, "--board", "nosuch")
    assert (done.code, done.out) == (2, "")
    assert "nosuch" in done.complaint
    assert "edgekit boards" in done.complaint


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04", b"\0" * 4096])
@pytest.mark.parametrize("command", [["compile"], ["deploy"]], ids=lambda c: c[0])
def test_neither_model_nor_bundle(
    edgekit: Any, home: Path, command: list[str], content: bytes
) -> None:
    (home / "m.tflite").write_bytes(content)
    done = edgekit(*command, "m.tflite")
    assert (done.code, done.out) == (2, "")
    assert "m.tflite" in done.complaint
    assert sorted(p.name for p in home.iterdir()) == ["m.tflite"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model = ", "TOML"),
        ("modell = 'x'", "modell"),
        ("model = 3", "3"),
        ("[board]\nname = 'a57'", "board"),
    ],
)
def test_broken_settings(edgekit: Any, home: Path, text: str, expected: str) -> None:
    (home / "edgekit.toml").write_text(text)
    done = edgekit("deploy")
    assert done.code == 2
    assert "edgekit.toml: " in done.complaint
    assert expected in done.complaint


def test_settings_name_model_and_board(edgekit: Any, home: Path) -> None:
    (home / "edgekit.toml").write_text('model = "mine.tflite"\n')
    assert "mine.tflite: no such file" in edgekit("compile").complaint
    (home / "edgekit.toml").write_text('board = "nosuch"\n')
    assert "nosuch" in edgekit("status").complaint


@pytest.mark.parametrize("command", [["compile", "-o"], ["run", "--input", "x.npz", "--output"]])
def test_output_that_is_a_device(edgekit: Any, face_model: Path, command: list[str]) -> None:
    np.savez("x.npz", input=np.zeros((1, 128, 128, 3), np.float32))
    done = edgekit(*command, "/dev/null", face_model)
    assert (done.code, done.out) == (2, "")
    assert "/dev/null: expected a file" in done.complaint
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    "size",
    ["", "-1MiB", "0", "0.0001KiB", "1.5", ".5MiB", "1e3KiB", "many", "9" * 5000, "12 parsecs"],
)
def test_memory_limit_that_is_no_size(edgekit: Any, face_model: Path, size: str) -> None:
    done = edgekit("compile", face_model, f"--memory-limit={size}")
    assert (done.code, done.out) == (2, "")
    assert "--memory-limit: expected a number" in done.complaint and size[:50] in done.complaint


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("1.5KiB", 1536),
        ("0.0005G", 536870),
        ("0.015 MB", 15000),
        ("4k", 4096),
        ("4kb", 4000),
        ("1536", 1536),
        ("1536B", 1536),
    ],
)
def test_sizes_may_be_fractions_of_the_usual_units(size: str, count: int) -> None:
    assert byte_count(size) == count


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("okay_nabu", "1.5KiB"),
        *(
            pytest.param("face_detection_short_range", size, marks=pytest.mark.exhaustive)
            for size in ("1KiB", "100KiB")
        ),
    ],
)
def test_memory_limit_that_cannot_be_met(
    edgekit: Any, face_model: Path, model: str, size: str
) -> None:
    done = edgekit("compile", face_model.with_name(f"{model}.tflite"), "--memory-limit", size)
    assert (done.code, done.out) == (2, "")
    limit = int(float(size[:-3]) * 1024)
    assert "operator " in done.complaint and "arena" in done.complaint
    assert f"at most {limit} bytes" in done.complaint
