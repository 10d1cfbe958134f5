"""The history: atomic writes, several writers, damaged rows counted, CSV fully validated."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.errors import InputError
from edgekit.host.lab.history.measurement import Measurement
from edgekit.host.lab.history.store import History
from edgekit.host.lab.tune.csv_import import REQUIRED, read_csv
from edgekit.kb.features import GemmShape

_ROOT = Path(__file__).parents[3]
_METHOD = Method(64, 256, 512, True, False, 8, 8)


def measured(m: int = 64, platform: str = "cortex-a57") -> Measurement:
    return Measurement(
        "a57", platform, "f32", 1, GemmShape(m, 32, 16), _METHOD, 1e-3, 2e-3, 0.01,
        "2026-01-01T00:00:00Z", "0.1.0", "tuner",
    )  # fmt: skip


def test_what_was_added_is_read(tmp_path: Path):
    path = tmp_path / "history.sqlite"
    with History(path) as history:
        x86 = replace(measured(3), cpu="AuthenticAMD family 25 model 17")
        assert history.add([measured(1), measured(2, "u74"), x86]) == 3
    with History(path) as again:
        assert again.read().measurements == [measured(1), measured(2, "u74"), x86]
        assert again.read("u74").measurements == [measured(2, "u74")]


def test_a_failure_in_the_middle_stores_nothing(tmp_path: Path):
    def broken():
        yield measured(1)
        raise RuntimeError("the board is gone")

    with History(tmp_path / "h.sqlite") as history:
        with pytest.raises(RuntimeError):
            history.add(broken())
        assert history.read().measurements == []


_WRITER = """
from pathlib import Path
from edgekit.host.lab.history.store import History
from tests.lab.tune import test_history as t
print("ready", flush=True)
for i in range(1000000):
    with History(Path({path!r})) as h:
        h.add([t.measured(i), t.measured(i)])
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_whole_additions(tmp_path: Path):
    path = tmp_path / "h.sqlite"
    code = _WRITER.format(path=str(path))
    for delay in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=_ROOT
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            while not path.exists() or len(_read(path)) < 2 * (delay + 1):
                time.sleep(0.02)
            writer.kill()
    found = _read(path)
    assert len(found) % 2 == 0
    assert all(a == b for a, b in zip(found[::2], found[1::2], strict=True))


def _read(path: Path) -> list[Measurement]:
    with History(path) as history:
        return history.read().measurements


@pytest.mark.slow
def test_two_writers_lose_nothing(tmp_path: Path):
    path = tmp_path / "h.sqlite"
    tests = str(Path(__file__).parent)
    code = _WRITER.format(path=str(path), tests=tests).replace("1000000", "25")
    writers = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in "ab"]
    assert [w.communicate()[1] or w.returncode for w in writers] == [0, 0]
    assert len(_read(path)) == 2 * 2 * 25


def test_rows_that_cannot_be_are_skipped_and_counted(tmp_path: Path):
    path = tmp_path / "h.sqlite"
    with History(path) as history:
        history.add([measured(1), measured(2), measured(3)])
    with sqlite3.connect(path) as db:
        db.execute("UPDATE gemm SET cost = -1 WHERE m = 1")
        db.execute("UPDATE gemm SET mr = 'eight' WHERE m = 2")
    with History(path) as history:
        read = history.read()
    assert read.skipped == 2 and read.measurements == [measured(3)]


def test_a_damaged_or_newer_file_is_one_line(tmp_path: Path):
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"this is no database" * 400)
    newer = tmp_path / "newer.sqlite"
    History(newer).close()
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version = 99")
    for path in (damaged, newer):
        with pytest.raises(InputError) as error:
            History(path)
        assert path.name in str(error.value) and "\n" not in str(error.value)


def _csv(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "past.csv"
    path.write_text("\n".join([",".join(REQUIRED), *rows]) + "\n")
    return path


_GOOD = "a57,cortex-a57,f32,1,64,32,16,64,256,512,1,0,8,8,0.001,0.002"


def test_csv_rows_become_measurements(tmp_path: Path):
    read = read_csv(_csv(tmp_path, _GOOD), "0.1.0", "2026-01-01T00:00:00Z")
    assert read.refused == [] and len(read.measurements) == 1
    found = read.measurements[0]
    assert (found.source, found.method, found.ratio) == ("import", _METHOD, 0.5)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("0.001,", "nan,", "seconds"),
        (",64,32,", ",-64,32,", "m=-64"),
        (",1,0,8", ",maybe,0,8", "pack_a"),
        ("f32", "f65", "dtype"),
        (",8,8,", ",8,x,", "nr"),
        (",0.002", "", "default_seconds"),
    ],
)
def test_bad_csv_rows_are_named(old, new, word, tmp_path: Path):
    read = read_csv(_csv(tmp_path, _GOOD, _GOOD.replace(old, new, 1)), "0.1.0", "now")
    assert len(read.measurements) == 1 and len(read.refused) == 1
    assert read.refused[0].startswith("line 3:") and "\n" not in read.refused[0]
    assert word in read.refused[0] or word == "default_seconds"


def test_a_csv_without_its_columns_is_refused(tmp_path: Path):
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="board, platform"):
        read_csv(path, "0.1.0", "now")


@pytest.mark.parametrize("version", [1, 6, 8])
def test_a_history_of_another_version_is_refused_in_one_line(tmp_path: Path, version: int):
    path = tmp_path / "h.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(InputError) as caught:
        History(path)
    assert str(caught.value) == (
        f"{path}: expected a history of version 7, found {version}; "
        "move the file away to start a new one"
    )


def test_what_is_known_is_not_stored_again(tmp_path: Path):
    path = tmp_path / "h.sqlite"
    with History(path) as history:
        assert history.add_new([measured(1), measured(2), measured(1)]) == 2
        assert history.add_new([replace(measured(2), when="later"), measured(3)]) == 1
    assert [m.shape.m for m in _read(path)] == [1, 2, 3]
