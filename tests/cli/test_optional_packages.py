"""Without a package of an extra, each command that needs it says how to install it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from edgekit.host.common.optional import EXTRAS

_MAIN = """
import contextlib, io, json, sys
blocked = set(sys.argv[1].split(","))
class Blocked:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
from edgekit.host.cli.main import main
answers = []
for arguments in json.load(sys.stdin):
    shown = io.StringIO()
    with contextlib.redirect_stderr(shown), contextlib.redirect_stdout(io.StringIO()):
        code = main(arguments)
    answers.append([code, shown.getvalue()])
print(json.dumps(answers))
"""
# Commands and the packages of which each needs one at least.
_COMMANDS = {
    "inspect {folder}/m.onnx": ["onnx"],
    "compile {folder}/m.onnx --board a57": ["onnx"],
    "inspect {folder}/m.prototxt": ["protobuf"],
    "profile list SELECT": ["pyarrow", "duckdb"],
    "profile report": ["pyarrow", "duckdb"],
    "profile compare a b": ["pyarrow", "duckdb"],
    "profile server run": ["cryptography", "pyarrow"],
    "profile server run --nats nats://127.0.0.1:1 --store {folder}/store": ["nats-py", "pyarrow"],
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    folder = tmp_path_factory.mktemp("home")
    (folder / "m.onnx").write_bytes(b"\x08\x07")
    (folder / "m.prototxt").write_text("layer { }")
    lines = [line.format(folder=folder).split() for line in _COMMANDS]
    done = subprocess.run(
        [sys.executable, "-c", _MAIN, ",".join(EXTRAS)],
        env=os.environ | {"EDGEKIT_HOME": str(folder), "COLUMNS": "1000"},
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return {line: (code, text) for line, (code, text) in zip(_COMMANDS, found, strict=True)}


@pytest.mark.parametrize("line", _COMMANDS)
def test_a_missing_package_is_one_line(line: str, answers: dict[str, tuple[int, str]]) -> None:
    code, text = answers[line]
    last = text.splitlines()[-1]  # after lines of progress
    assert code == 2 and last.startswith("edgekit: ") and "pip install" in last, text
    expected = [f"expected the Python package {name}, found none" for name in _COMMANDS[line]]
    assert any(text in last for text in expected)
