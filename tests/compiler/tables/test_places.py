"""Boards find the tables of their core by platform, following inheritance."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.host.common.paths import data_folder
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.compiler.tables.gemm_file import board_table, load_table, table_text
from edgekit.host.compiler.tables.layouts import layout_table_of
from edgekit.host.compiler.tables.spmv import spmv_table_of
from edgekit.host.errors import InputError
from edgekit.kb.features import GemmShape
from edgekit.kb.tables.paths import shipped_folder, table_name
from edgekit.kb.targets.board import FOLDER, BoardProfile, load_board

AddProfile = Callable[[str, str], BoardProfile]


@pytest.fixture
def profile(tmp_path: Path) -> AddProfile:
    """Add a profile to a copy of edgekit's."""
    folder = tmp_path / "boards"
    shutil.copytree(FOLDER, folder)

    def add(name: str, text: str) -> BoardProfile:
        (folder / f"{name}.toml").write_text(text)
        return load_board(name, folder)

    return add


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's data folder."""
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "data"))
    return data_folder()


def _put(data: Path, kind: str, of: str, name: str) -> None:
    """Install another core's table for the user under a new name."""
    (data / kind).mkdir(parents=True)
    shutil.copy(shipped_folder(kind) / table_name(of), data / kind / name)


@pytest.mark.parametrize(
    ("name", "of"),
    [("nna1", "a53"), ("nna2", "a53"), ("rk3399", "a72"), ("rpi4", "a72"), ("jetson-nano", "a57")],
)
def test_a_board_finds_the_gemm_table_of_its_core(name, of):
    board, core = load_board(name), load_board(of)
    assert table_of(board).rows == table_of(core).rows != ()
    assert table_of(board).platforms == (core.platform,)


def test_a_new_core_is_one_file_and_finds_what_is_known_of_the_nearest(profile):
    a35 = profile("a35", 'inherits = "a53"\ndescription = "A35"\ncore = "cortex-a35"\n')
    a53, shape = load_board("a53"), GemmShape(3, 1000, 3)
    assert a35.platforms[:2] == ("cortex-a35", "cortex-a53") and a35.in_order
    found, known = (table_of(board).choose(board, shape) for board in (a35, a53))
    assert found == known and found.rule == "exact" and known.method
    assert layout_table_of(a35) == layout_table_of(a53) is not None
    nano = profile("a58", 'inherits = "a57"\ndescription = "A58"\ncore = "cortex-a58"\n')
    assert spmv_table_of(nano).rows == spmv_table_of(load_board("a57")).rows != ()


def test_other_instruction_sets_say_nothing_of_a_core(profile):
    a510 = profile("a510", 'inherits = "a53"\ncore = "cortex-a510"\nsimd = "neondot"\n')
    assert "cortex-a53" not in a510.platforms and table_of(a510).rows == ()


@pytest.mark.parametrize("name", ["rk3566", "a55"])
def test_tables_of_a_core_serve_all_boards_that_have_it(name, data):
    board = load_board(name)
    for kind in ("gemm", "spmv"):
        _put(data, kind, "cortex-a57", "cortex-a55.json")
    _put(data, "layouts", "cortex-a72", "cortex-a55.json")
    known = load_table(shipped_folder("gemm") / "cortex-a57.json")
    (data / "gemm/cortex-a55.json").write_text(
        table_text(dataclasses.replace(known, platforms=("cortex-a55",)))
    )
    assert table_of(board).rows == known.rows
    assert spmv_table_of(board).rows == spmv_table_of(load_board("a57")).rows != ()
    assert layout_table_of(board) == layout_table_of(load_board("a72"))


def test_the_user_s_table_of_a_core_goes_before_the_kit_s_and_before_that_of_a_relative(
    profile, tmp_path
):
    a35 = profile("a35", 'inherits = "a53"\ndescription = "A35"\ncore = "cortex-a35"\n')
    known = load_table(shipped_folder("gemm") / "cortex-a53.json")
    few = dataclasses.replace(known.with_rows(known.rows[:9]), platforms=("cortex-a35",))
    (tmp_path / "cortex-a53.json").write_text(table_text(known.with_rows(known.rows[:5])))
    assert board_table(a35, tmp_path).rows == known.rows[:5]
    (tmp_path / "cortex-a35.json").write_text(table_text(few))
    assert board_table(a35, tmp_path).rows == few.rows


def test_a_table_of_another_core_is_refused(data):
    _put(data, "gemm", "cortex-a72", "cortex-a57.json")
    said = "cortex-a57.json: expected rows of cortex-a57, found some of cortex-a72"
    with pytest.raises(InputError, match=said):
        table_of(load_board("a57"))


def test_the_knowledge_base_stays_below_400_000_bytes():
    files = [p for p in shipped_folder("gemm").parents[1].rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files if "__pycache__" not in p.parts) < 400_000
