"""Periodically pushes a board's profiles, alongside a supervised application.

Each push is a separate process, the runtime's `push-profiles`: its memory is freed when it exits,
and a slow network blocks nothing else. It is started only if the board is enrolled, sampling is on
and batches are waiting.
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from typing import Callable, List, Optional

from edgekit.device.runtime.agent.c_samples import take_samples
from edgekit.device.runtime.agent.child import before_start
from edgekit.device.runtime.agent.retry import PERIOD_SECONDS, waits
from edgekit.device.runtime.agent.sampler import spool_of
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.agent.strict import short

_MOST_SECONDS = 6 * 3600.0  # 4 MiB at 1 kbit/s would take longer; stored batches are not sent again
_MOST_ANSWER = 1 << 14


class Uploader:
    """Pushes one board's profiles; `command` runs one push, `tell` receives a line about each
    failure."""

    def __init__(
        self,
        store: Store,
        command: List[str],
        tell: Callable[[str], None],
        clock: Callable[[], float],
        period: float = PERIOD_SECONDS,
        chance: Optional[random.Random] = None,
    ) -> None:
        self._store, self._command, self._tell, self._clock = store, command, tell, clock
        self._period = period
        self._chance = chance or random.SystemRandom()
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._failures = 0
        self._logged = ""
        self._due = clock() + period * self._chance.random()

    def look(self) -> None:
        """Starts a push that is due, and collects the last one's result; never blocks."""
        if self._clock() < self._due:
            return
        if self._process is None:
            take_samples(self._store)
            if self._should_send():
                self._start_process()
            else:
                self._schedule_next()
        elif self._process.poll() is not None:
            self._handle_exit(self._process)
        elif self._clock() > self._due + _MOST_SECONDS:
            self._process.kill()

    def close(self) -> None:
        """Ends a push: unacknowledged batches remain in the spool."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._answer.close()

    def _should_send(self) -> bool:
        spool = spool_of(self._store)
        return not spool.is_off and spool.home.exists() and spool.waits

    def _start_process(self) -> None:
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as the process
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=self._answer,
                stderr=subprocess.DEVNULL,
                preexec_fn=before_start,
            )
        except OSError as error:
            self._answer.close()
            self._handle_failure(f"could not be sent: {error}")

    def _handle_exit(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = None
        self._answer.seek(0)
        said = self._answer.read(_MOST_ANSWER)
        self._answer.close()
        if process.returncode == 0:
            self._failures, self._logged = 0, ""
            self._schedule_next()
        else:
            self._handle_failure(_failure_reason(said, process.returncode))

    def _handle_failure(self, why: str) -> None:
        self._failures += 1
        if why != self._logged:  # otherwise it would fill the application's log
            self._logged = why
            self._tell(f"edgekit: profiles: {why}")
        self._schedule_next()

    def _schedule_next(self) -> None:
        self._due = self._clock() + waits(self._failures, 0.0, self._period, self._chance)


def _failure_reason(said: bytes, code: int) -> str:
    try:
        return short(json.loads(said)["error"]["message"], 300)
    except (ValueError, KeyError, TypeError):
        return f"sending ended with exit code {code}"
