"""Commands whose standard streams the caller closed."""

from __future__ import annotations

import subprocess
import sys

import pytest

_EDGEKIT = [sys.executable, "-c", "from edgekit.host.cli.main import run; run()"]


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", ">&- <&-", ">&- 2>&-"])
def test_a_closed_output_is_no_traceback(closed: str) -> None:
    line = f'"$@" boards {closed}'
    done = subprocess.run(["sh", "-c", line, "sh", *_EDGEKIT], capture_output=True, text=True)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.count("\n") <= 1 and "Traceback" not in done.stderr
