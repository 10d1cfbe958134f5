"""Starts a release's health check, golden.py, without loading what runs a model."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Union

from edgekit.device.runtime.agent.manifest import RUNTIME
from edgekit.device.runtime.errors import UnhealthyError

_LOG_BYTES = 4096


def check_in_subprocess(folder: Path, seconds: float) -> Dict[str, Any]:
    """Runs the health check with the release's own runtime, in a subprocess that may crash or hang.

    UnhealthyError gives the reason and the last lines of its output.
    """
    command = [
        sys.executable or "python3",
        "-I",
        "-S",
        str(folder / RUNTIME),
        "golden",
        "--folder",
        str(folder),
        "--seconds",
        str(math.ceil(seconds) + 1),
    ]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UnhealthyError(
            f"no answer within {seconds:g} s", _decode_log_tail(error.stderr)
        ) from None
    except OSError as error:
        raise UnhealthyError(f"cannot start it: {error.strerror}") from None
    return _parse_health(done.returncode, done.stdout, _decode_log_tail(done.stderr))


def _parse_health(code: int, stdout: bytes, log: str) -> Dict[str, Any]:
    if code < 0:
        raise UnhealthyError(f"killed by {_signal_name(-code)}", log)
    try:
        document = json.loads(stdout)
        if code == 0:
            return dict(document["health"])
        message = str(document["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"expected a JSON document, found exit code {code}"
    raise UnhealthyError(message, log)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _decode_log_tail(output: Union[bytes, None]) -> str:
    return (output or b"")[-_LOG_BYTES:].decode("utf-8", "replace")
