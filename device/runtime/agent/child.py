"""An application process: start, output, memory use, termination."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Dict, Optional

from edgekit.device.runtime.agent.application import SCHEDULERS, ApplicationSpec
from edgekit.device.runtime.agent.clusters import ranges

_PR_SET_PDEATHSIG = 1
_OOM_FIRST = "500"  # when memory runs out, the application is killed before its supervisor
_KEPT = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ")
_LAST_BYTES = 300
_SCHEDULER = 38  # of the fields of /proc/PID/stat after the name
_STOP_SECONDS = 5.0
_COMPILE_SECONDS = 120.0
_HELD = re.compile(r"^(?:RssAnon|RssShmem):\s*(\d+) kB$", re.MULTILINE)


class Child:
    """One run of an application whose files are in `folder`. `environment` is added to the few
    variables that an application inherits from the supervisor."""

    def __init__(
        self, spec: ApplicationSpec, folder: Path, data: Path, environment: Dict[str, str]
    ) -> None:
        keep = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._last = b""
        interpreter = [sys.executable, "-u", "-B"] if spec.is_python else []
        self._process = subprocess.Popen(
            [*interpreter, str(folder / spec.entry), *spec.arguments],
            cwd=data,
            env={**keep, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: before_start(spec),
        )
        self.pid = self._process.pid
        self.denied = self._denied(spec)
        assert self._process.stdout is not None
        self._output = self._process.stdout
        os.set_blocking(self._output.fileno(), False)

    def _denied(self, spec: ApplicationSpec) -> str:
        """Describes which scheduler, priority or cores this user, or this board, does not allow."""
        found = []
        with contextlib.suppress(OSError):  # it has ended already
            number = _scheduler(self.pid)
            missed = bool(spec.scheduler) and number != SCHEDULERS[spec.scheduler]
            if missed:
                names = (name for name, its in SCHEDULERS.items() if its == number)
                found.append(f"scheduler {spec.scheduler}, has {next(names, 'the usual one')}")
            priority = os.getpriority(os.PRIO_PROCESS, self.pid)
            counts = missed or not spec.real_time_priority
            if counts and priority > spec.priority:
                found.append(f"priority {spec.priority}, runs at {priority}")
            missing = set(spec.cores) - os.sched_getaffinity(self.pid)
            if missing:
                found.append(f"cores {ranges(spec.cores)}, lacks {ranges(tuple(sorted(missing)))}")
        return " and ".join(found)

    def read(self) -> bytes:
        """Returns its output since the last call, at most what a pipe holds."""
        found = b""
        with contextlib.suppress(BlockingIOError):
            found = os.read(self._output.fileno(), 1 << 16)
        self._last = (self._last + found)[-_LAST_BYTES:]
        return found

    def ended(self) -> str:
        """Describes how it ended; empty while it runs."""
        code = self._process.poll()
        if code is None:
            return ""
        lines = self._last.decode("utf-8", "replace").strip().splitlines()
        said = f": {lines[-1]}" if lines else ""
        if code >= 0:
            return f"ended with exit code {code}{said}"
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}{said}"
        return f"was killed by signal {-code}{said}"

    @property
    def succeeded(self) -> bool:
        return self._process.returncode == 0

    def memory(self) -> int:
        """Returns its memory in bytes, excluding file mappings such as weights."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return 0
        return 1024 * sum(map(int, _HELD.findall(status)))

    def end(self, wanted: int = signal.SIGTERM) -> None:
        """Ends it and its children: first with `wanted`, then with SIGKILL."""
        for number in (wanted, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)

    def close(self) -> None:
        """Kills remaining children and closes the pipe."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._output.close()


def compile_runtime(runtime: Path) -> None:
    """Compiles the modules that applications import to cached bytecode before a watchdog runs: an
    application killed while compiling would start over each time."""
    code = f"import sys; sys.path.insert(0, {str(runtime)!r}); import edgekit_runtime"
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_COMPILE_SECONDS,
            check=False,
            preexec_fn=before_start,
        )


def _scheduler(pid: int) -> int:
    """Its number; OSError if the process has ended. Not of os, since musl's refuses."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[_SCHEDULER])


def before_start(spec: Optional[ApplicationSpec] = None) -> None:
    """Runs in the new process: ties its life to the supervisor's, makes it the first OOM victim,
    and sets an application's nice value, scheduler and cores as far as that is allowed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_FIRST)
    if spec is None:
        return
    with contextlib.suppress(OSError):
        if spec.priority:
            os.setpriority(os.PRIO_PROCESS, 0, spec.priority)
    with contextlib.suppress(OSError):
        if spec.scheduler:
            number = SCHEDULERS[spec.scheduler]
            os.sched_setscheduler(0, number, os.sched_param(spec.real_time_priority))
    with contextlib.suppress(OSError, ValueError):
        if usable := set(spec.cores) & os.sched_getaffinity(0):
            os.sched_setaffinity(0, usable)
