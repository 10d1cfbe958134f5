"""Kills the apply step at a system call, or makes the call fail, by strace fault injection.

A case is one call of one process: its k-th call of `name`. The signal arrives before the call takes
effect, so the cases together stop the step between any two of its calls.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgekit.device.runtime.agent.signing import enroll
from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, SigningKey
from edgekit.host.deploy.transport import LocalTransport
from edgekit.host.errors import EdgekitError
from tests.support.torn import look_in

KILL = "signal=KILL"
ENOSPC = "error=ENOSPC"
EIO = "error=EIO"
_SECONDS = 120
_CALL = re.compile(r"^(?:\[pid +\d+\] |\d+ +)?(\w+)\(")
_NO_RETURN = ("exit", "exit_group", "execve")  # execve: strace counts the initial one
_NO_ERROR = ("brk",)  # reports failure by the old break; C libraries take an error for an address
_RUNTIME = "current/runtime.pyz"  # from the old release; identical to the new one's


@dataclass(frozen=True)
class Case:
    fault: str
    call: str
    k: int

    def __str__(self) -> str:
        return f"{self.fault} at {self.call} {self.k}"


@dataclass(frozen=True)
class Scene:
    """A board that runs `old` and has received all of `new`; copied for each case."""

    root: Path
    old: Bundle
    new: Bundle

    @staticmethod
    def build(folder: Path, old: Bundle, new: Bundle, key: SigningKey) -> Scene:
        root = folder / "template"
        store = Store(root)
        store.create()
        enroll(store, key.public.line)
        transport = LocalTransport(root)
        Device(transport).deploy(old)
        incoming = f"incoming/{new.manifest.id}"
        sent = {"manifest.json": new.manifest.to_json(), "manifest.json.sig": new.signature}
        for path, data in {**sent, **new.files}.items():
            transport.put(data, f"{incoming}/{path}", deadline=_SECONDS)
        return Scene(root, old, new)

    def copy(self, name: str) -> Path:
        board = self.root.with_name(name)
        shutil.rmtree(board, ignore_errors=True)
        shutil.copytree(self.root, board, symlinks=True)
        return board


def calls(scene: Scene) -> Counter[str]:
    """How often apply makes each call, counted from its first access to the board's files."""
    begin, end = _counted(scene)
    return Counter({name: end[name] - begin[name] for name in end if end[name] > begin[name]})


def cases(scene: Scene, fault: str, names: frozenset[str] | None = None) -> Iterator[Case]:
    """All cases of one fault, optionally restricted to the calls `names`."""
    begin, end = _counted(scene)
    for name in sorted(end):
        if name in _NO_RETURN or (names is not None and name not in names):
            continue
        if name in _NO_ERROR and fault != KILL:
            continue
        for k in range(begin[name] + 1, end[name] + 1):
            yield Case(fault, name, k)


def outcome(scene: Scene, case: Case, board_name: str = "board") -> tuple[str, str]:
    """Apply with the fault; return what is wrong ('' if nothing) and which release was running.

    Correct means: both before and after the runtime's recovery the board runs either the old or the
    new release, intact; if a call failed, the exit code reflects which one; and another deploy then
    ends with a working new release.
    """
    board = scene.copy(board_name)
    old, new = scene.old.manifest.id, scene.new.manifest.id
    inject = f"inject={case.call}:{case.fault}:when={case.k}"
    code, _ = _apply(scene, board, ["-e", f"trace={case.call}", "-e", inject])
    left = look_in(board)
    if wrong := left.torn(old, new):
        return f"{case}: torn: {wrong}", ""
    committed = left.current == new and not left.pending
    if case.fault != KILL and committed != (code == 0):
        return f"{case}: exit code {code}, though {left.current} of {old}, {new} runs", ""
    device = Device(LocalTransport(board))
    try:
        status = device.status()
        if wrong := look_in(board).torn(old, new) or ("interrupted" * status.interrupted):
            return f"{case}: after recovery: {wrong}", ""
        device.deploy(scene.new)
    except EdgekitError as error:
        return f"{case}: does not converge: {error}", ""
    end = look_in(board)
    if end.torn(new) or end.previous != old or end.pending:
        return f"{case}: converged to {end}", ""
    shutil.rmtree(board)
    return "", "old" if left.current == old else "new, uncommitted" * left.pending or "new"


def _apply(scene: Scene, board: Path, options: list[str]) -> tuple[int, str]:
    """Run apply once under strace; return exit code and report. The health check is not traced."""
    report = board.with_name(board.name + ".strace")
    command = ["strace", "-o", str(report), *options, sys.executable, "-I", "-S", _RUNTIME]
    command += ["--root", ".", "apply", scene.new.manifest.id, "--seconds", "30"]
    done = subprocess.run(command, cwd=board, capture_output=True, timeout=_SECONDS, check=False)
    return done.returncode, report.read_text(errors="replace")


def _counted(scene: Scene) -> tuple[Counter[str], Counter[str]]:
    """Calls before the first one that names a board file, and calls in total."""
    lines = _apply(scene, scene.copy("counted"), [])[1].splitlines()
    start = next(i for i, line in enumerate(lines) if '"incoming"' in line)
    return _count(lines[:start]), _count(lines)


def _count(lines: list[str]) -> Counter[str]:
    return Counter(m[1] for line in lines if (m := _CALL.match(line)))
