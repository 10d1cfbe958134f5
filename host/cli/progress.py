"""Progress display: live on a terminal, otherwise an occasional plain line."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgekit.host.cli.output import byte_size, note

if TYPE_CHECKING:
    from edgekit.host.deploy.release import DeployProgress

_LINE_SECONDS = 5.0  # between two plain lines
_SURE_SECONDS = 0.5  # a rate over a shorter time is unreliable


@contextlib.contextmanager
def working(text: str) -> Iterator[None]:
    """Shows an activity: a spinner on a terminal, otherwise one plain line."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status(text):
            yield
    else:
        note(f"{text} ...")
        yield


@contextlib.contextmanager
def stages(text: str) -> Iterator[Callable[[str], None]]:
    """Like `working`, for work that reports named stages."""
    if not sys.stderr.isatty():
        yield lambda stage: note(f"{text}: {stage} ...")
        return
    from rich.console import Console

    with Console(stderr=True).status(text) as status:
        yield lambda stage: status.update(f"{text}: {stage}")


@contextlib.contextmanager
def counting(text: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a count of completed items: live on a terminal, otherwise an occasional line."""
    shown_at = time.monotonic()
    with stages(text) as tell:

        def show(done: int, total: int) -> None:
            nonlocal shown_at
            now = time.monotonic()
            if now - shown_at >= _LINE_SECONDS or done == total:
                shown_at = now
                tell(f"{done} of {total}")

        yield show


@dataclass
class Meter:
    """Progress of one state of a deployment; `clock` returns seconds."""

    clock: Callable[[], float] = time.monotonic
    state: str = ""
    _began: float = 0.0
    _first: int = 0
    _shown_at: float = field(default=0.0, repr=False)

    def entered(self, step: DeployProgress) -> bool:
        """Records a step; True if it begins a new state."""
        if step.state == self.state:
            return False
        self.state, self._first = step.state, step.done
        self._began = self._shown_at = self.clock()
        return True

    def due(self) -> bool:
        """Whether another plain line about the same state is due."""
        now = self.clock()
        if now - self._shown_at < _LINE_SECONDS:
            return False
        self._shown_at = now
        return True

    def rate(self, step: DeployProgress) -> str:
        """Rate and time left as text; empty if there is too little data."""
        seconds = self.clock() - self._began
        sent = step.done - self._first  # bytes already present when the state began took no time
        if seconds < _SURE_SECONDS or sent <= 0:
            return ""
        left = (step.total - step.done) * seconds / sent
        return f"{byte_size(int(sent / seconds))}/s, {shown_seconds(left)} left"

    def far(self, step: DeployProgress) -> str:
        """Bytes, rate and time left as text; empty in a state that counts no bytes."""
        if not step.total:
            return ""
        rate = self.rate(step)
        done = f"{byte_size(step.done)} of {byte_size(step.total)}"
        return f"{done}, {rate}" if rate else done


def shown_seconds(seconds: float) -> str:
    """Formats a duration: 43 s, 2 min 10 s."""
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60} s"


@contextlib.contextmanager
def deploying(text: str) -> Iterator[Callable[[DeployProgress], None]]:
    """Shows the states of a deployment: a bar on a terminal, otherwise one plain line each."""
    meter = Meter()
    if not sys.stderr.isatty():
        yield lambda step: _note_progress(text, meter, step)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[far]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(text, total=None, far="")

        def show(step: DeployProgress) -> None:
            meter.entered(step)
            progress.update(
                task,
                description=f"{text}: {step.state}",
                completed=step.done,
                total=step.total or None,
                far=meter.far(step),
            )

        yield show


def _note_progress(text: str, meter: Meter, step: DeployProgress) -> None:
    if meter.entered(step):
        note(f"{text}: {step.state} ...")
    elif step.total and step.done < step.total and meter.due():
        note(f"{text}: {step.state} {meter.far(step)} ...")
