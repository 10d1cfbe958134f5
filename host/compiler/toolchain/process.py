"""Runs a compiler and ensures that it does not outlive this process, even after SIGKILL."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

# A watcher reads from a pipe whose other end is held only by this process. At EOF (even after
# SIGKILL) it kills the process group, including children started by compilers.
_WATCHED = (
    "exec 3<&0; (read _ <&3; kill -KILL 0) >/dev/null 2>&1 & "
    '"$@" </dev/null 3<&-; code=$?; exec 2>/dev/null; kill $!; exit $code'
)


def run_watched(
    command: Sequence[str], env: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Returns the command's exit code and standard error.

    Raises OSError or subprocess.TimeoutExpired; leaves no process behind.
    """
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
