"""Products of programs teach the knowledge base, and its tables go back to the board."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.batch import OperatorSpread, batch_bytes
from edgekit.device.runtime.arrays.calls import method_text, settings_text
from edgekit.device.runtime.arrays.gemm_library import GemmMethod
from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.host.compiler.costs.methods.gemm import Method, analytic_method
from edgekit.host.deploy.api import connect
from edgekit.host.deploy.release.tables import bundle_with_tables
from edgekit.host.errors import IncompatibleError
from edgekit.host.fleet.profiles import ProfileStore
from edgekit.host.lab.tune.csv_import import REQUIRED
from edgekit.host.lab.tune.field_calls import field_calls
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import load_board
from tests.support.profile_batches import SPOOL, batch

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
_PROGRAM = Path(__file__).parents[1] / "support" / "sampled_products.py"
_SHAPE = GemmShape(96, 96, 96)


@pytest.mark.slow
def test_a_spoiled_table_is_mended_by_the_products_of_a_program(edgekit: Any, home: Path) -> None:
    """The table says that a tiny tile in tiny blocks is ten times as fast as it is."""
    board = load_board("local")
    slow = f"2,4,{board.isa.vl},1,1,2,{board.isa.vl}"
    lies = home / "lies.csv"
    lies.write_text(
        f"{','.join(REQUIRED)}\nlocal,{board.platform},f32,1,96,96,96,{slow},0.0001,0.001\n"
    )
    assert edgekit("lab", "kb", "build", "--board", "local", "--import", lies).code == 0
    deployed = edgekit("deploy", "--kernels", "--json").document

    def run() -> str:
        command = [
            sys.executable,
            "-I",
            "-S",
            _PROGRAM,
            deployed["runtime"],
            "40",
            "96",
            "96",
            "96",
        ]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert edgekit("profile", "pull", "--sampling", "explore").code == 0
    spoiled = f"2x{board.isa.vl} in 2x4x{board.isa.vl}\n"
    assert run() == spoiled
    assert edgekit("profile", "pull", "--json").document["stored"]["new"] == 2
    table = edgekit("profile", "report").out.splitlines()
    assert max(map(len, table)) <= 80 and table[1].split()[:2] == ["product", "method"]
    numbers = table[1].index("threads")
    assert re.match(r" {6}\d  ", table[2][numbers:])  # right-aligned
    built = edgekit("lab", "kb", "build", "--board", "local")
    assert "from programs on 1 board\n" in built.out, built.err
    pushed = edgekit("deploy", "--tables", "--json").document
    assert pushed["changed"] and pushed["previous"] == deployed["release"]
    new = Path(deployed["runtime"]).with_name("kernels.so.table")
    assert pushed["sent_bytes"] == new.stat().st_size
    assert run() != spoiled


def kept(tmp_path: Path, *rows: OperatorSpread, boards: int = 2) -> ProfileStore:
    """A store with a batch of these rows from each of several boards."""
    store = ProfileStore(tmp_path / "profiles")
    for number in range(1, boards + 1):
        made = batch(number, 1, "rpi4")
        subject = replace(made.subject, model="kernels of cortex-a72", kit="0.1.0")
        made = replace(made, operators=rows, subject=subject)
        store.add(f"pi-{number}", batch_bytes(made, SPOOL, number, 0, 0))
    return store


def timed(kind: str, name: str, method: str, ns: int) -> OperatorSpread:
    return OperatorSpread(name, kind, method, 3, ns, ns, ns)


def _text(how: Method) -> str:
    return method_text(GemmMethod(**{name: getattr(how, name) for name in _FIELDS}))


_FIELDS = ("mc", "kc", "nc", "pack_a", "pack_b", "mr", "nr", "split")


def test_a_runner_up_that_wins_on_boards_becomes_a_row(home: Path, tmp_path: Path) -> None:
    board, name = load_board("rpi4"), "f32 96x96x96"
    default = analytic_method(board, _SHAPE).cut(_SHAPE)
    better = replace(default, mr=4, nr=8).cut(_SHAPE)
    rows = [timed("gemm-trial", name, _text(default), 10_000)]
    rows.append(timed("gemm-trial", name, _text(better), 8_000))
    store = kept(tmp_path, timed("gemm", name, _text(default), 9_000), *rows)
    found = field_calls(board, store)
    (winner,) = found.winners
    assert (winner.product, winner.method) == (f"gemm {name}", _text(better))
    assert (winner.ratio, winner.won, winner.batches, winner.boards) == (0.8, 2, 2, 2)
    tuned = replace(found.measurements[0], source="tuner")
    assert [m.method for m in found.added_to([tuned])] == [found.measurements[1].method]


def test_settings_of_a_sparse_matrix_come_from_two_tables(home: Path, tmp_path: Path) -> None:
    board, name = load_board("rpi4"), "f32 1000x1000:8000 random wide"
    rule, other = BlockSettings(8), BlockSettings(8, window=0)
    times = (
        timed("spmv", name, settings_text(rule), 9000),
        timed("spmv", name, settings_text(other), 6000),
    )
    (row,) = field_calls(board, kept(tmp_path, *times)).rows
    assert (row.settings, row.ratio, row.key.spread) == (other, 0.6667, "random")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (timed("gemm", "f32 96x96", "8x8 8x8x8 - m", 9), "expected f32 MxKxN, found 'f32 96x96'"),
        (timed("gemm", "f32 900x900x900", "8x8 8x8x8 - m", 9), "expected at least 177979 ns"),
        (timed("gemm", "f32 1x1x1", "8x8", 9), "expected MRxNR MCxKCxNC ab m, found '8x8'"),
        (timed("spmv", "f32 2x2:5 even wide", "", 9), "expected at most 4 non-zeros in 2 x 2"),
        (timed("spmv", "f32 2x2:4 odd wide", "", 9), "expected one of even, random, skewed"),
    ],
)
def test_a_batch_that_lies_is_refused(tmp_path: Path, row: OperatorSpread, said: str) -> None:
    store = ProfileStore(tmp_path)
    made = replace(batch(1), operators=(row,))
    stored = store.add("pi", batch_bytes(made, SPOOL, 1, 0, 0))
    assert stored.new == 0 and said in stored.reasons[0]


@pytest.mark.slow
def test_tables_go_to_the_kernels_of_their_core_only(edgekit: Any, home: Path) -> None:
    done = edgekit("deploy", "--tables")
    assert done.code == 2 and "expected kernels, found no release" in done.complaint
    both = edgekit("deploy", "--tables", "--kernels")
    assert both.code == 2 and "expected --kernels or --tables, found both" in both.complaint
    edgekit("deploy", "--kernels")
    assert "already in service" in edgekit("deploy", "--tables").out
    with pytest.raises(IncompatibleError, match="expected kernels for cortex-a72, found some for"):
        bundle_with_tables(connect("local").named("kernels"), load_board("rpi4"))
