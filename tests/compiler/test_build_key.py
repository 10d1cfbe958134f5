"""The key of a compile: it changes with everything that a compile depends on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgekit.host.compiler.build_key import build_key
from edgekit.host.compiler.options import DEFAULT_OPTIONS, CompileOptions, StateBinding
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.deploy.connections import profile_of
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import load_board

ROOT = Path(__file__).parents[2]
TABLES = ("cost", "gemm", "layouts", "orders", "spmv")
# Another value of each option, with the options that it needs.
OPTIONS: dict[str, dict[str, Any]] = {
    "shapes": {"shapes": {"x": (1, 2)}},
    "signatures": {"signatures": ("main",)},
    "memory_limit": {"memory_limit": 1 << 20},
    "weights": {"weights": "int4"},
    "precision": {"precision": "f16"},
    "samples": {"samples": Path("samples")},
    "group_size": {"group_size": 32, "weights": "int4"},
    "min_cosine": {"min_cosine": 0.9, "weights": "int4", "samples": Path("samples")},
    "states": {"states": (StateBinding("a", "b"),)},
    "order": {"order": "memory"},
    "task": {"task": "none"},
    "head": {"head": "ssd"},
    "context_tokens": {"context_tokens": 64},
    "kv_cache": {"kv_cache": "int8"},
    "max_rows": {"max_rows": 64},
    "random_seed": {"random_seed": 1},
    "threads": {"threads": 2},
    "cluster": {"cluster": "big"},
    "shadow": {"shadow": 10, "weights": "int8"},
    "field_ranges": {"field_ranges": True, "weights": "int8"},
    "recognizer": {"recognizer": Path("okay_nabu.tflite")},
    "float_model": {"float_model": Path("okay_nabu.tflite"), "shadow": 10},
    "more_shapes": {"more_shapes": ({"x": (1, 3)},)},
}


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a model in the working directory, and an empty home."""
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(ROOT / "models" / "okay_nabu.tflite", tmp_path))


def key_of(model: Path, options: CompileOptions = DEFAULT_OPTIONS, board: str = "a72") -> str:
    return build_key(model, load_board(board), options)


def change_byte(file: Path) -> None:
    """Changes the last byte, and neither the size nor the time of a file."""
    before, content = file.stat(), bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_each_option_gives_another_key(model: Path) -> None:
    names = {f.name for f in fields(CompileOptions)}
    assert set(OPTIONS) == names, "give each option another value in OPTIONS of this file"
    keys = {key_of(model, replace(DEFAULT_OPTIONS, **given)) for given in OPTIONS.values()}
    assert len({key_of(model), *keys}) == 1 + len(OPTIONS)


def test_a_byte_of_the_model_or_its_name_gives_another_key(model: Path) -> None:
    before = key_of(model)
    assert key_of(Path(shutil.copy(model, "other.tflite"))) != before
    change_byte(model)
    assert key_of(model) != before


def test_a_byte_of_the_files_beside_a_model_gives_another_key(tmp_path: Path) -> None:
    values = onnx.numpy_helper.from_array(np.ones((16, 16), np.float32), "w")
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, 16)) for name in "xy"
    )
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph([node], "net", [x], [y], [values])
    onnx.save(
        onnx.helper.make_model(graph),
        tmp_path / "net.onnx",
        save_as_external_data=True,
        location="net.data",
        size_threshold=0,
    )
    (tmp_path / "net.prototxt").write_text("text")
    (tmp_path / "net.caffemodel").write_text("weights")
    for text, data in (("net.onnx", "net.data"), ("net.prototxt", "net.caffemodel")):
        before = key_of(tmp_path / text)
        change_byte(tmp_path / data)
        assert key_of(tmp_path / text) != before


