"""Runs a compiler that does not outlive us, however we end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

# The watcher reads from a pipe whose other end only our process has: when that is gone (SIGKILL
# too), it ends the whole group, in which compilers start processes of their own.
_WATCHED = (
    "exec 3<&0; (read _ <&3; kill -KILL 0) >/dev/null 2>&1 & "
    '"$@" </dev/null 3<&-; code=$?; exec 2>/dev/null; kill $!; exit $code'
)


def run_watched(
    command: Sequence[str], env: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """The command's exit code and standard error. Raises OSError or subprocess.TimeoutExpired,
    and leaves no process behind."""
    reading, writing = os.pipe()
    try:
        with subprocess.Popen(
            ["/bin/sh", "-c", _WATCHED, "sh", *command],
            env=env,
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                _, stderr = process.communicate(timeout=seconds)
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
            return subprocess.CompletedProcess(list(command), process.returncode, "", stderr)
    finally:
        os.close(reading)
        os.close(writing)
