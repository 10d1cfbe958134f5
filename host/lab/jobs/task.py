"""One job: an edgekit command in its own process, on whichever worker is available.

Its measurements are in the worker's history before it exits and return with its report. The
process dies with the worker that started it, so a killed worker leaves no board locked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgekit.device.version import VERSION
from edgekit.host.common.files import atomic_write
from edgekit.host.common.paths import cache_folder
from edgekit.host.errors import IncompatibleError, UnreachableError
from edgekit.host.lab.history.measurement import Measurement
from edgekit.host.lab.history.operator_history import OperatorMeasurement
from edgekit.host.lab.history.store import History

# Linux sends the signal once the worker is gone, for whatever reason. Python ignores SIGINT if a
# shell started the worker in the background, so the child restores the default handler.
_CHILD = (
    "import ctypes, signal; ctypes.CDLL(None).prctl(1, signal.SIGINT); "
    "signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from edgekit.host.cli.main import run; run()"
)
_POLL_SECONDS = 0.2
_END_SECONDS = 20.0  # grace period for a child that was asked to stop
_INTERRUPTED = 130


@dataclass(frozen=True)
class Sent:
    """A command-line argument that names a file sent with the task."""

    name: str


@dataclass(frozen=True)
class MeasuredRows:
    """Measurements of products and of operators of models."""

    products: tuple[Measurement, ...] = ()
    operators: tuple[OperatorMeasurement, ...] = ()


@dataclass(frozen=True)
class Task:
    """`command`: arguments after `edgekit`, including `--json`; `files`: contents by name, all in
    one folder. `board`: the board concerned; `leased`: one such task per board at a time. `rows`:
    known on the requesting host and not to be measured again; `kit`: that host's version."""

    command: tuple[str | Sent, ...]
    board: str
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    leased: bool = False
    rows: MeasuredRows = field(default_factory=MeasuredRows, repr=False)
    kit: str = VERSION


@dataclass(frozen=True)
class TaskReport:
    """The exit code of a task's command, its JSON document or last line, and for a leased task the
    worker's history of the board; `worker`: where it ran."""

    code: int
    document: Mapping[str, Any] | None = None
    message: str = ""
    rows: MeasuredRows = field(default_factory=MeasuredRows, repr=False)
    worker: str = ""


def run_task(task: Task, stopped: Callable[[], bool], worker: str = "") -> TaskReport:
    """Runs a task here; polls `stopped` and, when true, ends early with the partial results."""
    if task.kit != VERSION:
        return TaskReport(
            IncompatibleError.exit_code,
            message=f"worker {worker}: expected edgekit {task.kit}, the version of the caller, "
            f"found {VERSION}; install the same on both",
            worker=worker,
        )
    if task.leased:
        _merge_rows(task.rows)
    code, out, message = _run_child(_command_line(task), stopped)
    rows = rows_of(task.board) if task.leased else MeasuredRows()
    document = _parse_json_object(out) if code == 0 else None
    if code == 0 and document is None:
        code, message = 1, f"worker {worker}: expected a JSON document, found: {out[:80]!r}"
    return TaskReport(code, document, message, rows, worker)


def lost(message: str) -> TaskReport:
    """The report of a task that no worker could finish."""
    return TaskReport(UnreachableError.exit_code, message=message)


def rows_of(board: str) -> MeasuredRows:
    """This host's history of a board, for this version of edgekit."""
    with History() as history:
        products = history.read().measurements
        operators = history.read_operators().measurements
    return MeasuredRows(
        tuple(m for m in products if (m.board, m.kit_version) == (board, VERSION)),
        tuple(m for m in operators if (m.board, m.kit_version) == (board, VERSION)),
    )


def _merge_rows(rows: MeasuredRows) -> int:
    """Merges rows from elsewhere into the local history; returns how many were new."""
    if not (rows.products or rows.operators):
        return 0
    with History() as history:
        return history.merge(rows.products, rows.operators)


def bring_home(report: TaskReport) -> int:
    """Stores a worker's measurements; returns how many rows were new here."""
    return _merge_rows(report.rows)


def _command_line(task: Task) -> list[str]:
    """The command line, with the task's files placed in a folder of the cache."""
    folder = cache_folder() / "jobs" / _hash_files(task.files)
    for name, content in task.files.items():
        path = folder / name
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, content)
    return [str(folder / w.name) if isinstance(w, Sent) else w for w in task.command]


def _hash_files(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _run_child(words: list[str], stopped: Callable[[], bool]) -> tuple[int, str, str]:
    """Returns the exit code, stdout, and the last line of stderr."""
    command = [sys.executable, "-c", _CHILD, *words]
    with _child_process(command) as child:
        asked = False
        while True:
            try:
                out, err = child.communicate(timeout=_POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if not asked and stopped():
                    asked = True
                    child.send_signal(signal.SIGINT)
    lines = err.strip().splitlines()
    message = lines[-1].removeprefix("edgekit: ") if lines else ""
    return (_INTERRUPTED if asked else child.returncode), out, message


@contextlib.contextmanager
def _child_process(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A child process that is stopped on exit from the context, also on an exception."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
            try:
                child.communicate(timeout=_END_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.communicate()


def _parse_json_object(text: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