def test_labels_and_a_tokenizer_beside_a_model_give_another_key(model: Path) -> None:
    known = {key_of(model)}
    for name in ("labels.txt", "okay_nabu.txt", "config.json", "tokenizer.json", "vocab.txt"):
        (model.parent / name).write_text("a")
        known.add(key_of(model))
        change_byte(model.parent / name)
        known.add(key_of(model))
    assert len(known) == 11
    (model.parent / "notes.md").write_text("a")
    assert key_of(model) in known


def test_a_byte_of_a_sample_gives_another_key(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    for name in ("0.npz", "1.npz"):
        (folder / name).write_text("sample")
    for samples, file in ((folder, folder / "1.npz"), (folder / "0.npz", folder / "0.npz")):
        options = CompileOptions(samples=samples)
        before = key_of(model, options)
        change_byte(file)
        assert key_of(model, options) != before


@pytest.mark.parametrize("kind", TABLES)
def test_a_byte_of_a_users_table_gives_another_key(model: Path, tmp_path: Path, kind: str) -> None:
    table = tmp_path / "home" / kind / "a72.json"
    keys = {key_of(model)}
    table.parent.mkdir(parents=True)
    table.write_text("{}")
    keys.add(key_of(model))
    change_byte(table)
    assert len({*keys, key_of(model)}) == 3


def _zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [os.mkfifo, _zero])
def test_a_file_that_is_no_table_is_not_read(
    model: Path, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    before = key_of(model)
    table = tmp_path / "home" / "gemm" / "cortex-a72.json"
    table.parent.mkdir(parents=True)
    make(table)
    assert key_of(model) != before
    with pytest.raises(InputError, match=f"{table}: expected a GEMM table"):
        table_of(load_board("a72"))


def test_another_profile_in_the_project_file_gives_another_key(model: Path, tmp_path: Path) -> None:
    keys = set()
    for profile in ("a72", "rpi4", "a76"):
        (tmp_path / "edgekit.toml").write_text(f'[boards.gate]\nprofile = "{profile}"\nhost = "h"')
        keys.add(key_of(model, board=profile_of("gate")))
    assert len(keys) == 3


@pytest.mark.slow
def test_a_byte_of_the_kit_gives_another_key(tmp_path: Path) -> None:
    kit = tmp_path / "edgekit"
    for room in ("device", "host", "kb"):
        shutil.copytree(ROOT / room, kit / room, ignore=shutil.ignore_patterns("__pycache__"))
    program = "from edgekit.host.compiler.build_key import kit_digest; print(kit_digest())"

    def digest() -> bytes:
        variables = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.check_output([sys.executable, "-c", program], env=variables)

    table = next((kit / "kb" / "tables" / "gemm").glob("*.json"))
    before = digest()
    assert digest() == before
    change_byte(table)
    assert digest() != before


OPENED = """
import sys
opened = []
sys.addaudithook(lambda event, given: event == "open" and opened.append(given[0]))
from pathlib import Path
from edgekit.host.compiler.driver import prepare, units_of
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.options import CompileOptions
from edgekit.kb.targets.board import load_board
board, options = load_board("a76"), CompileOptions(precision="auto")
made = prepare(Path(sys.argv[1]), board, options, Path(sys.argv[2]))
units_of(plan_of(made.graph, board, options)[1], board)
print(*{str(name) for name in opened if isinstance(name, str)}, sep="\\n")
"""


@pytest.mark.slow
def test_planning_a_model_reads_no_file_that_is_not_in_its_key(model: Path, tmp_path: Path) -> None:
    """Otherwise a table of a new kind could change without anyone noticing."""
    cache = tmp_path / "cache"
    shown = subprocess.check_output([sys.executable, "-c", OPENED, model, cache], text=True)
    known = (str(ROOT), str(model), str(cache), sys.prefix, sys.base_prefix, "/proc/", "/sys/")
    tables = tuple(str(tmp_path / "home" / kind) for kind in TABLES)
    assert [name for name in shown.split() if not name.startswith((*known, *tables))] == []
