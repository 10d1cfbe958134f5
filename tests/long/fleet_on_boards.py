"""Rolls out a release to a fleet of virtual boards, one of which loses power midway.

The others must get the release and the lost one must be reported. Once it is back, the same command
must deploy to it, and to no other.

    python -m tests.long.fleet_on_boards --boards 8
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from edgekit.host.common.paths import cache_folder
from edgekit.host.virtual import BoardOptions, RunningBoard, down, up

_ROOT = Path(__file__).parents[2]
_MODEL = _ROOT / "models" / "okay_nabu.tflite"
_CORES = ("a57", "a53", "a72")  # share one image
_RUN = "from edgekit.host.cli.main import run; run()"


@contextmanager
def _home(folder: Path) -> Iterator[None]:
    """Make a folder this process's home, sharing the user's cache."""
    cache = cache_folder()
    before = os.environ.get("EDGEKIT_HOME")
    folder.mkdir(exist_ok=True)
    link = folder / "cache"
    if not link.exists():
        link.symlink_to(cache)
    os.environ["EDGEKIT_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["EDGEKIT_HOME"]
        else:
            os.environ["EDGEKIT_HOME"] = before


class Fleet:
    """Virtual boards, each with a separate home because board names must be unique within one; and
    the home and folder that the fleet is deployed from."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.cores = dict(zip(self._names(count), islice(cycle(_CORES), count), strict=True))
        self.running: dict[str, RunningBoard] = {}
        (folder / "work").mkdir()

    @staticmethod
    def _names(count: int) -> list[str]:
        return [f"board{i}" for i in range(count)]

    def start(self, name: str) -> None:
        with _home(self.folder / name):
            disk = str(self.folder / f"{name}.img")
            self.running[name] = up(self.cores[name], options=BoardOptions(disk=disk))

    def close(self) -> None:
        for name, core in self.cores.items():
            with _home(self.folder / name):
                down(core)

    def add(self, *names: str) -> None:
        """Add boards to the inventory, or update a board's port."""
        path = self.folder / "boards.csv"
        with path.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("name", "host", "port", "user", "identity", "host_key", "profile"))
            for name in names:
                b = self.running[name]
                place = (b.ssh_host, b.ssh_port, b.user, b.identity, b.host_key, b.profile)
                rows.writerow((name, *place))
        done = self.edgekit("fleet", "add", "--csv", str(path), "--label", "site=lab")
        assert done.wait() == 0, done.communicate()

    def edgekit(self, *words: str) -> subprocess.Popen[str]:
        home = {"EDGEKIT_HOME": str(self.folder / "home"), "PYTHONPATH": str(_ROOT / "src")}
        return subprocess.Popen(
            [sys.executable, "-c", _RUN, *words],
            cwd=self.folder / "work",
            env={**os.environ, **home},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def deploy(self, lose: str | None = None) -> tuple[int, dict[str, Any]]:
        """Run a rollout; return exit code and document. `lose` is powered off when its batch
        begins."""
        words = (
            "--canary",
            "1",
            "--batch",
            "50%",
            "--pause",
            "2s",
            "--max-failures",
            "50%",
            "--json",
        )
        process = self.edgekit("fleet", "deploy", str(_MODEL), "--select", "site=lab", *words)
        assert process.stderr is not None and process.stdout is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if lose and line.startswith("batch "):
                self.running[lose].kill()
                lose = None
        text = process.stdout.read()
        code = process.wait()
        assert text, "".join(lines)
        return code, json.loads(text)


def roll_out(folder: Path, count: int) -> tuple[float, float]:
    """Seconds of the rollout that loses a board, and of the resumed one. Raises AssertionError if a
    board is in the wrong state."""
    with ExitStack() as stack:
        with _home(folder / "home"):
            pass
        fleet = Fleet(folder, count)
        stack.callback(fleet.close)
        names = list(fleet.cores)
        lost = names[-1]  # not the canary
        for name in names:
            fleet.start(name)
        fleet.add(*names)
        began = time.monotonic()
        code, found = fleet.deploy(lose=lost)
        first = time.monotonic() - began
        assert code == 8, found
        states = {b["board"]: b["state"] for b in found["boards"]}
        assert states.pop(lost) != "done", found
        assert set(states.values()) == {"done"}, found
        fleet.start(lost)
        fleet.add(lost)
        began = time.monotonic()
        code, found = fleet.deploy()
        second = time.monotonic() - began
        assert code == 0, found
        assert {b["state"] for b in found["boards"]} == {"done"}, found
    return first, second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boards", type=int, default=8, choices=range(6, 33), metavar="N")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        first, second = roll_out(Path(folder), arguments.boards)
    print(
        f"{arguments.boards} virtual boards, one without power in the middle: {first:.0f} s, "
        f"and {second:.0f} s for it when it was back"
    )


if __name__ == "__main__":
    main()
