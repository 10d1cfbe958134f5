"""Table rows that this edgekit or the board cannot compute are skipped and reported once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.host.compiler.costs.methods.operators import Form, candidates_of
from edgekit.host.compiler.tables.gemm import table_of, user_table
from edgekit.host.compiler.tables.gemm_file import board_table, table_text
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase, OperatorRow
from edgekit.host.compiler.tables.supported import why_impossible
from edgekit.host.errors import InputError
from edgekit.kb.features import GemmShape, Sequences, key_of
from edgekit.kb.targets.board import load_profile, profile_names

_SIZES = 125, 64, 64


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))


def _write(board: str, group: list[Any], *rows: list[Any], of: str = "operator_groups") -> Path:
    """Write a user table for a board with these rows."""
    profile = load_profile(board)
    content = json.loads(table_text(KnowledgeBase((profile.platform,))))
    columns = json.loads(table_text(board_table(load_profile("rpi5"))))
    content |= {name: value for name, value in columns.items() if name.endswith("columns")}
    path = user_table(profile)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**content, of: [[group, list(rows)]]}))
    return path


@pytest.mark.parametrize("name", profile_names())
def test_every_board_computes_all_rows_of_the_kit(name: str) -> None:
    assert board_table(load_profile(name)).skipped == ()


@pytest.mark.slow
def test_every_candidate_is_possible() -> None:
    for name in profile_names():
        board = load_profile(name)
        for form in _forms():
            if form.dtype == "f16" and not board.computes_half:
                continue
            isa = board.isa.of_half if form.dtype == "f16" else board.isa
            for threads in (1, 4):
                for each in candidates_of(form, isa, board, threads):
                    key = key_of(form.shape, 0, Sequences(), form.dtype, threads, "b", form.name)
                    row = OperatorRow(key, each.method, form.shape, "tuner")
                    assert why_impossible(row, board) == ""


def _forms() -> Iterator[Form]:
    for dtype in ("f32", "f16", "s8", "u8"):
        yield Form("conv", GemmShape(3136, 64, 128), dtype, (1, 56, 56), weight_bytes=32768)
        yield Form("conv", GemmShape(196, 2304, 256), dtype, (1, 14, 14), (3, 3), row_bytes=2304)
        yield Form("conv", GemmShape(49, 9216, 64), dtype, (1, 7, 7), (3, 3), row_bytes=1 << 20)
        yield Form("dense", GemmShape(1, 1024, 1000), dtype, weight_bytes=4 << 20)
        yield Form("dense", GemmShape(128, 4096, 96), dtype, (1, 1, 128), x_bytes=2 << 20)
        yield Form("depthwise", GemmShape(784, 9, 64), dtype, (1, 28, 28), (3, 3), (2, 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "dtype", "threads", "method", "said"),
    [
        ("rpi5", "s8", 1, [99, 8], "at most 12 x 4, 8 x 8, 7 x 12 or 5 x 16, found 99 x 8"),
        ("rpi5", "s8", 1, [8, 7], "found 8 x 7"),
        ("rpi3", "s8", 1, [8, 8], "found 8 x 8"),  # needs dot products, which an A53 lacks
        ("rpi3", "f16", 1, [8, 16], "expected f32, s8, u8, which this core computes, found f16"),
        ("rpi5", "f64", 1, [8, 8], "expected f32, s8, u8, f16, which this core computes, found"),
        ("rpi5", "f32", 1, [8, 8, "m", None, 3], "blocks of k of 128, 256 or 512, found 3"),
        ("rpi5", "f32", 1, [8, 8, "m", None, -1], "found 8, 8, -1, 1 and None"),
        ("rpi5", "f32", 1, [8, 8, "m", None, 0, 1, 3], "a band of 0, 1, 2, 4, found 8"),
        ("rpi5", "f32", 1, [8, 8, "m", "fastest"], "fastest"),
        ("orangepi-pc", "s8", 1, [8, 8, "m", "winograd"], "found winograd"),
        ("orangepi-pc", "f32", 1, [8, 8, "m", "winograd"], "a tile of 4 x 8, found 8 x 8"),
        ("rpi5", "f32", 1, [6, 8, "m", "winograd"], "of 8 x 8 or 4 x 16, found 6 x 8"),
        (
            "rpi5",
            "f32",
            1,
            [3, 4, "m", "depthwise"],
            "expected a tile of at most 2 x 4 or 2 x 16, found 3 x 4",
        ),
        ("rpi5", "f32", 0, [8, 8], "expected 1 or more threads, found 0"),
    ],
)
def test_an_unsupported_row_is_reported_once_and_the_others_apply(
    board: str, dtype: str, threads: int, method: list[Any], said: str, caplog: Any
) -> None:
    good = ["conv3s1", 64, 576, 64, 0]
    path = _write(board, [dtype, threads, "tuner"], ["conv1s1", *_SIZES, method, 0.5])
    content = json.loads(path.read_text())
    content["operator_groups"].append([["f32", 1, "tuner"], [good]])
    path.write_text(json.dumps(content))
    profile = load_profile(board)
    table = table_of(profile)
    assert [row.key.form for row in table.operators] == ["conv3s1"]
    assert table_of(profile) == table
    (line,) = caplog.messages
    assert line.startswith(f"{path}: 1 of 2 rows are not used; the first, ") and said in line
    assert f"edgekit lab kb build --board {board}" in line


@pytest.mark.parametrize(
    ("threads", "method", "said"),
    [
        (1, [0, 0, 0, "b", 99, 8], "found 99 x 8"),
        (1, [0, -1, 0, "b", 8, 8], "expected kc of 1 or more, found -1"),
        (0, [0, 0, 0, "b", 8, 8], "expected 1 or more threads, found 0"),
    ],
)
def test_an_unsupported_row_of_a_product_is_reported(
    threads: int, method: list[Any], said: str, caplog: Any
) -> None:
    _write("rpi5", ["f32", threads, "b", "tuner"], [*_SIZES, method, 3, 1.0, 0.5], of="groups")
    assert table_of(load_profile("rpi5")).rows == ()
    assert said in caplog.text


@pytest.mark.parametrize("text", ["[]", "null", "{}", ""])
def test_an_invalid_table_is_one_line_with_a_remedy(text: str) -> None:
    path = _write("rpi5", ["f32", 1, "tuner"])
    path.write_text(text)
    with pytest.raises(InputError, match=r"cortex-a76.json: expected .*edgekit.kb.gemm/1.*found"):
        table_of(load_profile("rpi5"))


def test_a_folder_in_the_place_of_a_table_is_one_line() -> None:
    path = _write("rpi5", ["f32", 1, "tuner"])
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match="expected a GEMM table, found: Is a directory; remove it"):
        table_of(load_profile("rpi5"))
