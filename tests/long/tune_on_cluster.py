"""Tunes two virtual boards on two Dask workers, one of which is killed.

Both boards must be tuned, all measurements of the surviving worker must have been collected, and no
board may remain locked.

    python -m tests.long.tune_on_cluster --seconds 60
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from edgekit.host.common.paths import cache_folder
from tests.long.fleet_on_boards import Fleet
from tests.support.clusters import Cluster, running_cluster
from tests.support.patience import until


def _rows(home: Path) -> int:
    """Measurements in a history that another process may be writing."""
    if not (home / "history.sqlite").exists():
        return 0
    with sqlite3.connect(home / "history.sqlite", timeout=30) as db:
        try:
            return int(db.execute("SELECT count(*) FROM gemm").fetchone()[0])
        except sqlite3.OperationalError:  # not created yet
            return 0


def _kill_first(cluster: Cluster) -> None:
    until(lambda: _rows(cluster.home(0)) > 0)
    cluster.workers[0].kill()
    cluster.workers[0].wait()


def tune(folder: Path, seconds: int) -> tuple[float, int, int]:
    """Duration, measurements collected at home, and measurements of the surviving worker."""
    with ExitStack() as stack:
        fleet = Fleet(folder, 2)
        stack.callback(fleet.close)
        for name in fleet.cores:
            fleet.start(name)
        fleet.add(*fleet.cores)
        cluster = stack.enter_context(running_cluster(folder / "cluster"))
        for number in range(2):
            config = cluster.home(number) / "config"
            cluster.add_worker(cache_folder())
            config.mkdir()
            text = (folder / "work" / "edgekit.toml").read_text()
            (config / "boards.toml").write_text(text)
        cluster.wait_for_workers(2)
        shapes = folder / "shapes.txt"
        shapes.write_text("".join(f"{m},32,24\n" for m in range(8, 40)))
        words = ["lab", "tune", "gemm", "--board", ",".join(fleet.cores), "--shapes", str(shapes)]
        words += ["--allow-noise", "--json", "--dask", cluster.address]
        killer = threading.Thread(target=_kill_first, args=(cluster,))
        killer.start()
        began = time.monotonic()
        process = fleet.edgekit(*words, "--budget", f"{seconds}s")
        out, err = process.communicate()
        took = time.monotonic() - began
        killer.join()
        assert process.returncode == 0, err
        assert all(b["ok"] and b["measured"] for b in json.loads(out)["boards"]), out
        home, lives = _rows(folder / "home"), _rows(cluster.home(1))
        assert home >= lives > 0, (home, lives)
        again = fleet.edgekit(*words, "--budget", "1s")
        out, err = again.communicate()
        assert again.returncode == 0, err
    return took, home, lives


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, metavar="N", help="budget of a board")
    arguments = parser.parse_args()
    os.environ.setdefault("EDGEKIT_NO_FETCH", "1")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "home").mkdir()
        took, home, lives = tune(Path(folder), arguments.seconds)
    print(
        f"2 boards by 2 workers, one killed: {took:.0f} s, {home} measurements at home, "
        f"{lives} of them with the worker that lived"
    )


if __name__ == "__main__":
    main()
