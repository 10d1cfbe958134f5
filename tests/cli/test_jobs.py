"""Several boards or models in parallel, on this host and on the workers of a real Dask cluster."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from edgekit.host.cli.app import explain
from edgekit.host.cli.many import check_all
from edgekit.host.common.paths import cache_folder
from edgekit.host.errors import EdgekitError, UnreachableError
from edgekit.host.lab.history.store import History
from edgekit.host.lab.jobs.dask_pool import DaskPool
from edgekit.host.lab.jobs.task import Task, TaskReport, run_task
from tests.support.clusters import Cluster, running_cluster
from tests.support.patience import AMPLE, until

pytestmark = [
    pytest.mark.slow,
    # Importing it takes longer than collecting the tests of most folders.
    pytest.mark.skipif(not find_spec("distributed"), reason="needs Dask's distributed"),
]

_BOARDS = """
[boards.one]
profile = "local"
transport = "local"

[boards.two]
profile = "local"
transport = "local"
"""


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.txt"
    path.write_text("17,65,33\n8,32,16\n")
    return path


@pytest.fixture
def cluster(tmp_path: Path, home: Path) -> Iterator[Cluster]:
    del home
    with running_cluster(tmp_path / "cluster") as found:
        yield found


def _know_boards(home: Path) -> None:
    """Writes an inventory with both boards."""
    folder = home / "config"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "boards.toml").write_text(_BOARDS)


def _measured(home: Path) -> dict[str, int]:
    """Row count of a history per board, even while another process writes it."""
    path = home / "history.sqlite"
    if not path.exists():
        return {}
    with sqlite3.connect(path, timeout=AMPLE) as db:
        try:
            return dict(db.execute("SELECT board, count(*) FROM gemm GROUP BY board"))
        except sqlite3.OperationalError:  # table not created yet
            return {}


def _tune(edgekit: Any, shapes: Path, *more: str) -> Any:
    words = ("--allow-noise", "--shapes", shapes, "--json")
    return edgekit("lab", "tune", "gemm", "--board", "one,two", *words, *more)


@pytest.mark.exhaustive
def test_two_boards_are_tuned_here_side_by_side(edgekit: Any, shapes: Path, tmp_path: Path) -> None:
    _know_boards(tmp_path / "home")
    done = _tune(edgekit, shapes, "--budget", "60s")
    assert done.code == 0, done.err
    boards = done.document["boards"]
    assert [b["board"] for b in boards] == ["one", "two"]
    assert all(b["ok"] and b["result"]["finished"] for b in boards)
    assert _measured(tmp_path / "home") == {b["board"]: b["measured"] for b in boards}


@pytest.mark.exhaustive
def test_a_killed_worker_loses_nothing_and_leaves_no_board_locked(
    edgekit: Any, cluster: Cluster, tmp_path: Path
) -> None:
    for number in range(2):
        cluster.add_worker(cache_folder())
        _know_boards(cluster.home(number))
    cluster.wait_for_workers(2)
    shapes = tmp_path / "many.txt"
    shapes.write_text("".join(f"{m},48,40\n" for m in range(20, 44)))

    killed = _Killer(cluster)
    done = killed.beside(
        lambda: _tune(edgekit, shapes, "--budget", "90s", "--dask", cluster.address)
    )
    assert done.code == 0, done.err
    assert all(b["ok"] for b in done.document["boards"])
    here = _measured(tmp_path / "home")
    assert here.keys() == {"one", "two"}
    # Everything the surviving worker measured was collected.
    assert all(here[board] >= count for board, count in _measured(cluster.home(1)).items())
    # The dead worker's board is unlocked, and its tuning resumes.
    again = _tune(edgekit, shapes, "--budget", "1s", "--dask", cluster.address)
    assert again.code == 0, again.err


class _Killer:
    """Kills the first worker with SIGKILL once it has measured something."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def beside(self, work: Any) -> Any:
        thread = threading.Thread(target=self._kill)
        thread.start()
        try:
            return work()
        finally:
            thread.join()

    def _kill(self) -> None:
        until(lambda: bool(_measured(self._cluster.home(0))))
        children = _children(self._cluster.workers[0].pid)
        self._cluster.workers[0].kill()
        self._cluster.workers[0].wait()
        until(lambda: not any(_alive(pid) for pid in children))


