"""`edgekit lock`, with a fake emulator that reports given cycle counts."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml  # type: ignore[import-untyped]

from edgekit.host.cli.app import app
from edgekit.host.cli.meant import command_tree
from edgekit.host.compiler.options import CompileOptions, StateBinding
from edgekit.host.errors import InputError
from edgekit.host.lab.bench.locked import options_document, options_of, read_lock, relative
from edgekit.host.simulator.emulator import Emulator, plugin_of
from edgekit.host.simulator.model import runner_of
from tests.support.fake_emulator import answer, write_emulator
from tests.support.onnx_models import model, node, save, value

_CI = Path(__file__).parents[2] / "docs/ci"


@pytest.fixture
def emulate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """emulate(cycles, ...): an emulator under which operators take these cycles, and edgekit
    forgets what it estimated before."""
    plugin_of(Emulator("qemu-aarch64", (7, 2)))
    runner_of("aarch64")
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def write(*cycles: int) -> None:
        # The emulator is part of an estimate's key: its size differs with each answer.
        does = f": {sum(cycles)}"
        write_emulator(folder, answer([0, *cycles], sum(cycles)), does=does, version="7.2.22")

    return write


@pytest.fixture
def small(home: Path) -> Path:
    """Two operators that are not fused."""
    parts = [node("Relu", "x", "y"), node("Softmax", "y", "z", axis=1)]
    return save(model(parts, [value("x", (1, 64))], ["z"]), home, "small.onnx")


@pytest.mark.slow
def test_a_model_is_as_locked_until_it_costs_more(
    edgekit: Any, small: Path, home: Path, emulate: Callable[..., None]
) -> None:
    emulate(1000, 500)
    lock = ("lock", "-o", "edgekit.lock")
    done = edgekit("lock", small, "--board", "rpi4,rpi5")
    assert done.code == 0, done.err
    content = (home / "edgekit.lock").read_bytes()
    first, second = read_lock(home / "edgekit.lock").models
    assert (first.model, first.board, second.board) == ("small.onnx", "rpi4", "rpi5")
    assert (first.cycles, [o.cycles for o in first.operators]) == (1500, [1000, 500])
    assert first.operators[0].bytes == 2 * 64 * 4
    checked = edgekit("lock", "--check")
    assert checked.code == 0 and checked.out.count("| as locked |") == 2

    emulate(1000, 530)
    worse = edgekit("lock", "--check")
    assert worse.code == 9
    assert "| **worse** cycles | 1,500 | 1,530 | +2.00% |" in worse.out
    assert "expected cycles of small.onnx on rpi4 to be 1,500 as locked" in worse.complaint
    assert f"| {first.operators[1].name} | 500 | 530 | +6.00% |" in worse.out
    allowed = edgekit("lock", "--check", "--fail-above", "2%", "--json")
    assert allowed.code == 0 and not allowed.document["models"][0]["is_worse"]
    assert (home / "edgekit.lock").read_bytes() == content

    emulate(900, 500)
    better = edgekit("lock", "--check")
    assert better.code == 0 and "nothing is worse" in better.err
    assert edgekit(*lock).code == 0
    assert {m.cycles for m in read_lock(home / "edgekit.lock").models} == {1400}
    emulate(1000, 500)
    assert edgekit(*lock).code == 0
    assert (home / "edgekit.lock").read_bytes() == content


def test_a_model_that_lost_similarity_is_worse(
    edgekit: Any, small: Path, home: Path, emulate: Callable[..., None]
) -> None:
    emulate(1000, 500)
    assert edgekit("lock", small, "--board", "rpi4").code == 0
    file = home / "edgekit.lock"
    lock = json.loads(file.read_text())
    lock["models"][0]["cosine"] = 1.01
    lock["models"][0]["sha256"] = "0" * 64
    lock["edgekit"] = "0.0.9"
    file.write_text(json.dumps(lock))
    done = edgekit("lock", "--check")
    assert done.code == 9 and "**worse** cosine to f32" in done.out
    assert "`small.onnx` is not the file that was locked" in done.out
    assert "edgekit 0.0.9 locked them, this is " in done.out


ENTRY = """{"schema": "edgekit.lock/1", "edgekit": "0.1.0", "models": [{"model": "gone.onnx",
"sha256": "", "board": "rpi4", "options": {}, "threads": 1, "cycles": 7, "arena_bytes": 0,
"state_bytes": 0, "weights_bytes": 0, "cosine": null, "operators": []}]}"""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "expected a lock file, found none; write it: edgekit lock MODEL"),
        ("[]", "expected a lock file of edgekit, found Expected `object`"),
        ("\0", "expected a lock file of edgekit"),
        (ENTRY.replace("7,", "-7,"), "found Expected `int` >= 0"),
        (ENTRY, "edgekit.lock: expected the model gone.onnx, found no such file; put it back"),
        (
            '{"schema": "edgekit.lock/9", "edgekit": "", "models": []}',
            "found edgekit.lock/9; use the edgekit",
        ),
    ],
)
def test_a_bad_file_is_one_line(edgekit: Any, home: Path, content: str | None, said: str) -> None:
    if content is not None:
        (home / "edgekit.lock").write_text(content)
    done = edgekit("lock", "--check")
    assert done.code == 2 and said in done.complaint


def test_options_that_exclude_each_other_are_one_line(edgekit: Any) -> None:
    for words, said in (
        (("--check", "m.tflite"), "expected MODELS or --check, found both"),
        (("--check", "--weights", "int8"), "expected --check or compile options, found both"),
        (("m.tflite", "--fail-above", "1%"), "expected --check with --fail-above, found none"),
        (("--check", "--fail-above", "much"), "--fail-above: expected a percentage such as 5%"),
        (("m.tflite", "--board", "local"), "m.tflite: no such file"),
    ):
        done = edgekit("lock", *words)
        assert done.code == 2 and said in done.complaint, done.err


def test_compile_options_come_back(tmp_path: Path) -> None:
    folder = tmp_path / "project" / "locks"
    options = CompileOptions(
        shapes={"x": (1, 3)},
        weights="int4",
        samples=tmp_path / "project" / "s.npz",
        min_cosine=0.9,
        states=(StateBinding("a", "b"),),
    )
    document = options_document(options, folder)
    assert document["samples"] == "../s.npz" and "order" not in document
    again = options_of(json.loads(msgspec.json.encode(document)), folder)
    assert again.samples is not None and again.samples.resolve() == options.samples
    assert options_document(again, folder) == document
    assert options_document(CompileOptions(), folder) == {}
    for bad in ({"colour": 1}, {"weights": "int5"}, {"samples": 5}, {"group_size": 7}):
        with pytest.raises(InputError, match=r"expected|found"):
            options_of(bad, folder)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    assert relative(tmp_path / "a/m.onnx", tmp_path) == "a/m.onnx"
    assert relative(tmp_path / "m.onnx", tmp_path / "b/c") == "../../m.onnx"


@pytest.mark.parametrize("name", ["github.yml", "gitlab.yml"])
def test_templates_run_commands_that_there_are(name: str) -> None:
    document = yaml.safe_load((_CI / name).read_text())
    lines = [text for text in _texts(document) if text.startswith("edgekit lock")]
    assert len(lines) == 1
    command: Any = command_tree(app)
    words = shlex.split(lines[0].partition(">")[0])[1:]
    known = {flag for p in command.commands[words[0]].params for flag in p.opts}
    assert {word for word in words if word.startswith("-")} <= known and "--check" in words
    (install,) = [text for text in _texts(document) if text.startswith("pip install")]
    assert "@ ${EDGEKIT:?" in install  # the distribution is on no package index


def _texts(document: Any) -> list[str]:
    if isinstance(document, dict):
        document = [*document.values()]
    if isinstance(document, list):
        return [text for each in document for text in _texts(each)]
    return [str(document)]
