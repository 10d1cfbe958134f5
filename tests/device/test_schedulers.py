"""The scheduler that an application asks for, as Linux gives or denies it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.application import SCHEDULERS, ApplicationSpec
from edgekit.device.runtime.agent.manifest import parse_manifest
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.record import replace
from edgekit.host.deploy.bundle import Bundle
from tests.support import forbidden

# Prints what the application found, and what its supervisor says it was denied.
_RUN = """
import json, sys, time
from pathlib import Path
from edgekit.device.runtime.agent.application import ApplicationSpec
from edgekit.device.runtime.agent.child import Child
folder = Path(sys.argv[1])
keys = json.loads(sys.argv[2])
child = Child(ApplicationSpec("one", "main.py", (), 0, 0, ("main.py",), **keys), folder, folder, {})
while not (printed := child.read()):
    time.sleep(0.01)
print(json.dumps([json.loads(printed), child.denied]))
child.end()
child.close()
"""
_PROGRAM = """
import json, os, signal
found = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, os.getpriority(0, 0)
print(json.dumps(found), flush=True)
signal.pause()
"""
_TRY = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))"


def _run(folder: Path, denied: str = "", **keys: object) -> Any:
    (folder / "main.py").write_text(_PROGRAM)
    command = [sys.executable, "-c", _RUN, str(folder), json.dumps(keys)]
    if denied:
        command = [sys.executable, forbidden.__file__, denied, *command]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["batch", "idle"])
def test_a_program_behind_others_needs_no_privilege(tmp_path: Path, name: str) -> None:
    found = _run(tmp_path, scheduler=name, priority=7)
    assert found == [[SCHEDULERS[name], 0, 7], ""]


@pytest.mark.parametrize("name", ["fifo", "rr"])
def test_a_program_of_real_time_has_its_release_s_priority(tmp_path: Path, name: str) -> None:
    if subprocess.run([sys.executable, "-c", _TRY], capture_output=True, check=False).returncode:
        pytest.skip("this user may not have real-time programs")
    (policy, priority, _), denied = _run(tmp_path, scheduler=name, priority=-4)
    assert (policy, priority, denied) == (SCHEDULERS[name], 5, "")


def test_what_linux_denies_is_said(tmp_path: Path) -> None:
    calls = "sched_setscheduler,setpriority"
    found, denied = _run(tmp_path, calls, scheduler="fifo", priority=-4)
    assert found[0] == os.SCHED_OTHER
    assert denied == (
        f"scheduler fifo, has the usual one and priority -4, runs at {os.getpriority(0, 0)}"
    )
    assert _run(tmp_path, calls)[1] == ""


def test_a_manifest_names_only_an_unusual_scheduler(paper: Callable[..., Bundle]) -> None:
    spec = ApplicationSpec("one", "app/main.py", (), 0, 0, ("app/main.py",))
    plain = paper().manifest
    file = replace(plain.files[0], path="app/main.py")
    made = replace(
        plain, application=spec, files=tuple(sorted((*plain.files, file), key=lambda f: f.path))
    ).with_id()
    assert b"scheduler" not in made.to_json()
    for scheduler, priority, wrong in (
        ("rr", -20, ""),
        ("deadline", 0, "application.scheduler: expected one of fifo, rr, batch, idle"),
        ("fifo", 1, "application.priority: expected -20 to 0 for fifo, found 1"),
    ):
        asked = replace(spec, scheduler=scheduler, priority=priority)
        other = replace(made, application=asked).with_id()
        if wrong:
            with pytest.raises(InputError, match=wrong):
                parse_manifest(other.to_json())
        else:
            assert parse_manifest(other.to_json()) == other
