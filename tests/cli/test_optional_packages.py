"""Without the packages of extras, each command works or says in one line what to install."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.host.cli.app import app
from edgekit.host.cli.meant import command_tree
from edgekit.host.common.optional import EXTRAS

_FACES = Path(__file__).parents[2] / "models" / "face_detection_short_range.tflite"
_PEERS = (
    "MNN", "ai_edge_litert", "bitsandbytes", "cv2", "mkl", "ncnn", "onnxruntime", "openvino",
    "scipy", "sparse_dot_mkl", "torch",
)  # fmt: skip
_MAIN = """
import contextlib, io, json, sys
blocked = set(sys.argv[1].split(","))
class Without:
    def __init__(self, finder):
        self._finder = finder
    def find_spec(self, name, *more):
        return None if name.partition(".")[0] in blocked else self._finder.find_spec(name, *more)
    def __getattr__(self, name):
        return getattr(self._finder, name)
sys.meta_path[:] = map(Without, sys.meta_path)
from edgekit.host.cli.main import main
answers = []
for arguments in json.load(sys.stdin):
    shown = io.StringIO()
    with contextlib.redirect_stderr(shown), contextlib.redirect_stdout(io.StringIO()):
        code = main(arguments)
    answers.append([code, shown.getvalue()])
print(json.dumps(answers))
"""
# Command lines and the packages of which each needs one at least. All commands are here.
_COMMANDS = {
    "app install {folder}/watcher {folder}/m.onnx": ["onnx"],
    "app library {folder}/none --board none": [],
    "app new camera {folder}/camera": [],
    "app start": [],
    "app status": [],
    "app stop": [],
    "bench model {folder}/m.onnx": ["onnx"],
    "board add n --host a@b --fingerprint x": [],
    "board down a57": [],
    "board remove n": [],
    "board up none": [],
    "boards": [],
    "cache": [],
    "choose {folder}/m.onnx --fps 1 --dask tcp://127.0.0.1:1": ["distributed"],
    "compare {folder}/m.onnx --board rpi4": ["onnx"],
    "compile {folder}/m.onnx --board a57": ["onnx"],
    "compile {faces} -o {folder}/faces.onnx": [],
    "console": [],
    "deploy {folder}/m.onnx": ["onnx"],
    "deploy {faces} --board none": [],
    "deploy --tables": [],
    "doctor": [],
    "estimate {folder}/m.onnx --board rpi4": ["onnx"],
    "estimate {faces} --board rpi4 --dask tcp://127.0.0.1:1": ["distributed"],
    "fleet add --csv {folder}/none": [],
    "fleet deploy {folder}/m.onnx": [],
    "inspect {folder}/m.onnx": ["onnx"],
    "inspect {folder}/m.prototxt": ["protobuf"],
    "inspect {faces}": [],
    "lab bench gemm --shapes {folder}/none --peers": [],
    "lab bench nna": [],
    "lab bench sparse --matrix {folder}/none --peers": [],
    "lab kb build": [],
    "lab kb lookup --gemm 8x8x8 --board a57": [],
    "lab tune cost --board none": [],
    "lab tune gemm --dask tcp://127.0.0.1:1": ["distributed"],
    "lab tune model {folder}/m.onnx --dask tcp://127.0.0.1:1": ["distributed"],
    "lab tune sparse --board none": [],
    "lock {folder}/m.onnx --board rpi4": ["onnx"],
    "profile compare a b": ["pyarrow", "duckdb"],
    "profile list --forget --days 1": [],
    "profile list SELECT": ["pyarrow", "duckdb"],
    "profile pull": [],
    "profile report": ["pyarrow", "duckdb"],
    "fleet enroll local --server h": ["cryptography"],
    "fleet serve": ["cryptography", "pyarrow"],
    "fleet serve --nats nats://127.0.0.1:1 --store {folder}/store": ["nats-py", "pyarrow"],
    "prune {faces} --samples {folder}/pictures -o {folder}/p.tflite": ["Pillow"],
    "quantize {faces} --samples {folder}/pictures -o {folder}/q.tflite": ["Pillow"],
    "remove --default": [],
    "rollback": [],
    "run {folder}/m.onnx --input {folder}/pictures/x.png --top 1": ["onnx"],
    "status": [],
}


def _answers(folder: Path) -> dict[str, tuple[int, str]]:
    """Exit code and stderr of each command line, all from one process."""
    (folder / "m.onnx").write_bytes(b"\x08\x07")
    (folder / "m.prototxt").write_text("layer { }")
    (folder / "watcher").mkdir()
    (folder / "watcher" / "app.toml").touch()
    (folder / "watcher" / "main.py").touch()
    (folder / "pictures").mkdir()
    (folder / "pictures" / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    lines = [line.format(folder=folder, faces=_FACES).split() for line in _COMMANDS]
    done = subprocess.run(
        [sys.executable, "-c", _MAIN, ",".join((*EXTRAS, *_PEERS))],
        env=os.environ | {"EDGEKIT_HOME": str(folder), "COLUMNS": "1000"},
        input=json.dumps(lines),
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return {line: (code, text) for line, (code, text) in zip(_COMMANDS, found, strict=True)}


@pytest.mark.exhaustive
def test_a_missing_package_is_one_line(tmp_path: Path) -> None:
    for line, (code, text) in _answers(tmp_path).items():
        last = (text.splitlines() or [""])[-1]  # after lines of progress
        assert code != 1 and "Traceback" not in text and "bug:" not in text, (line, text)
        expected = [f"expected the Python package {name}, found none" for name in _COMMANDS[line]]
        assert any(words in last for words in expected) == bool(expected), (line, text)
        if expected:
            assert code == 2 and last.startswith("edgekit: "), (line, text)
            assert "pip install" in last, (line, text)


def test_all_commands_are_tried() -> None:
    tried = {tuple(line.split()) for line in _COMMANDS}
    for path in _paths(command_tree(app)):
        assert any(line[: len(path)] == path for line in tried), " ".join(path)


def _paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    inner = getattr(command, "commands", None)
    if not inner or (path and command.invoke_without_command):
        yield path
    for name, each in (inner or {}).items():
        yield from _paths(each, (*path, name))
