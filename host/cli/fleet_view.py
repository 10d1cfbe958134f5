"""Progress display and result tables of fleet commands."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from edgekit.host.cli.output import emit, note, painted, table
from edgekit.host.cli.progress import shown_seconds
from edgekit.host.common.text import one_line
from edgekit.host.errors import PartialError
from edgekit.host.fleet import BoardOutcome, FleetRun, Observer, Tally

if TYPE_CHECKING:
    from rich.console import RenderableType

_T = TypeVar("_T")
_LINE_SECONDS = 5.0  # between two plain progress lines
_DRAW_SECONDS = 0.2
_SLOWEST = 4  # number of active boards listed by name
_MOST_SHOWN = 20  # failures printed immediately; the final table lists all of them


@dataclass(frozen=True)
class Presentation(Generic[_T]):
    """How one command presents its results: `schema` of the JSON document, `headers` and `row` of
    the table, `document` of a board in JSON. `complaint` returns why a value counts as a failure,
    or "". `retry` is the advice after failures."""

    schema: str
    headers: Sequence[str]
    row: Callable[[_T], Sequence[str]]
    document: Callable[[_T], Mapping[str, Any]]
    complaint: Callable[[_T], str] = lambda _: ""
    retry: str = "fix the causes and retry these boards: --select"

    def why(self, outcome: BoardOutcome[_T]) -> str:
        """The reason a board failed, in one line; "" if it did not."""
        if outcome.error is not None:
            return one_line(str(outcome.error))
        if outcome.canceled or outcome.value is None:
            return ""
        return one_line(self.complaint(outcome.value))

    def state(self, outcome: BoardOutcome[_T]) -> str:
        """ok, failed or canceled."""
        if outcome.canceled:
            return "canceled"
        return "failed" if self.why(outcome) else "ok"


@contextlib.contextmanager
def watching(
    text: str, total: int, presentation: Presentation[Any] | None = None
) -> Iterator[Observer]:
    """Displays progress on `total` boards: live on a terminal, otherwise an occasional plain line.
    Failures are printed immediately."""
    presentation = presentation or Presentation("", (), lambda _: (), lambda _: {})
    if not sys.stderr.isatty():
        view = _View(text, total, presentation)
        yield view
        view.tell()
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield _Drawn(text, total, presentation, live)


class _View:
    """Prints plain lines; implements Watch."""

    pause = _LINE_SECONDS

    def __init__(self, text: str, total: int, presentation: Presentation[Any]) -> None:
        self._text = text
        self._presentation = presentation
        self._failures = 0
        self._last = time.monotonic()
        self.tally = Tally(total)

    def began(self, board: str) -> None:
        self.tally.began(board)

    def stage_changed(self, board: str, stage: str) -> None:
        self.tally.stage_changed(board, stage)

    def ended(self, outcome: BoardOutcome[Any]) -> None:
        why = self._presentation.why(outcome)
        self.tally.close(outcome, bool(why))
        if not why:
            return
        self._failures += 1
        if self._failures <= _MOST_SHOWN:
            self.say(why if outcome.board in why else f"{outcome.board}: {why}")
        elif self._failures == _MOST_SHOWN + 1:
            self.say("more boards failed; the final table lists them all")

    def tick(self) -> None:
        if time.monotonic() - self._last >= self.pause:
            self._last = time.monotonic()
            self.tell()

    def say(self, why: str) -> None:
        """Prints one failure."""
        note(why, "failed", "fail")

    def tell(self) -> None:
        """Prints the current progress."""
        slow = self.tally.slowest(1)
        at = f"; longest {_at_work(slow[0])}" if slow else ""
        note(f"{self._text}: {self.summary()}{at} ...")

    def summary(self) -> str:
        """Counts by state, elapsed time and estimated time left."""
        tally = self.tally
        counts = {
            "failed": tally.failed,
            "canceled": tally.canceled,
            "at work": tally.at_work,
            "waiting": tally.waiting,
        }
        parts = [f"{tally.ended} of {tally.total}"]
        parts += [f"{number} {state}" for state, number in counts.items() if number]
        parts.append(shown_seconds(tally.seconds))
        if (left := tally.left()) is not None:
            parts.append(f"about {shown_seconds(left)} left")
        return ", ".join(parts)


class _Drawn(_View):
    """Redraws a few lines in place."""

    pause = _DRAW_SECONDS

    def __init__(self, text: str, total: int, presentation: Presentation[Any], live: Any) -> None:
        super().__init__(text, total, presentation)
        self._live = live

    def say(self, why: str) -> None:
        from rich.text import Text

        line = Text.assemble(("failed ", "bold red"), why)
        self._live.console.print(line, soft_wrap=True)

    def tell(self) -> None:
        self._live.update(self._render_progress(), refresh=True)

    def _render_progress(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        tally = self.tally
        head = Text(f"{self._text}: {self.summary()}", overflow="ellipsis", no_wrap=True)
        rows = [
            Text(f"  {_at_work(each)}", style="dim", overflow="ellipsis", no_wrap=True)
            for each in tally.slowest(_SLOWEST)
        ]
        return Group(head, ProgressBar(total=max(tally.total, 1), completed=tally.ended), *rows)


def _at_work(each: Any) -> str:
    stage = f" ({one_line(each.stage)})" if each.stage else ""
    return f"{each.board} {shown_seconds(each.seconds)}{stage}"


@dataclass(frozen=True)
class Extra:
    """Extra output of a command: keys of its document, lines under its table."""

    document: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[str] = ()


def conclude(
    run: FleetRun[_T], presentation: Presentation[_T], as_json: bool, extra: Extra | None = None
) -> None:
    """Prints the result of every board, failed ones last. Raises the exception that stopped the
    run, or PartialError if boards failed."""
    extra = extra or Extra()
    states = [presentation.state(outcome) for outcome in run.outcomes]
    counts = {state: states.count(state) for state in ("ok", "failed", "canceled")}
    if as_json:
        boards = [_outcome_to_json(outcome, presentation) for outcome in run.outcomes]
        emit({"schema": presentation.schema, **extra.document, "counts": counts, "boards": boards})
    else:
        _print_outcomes(run, presentation)
        for line in extra.lines:
            print(line)
    if run.stopped is not None:
        raise run.stopped
    if counts["failed"]:
        canceled = f", {counts['canceled']} canceled" if counts["canceled"] else ""
        raise PartialError(
            f"expected all of {len(states)} boards to succeed, found {counts['failed']} "
            f"failed{canceled}; {presentation.retry}"
        )


def _print_outcomes(run: FleetRun[_T], presentation: Presentation[_T]) -> None:
    width = len(presentation.headers)
    order = {"ok": 0, "canceled": 1, "failed": 2}
    outcomes = sorted(run.outcomes, key=lambda outcome: order[presentation.state(outcome)])
    rows = []
    for outcome in outcomes:
        cells = presentation.row(outcome.value) if outcome.value is not None else [""] * width
        seconds = f"{outcome.seconds:.1f}" if outcome.seconds else ""
        rows.append((outcome.board, presentation.state(outcome), *cells, seconds))
    table(("board", "state", *presentation.headers, "s"), rows, left=2)
    reasons = [(outcome.board, why) for outcome in outcomes if (why := presentation.why(outcome))]
    if sys.stdout.isatty() and sys.stderr.isatty() and len(reasons) <= _MOST_SHOWN:
        return  # all of them are above the table
    for board, why in reasons:
        print(f"{painted('failed', 'fail')}   {board}: {why}")


def _outcome_to_json(outcome: BoardOutcome[_T], presentation: Presentation[_T]) -> dict[str, Any]:
    error = None
    if why := presentation.why(outcome):
        code = getattr(outcome.error, "exit_code", None)
        error = {"message": why, "exit_code": code}
    return {
        "board": outcome.board,
        "state": presentation.state(outcome),
        "seconds": round(outcome.seconds, 3),
        "error": error,
        **({} if outcome.value is None else presentation.document(outcome.value)),
    }
