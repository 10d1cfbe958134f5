"""The GEMM library: its sources for every board, and that it can be found again."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.device.runtime.arrays.find import find_library
from edgekit.device.runtime.arrays.gemm_library import GemmLibrary
from edgekit.host.compiler.toolchain.kernels import build_tables, kernel_units, tables
from edgekit.host.compiler.toolchain.zig import kernels_folder
from edgekit.host.local_kernels import local_library, local_path
from edgekit.kb.targets.board import board_names, load_board
from edgekit.kb.targets.isa import isa_names, isa_of

_DTYPES = ("f32", "s8", "u8")


@pytest.mark.parametrize("simd", isa_names())
@pytest.mark.parametrize("dtype", _DTYPES)
def test_every_tile_of_the_methods_has_a_code(simd, dtype):
    isa = isa_of(simd)
    heights = isa.columns.of(dtype)
    assert all(1 <= h <= 32 for h in heights)
    for tile in isa.tiles(dtype):
        assert tile.mr <= heights[tile.nv - 1]


@pytest.mark.parametrize("name", board_names())
def test_units_have_names_of_their_own_and_sources(name):
    board = load_board(name)
    units = kernel_units(board)
    assert len({unit.name for unit in units}) == len(units)
    assert all(unit.text() for unit in units)
    listed = tables(board)
    symbols = [u.name for u in units if u.source == kernels_folder() / "gemm/f32_tiles.c"]
    assert len(symbols) == len(board.isa.columns.f32)
    assert all(f"extern const ek_gemm_column {symbol};" in listed for symbol in symbols)


def test_the_tables_of_one_board_are_the_same_every_time():
    board = load_board("a57")
    assert build_tables(board) == build_tables(board)
    assert tables(board) == tables(board)


@pytest.mark.slow
def test_the_library_of_this_machine_is_built_once_and_found_again():
    path, table = find_library()
    assert path == local_path() and table == path.with_name(f"{path.name}.table")
    before = path.stat().st_mtime_ns
    assert find_library()[0].stat().st_mtime_ns == before
    library = GemmLibrary(path, table)
    isa = load_board("local").isa
    for dtype in _DTYPES:
        found = library.tiles(dtype)
        wanted = {f"{t.mr}x{t.nv * isa.vl}" for t in isa.tiles(dtype)}
        heights = {tile.partition("x")[2]: int(tile.partition("x")[0]) for tile in found}
        assert all(int(t.partition("x")[0]) <= heights[t.partition("x")[2]] for t in wanted)


@pytest.mark.parametrize("terminal", [True, False])
def test_waiting_for_the_library_is_explained(monkeypatch, tmp_path, terminal):
    def built(command, **_):
        Path(command[-1]).parent.mkdir(parents=True)
        Path(command[-1]).touch()
        return subprocess.CompletedProcess(command, 0, b"", b"")

    class Shown(io.StringIO):
        def isatty(self):
            return terminal

    shown = Shown()
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    local_library(built, shown)
    assert shown.getvalue().count("\n") == terminal
    assert not terminal or "compiling the kernels library" in shown.getvalue()


def test_the_command_prints_where_it_built(tmp_path):
    wanted = tmp_path / "new" / "kernels.so"
    done = subprocess.run(
        [sys.executable, "-m", "edgekit.host.compiler.toolchain.kernels", str(wanted)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert done.stdout.strip() == str(wanted)
    assert wanted.is_file() and wanted.with_name("kernels.so.table").is_file()
