"""A Dask cluster on loopback: a scheduler, and workers that edgekit sees as separate hosts."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.patience import until

_ROOT = Path(__file__).parents[2]


def _start(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    env = {
        **os.environ,
        "EDGEKIT_HOME": str(folder / "home"),
        "PYTHONPATH": str(_ROOT / "src"),
        "DASK_DISTRIBUTED__SCHEDULER__LOCKS__LEASE_TIMEOUT": "5s",
        "DASK_DISTRIBUTED__SCHEDULER__LOCKS__LEASE_VALIDATION_INTERVAL": "1s",
    }
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *words], cwd=folder, env=env, stdout=log, stderr=log
        )


class Cluster:
    """`address` is the scheduler's; `workers` are keyed by number."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        about = folder / "scheduler.json"
        words = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show")
        self._scheduler = _start(
            folder / "scheduler", "scheduler", *words, "--scheduler-file", str(about)
        )
        self.workers: list[subprocess.Popen[bytes]] = []
        try:
            until(lambda: about.is_file() and about.read_text().endswith("}"))  # written whole
        except BaseException:
            self.close()
            raise
        self.address: str = json.loads(about.read_text())["address"]

    def home(self, number: int) -> Path:
        """The edgekit home folder of a worker."""
        return self._folder / f"worker{number}" / "home"

    def add_worker(self, cache: Path) -> None:
        """Start another worker whose compile cache is `cache`."""
        number = len(self.workers)
        home = self.home(number)
        home.mkdir(parents=True)
        (home / "cache").symlink_to(cache)
        words = ("--no-nanny", "--nthreads", "2", "--no-dashboard", "--host", "127.0.0.1")
        folder = self._folder / f"worker{number}"
        self.workers.append(_start(folder, "worker", self.address, *words))

    def wait_for_workers(self, count: int) -> None:
        """Wait until the scheduler knows `count` workers."""
        import distributed

        with distributed.Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(count)

    def close(self) -> None:
        for process in (*self.workers, self._scheduler):
            process.kill()
            process.wait()


@contextlib.contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """A scheduler without workers; it and all added workers end with the block."""
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.close()