def _children(pid: int) -> list[int]:
    return [
        int(word)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for word in (task / "children").read_text().split()
    ]


def _alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.exhaustive
def test_models_are_estimated_on_several_boards(
    edgekit: Any, tmp_path: Path, face_model: Path
) -> None:
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(face_model.read_bytes()[:1000])
    done = edgekit("estimate", broken, broken, "--board", "rpi4,rpi5", "--json")
    assert done.code == 8
    assert "4 of 4 failed; the first, broken.tflite on rpi4: " in done.err
    assert len(done.document["estimates"]) == 4


@pytest.mark.exhaustive
def test_of_one_that_failed_the_error_is_its_own(
    edgekit: Any, tmp_path: Path, face_model: Path
) -> None:
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(face_model.read_bytes()[:1000])
    assert edgekit("estimate", broken, broken, "--board", "rpi4").code == 8
    assert edgekit("estimate", broken, "--board", "rpi4").code == 2


def test_a_single_task_that_failed_ends_with_its_own_code() -> None:
    with pytest.raises(EdgekitError) as raised:
        check_all([("broken", TaskReport(UnreachableError.exit_code, message="lost"))])
    assert explain(raised.value) == ("lost", UnreachableError.exit_code)


def test_an_address_that_is_none_of_a_cluster_is_named(edgekit: Any, shapes: Path) -> None:
    done = _tune(edgekit, shapes, "--dask", "http://127.0.0.1:1")
    assert done.code == 2
    assert "--dask: expected tcp://HOST:PORT or tls://HOST:PORT, found" in done.err


def test_an_unknown_cluster_is_named() -> None:
    with pytest.raises(UnreachableError) as raised:
        DaskPool("tcp://127.0.0.1:1", connect_seconds=1.0)
    assert str(raised.value).startswith("--dask: expected a Dask scheduler at tcp://127.0.0.1:1")
    assert explain(raised.value)[1] == 3


def test_a_cluster_without_workers_and_one_that_knows_no_board(
    edgekit: Any, shapes: Path, cluster: Cluster
) -> None:
    done = _tune(edgekit, shapes, "--dask", cluster.address)
    assert done.code == 3
    assert f"expected workers at {cluster.address}, found none" in done.err
    cluster.add_worker(cache_folder())
    cluster.wait_for_workers(1)
    done = _tune(edgekit, shapes, "--dask", cluster.address)
    assert done.code == 2
    assert "expected a worker that knows board 'one', found none of 1" in done.err


@pytest.mark.parametrize("boards", ["one,one", "one,,two", ","])
def test_names_of_boards_are_checked(edgekit: Any, shapes: Path, boards: str) -> None:
    done = edgekit("lab", "tune", "gemm", "--board", boards, "--shapes", shapes)
    assert done.code == 2
    assert done.complaint.startswith("edgekit: --board: expected")


def test_a_worker_with_another_kit_says_so() -> None:
    report = run_task(Task(("doctor",), "one", kit="0.0.1"), lambda: False, "there")
    assert report.code == 5
    assert "worker there: expected edgekit 0.0.1" in report.message


def test_a_task_that_is_asked_to_stop_ends_with_what_it_has(home: Path, shapes: Path) -> None:
    _know_boards(home.parent / "home")
    words = ("lab", "tune", "gemm", "--board", "one", "--allow-noise", "--budget", "10m", "--json")
    report = run_task(Task(words, "one"), lambda: bool(_measured(home.parent / "home")))
    assert report.code == 130
    with History() as history:
        assert history.read().measurements


def test_ctrl_c_ends_the_tasks_here(edgekit: Any, tmp_path: Path, home: Path) -> None:
    del home
    _know_boards(tmp_path / "home")

    def interrupt() -> None:
        until(lambda: bool(_measured(tmp_path / "home")))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    done = edgekit("lab", "tune", "gemm", "--board", "one,two", "--allow-noise", "--budget", "10m")
    thread.join()
    assert done.code == 130
    assert "stopped; measurements are kept, and the same command resumes" in done.err
