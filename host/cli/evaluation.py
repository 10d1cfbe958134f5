"""What results are compared with, and the figures that follow, for `edgekit run --evaluate`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.fitting import Pose
    from edgekit.device.runtime.agent.lines import Line
    from edgekit.device.runtime.agent.listening import Heard
    from edgekit.device.runtime.agent.pages import TextLine
    from edgekit.device.runtime.agent.task import TaskSpec
    from edgekit.host.cli.classes import Class

LIST_LABELS = "list the labels in MODEL.txt next to the model, or with run --labels"
_SHOWN = 3  # names of files in an error


class Result(Protocol):
    """What was found in a file: classes of each run, best first, boxes, sounds, a text."""

    @property
    def classes(self) -> tuple[list[Class], ...]: ...

    @property
    def poses(self) -> tuple[Pose, ...] | None: ...

    @property
    def heard(self) -> tuple[Heard, ...] | None: ...

    @property
    def line(self) -> Line | None: ...

    @property
    def lines(self) -> tuple[TextLine, ...] | None: ...


@dataclass(frozen=True)
class Evaluation:
    """The figures as lines for people, and for --json; `value` is the one that counts, by `name`,
    and NaN if there is nothing to find."""

    name: str
    value: float
    lines: tuple[str, ...]
    document: Mapping[str, Any]


@dataclass(frozen=True)
class ModelClasses:
    """The classes of a model of the task `kind`: `labels`, and how many scores it gives, which are
    `count`. `reads`: another model reads what is in its boxes."""

    labels: Sequence[str]
    count: int
    kind: str = ""
    reads: bool = False


class Truth(Protocol):
    """The ground truth of the pictures or sounds `files`."""

    @property
    def files(self) -> Sequence[Path]: ...

    def within(self, files: Collection[Path]) -> Truth:
        """The ground truth of those of `files` that it has. Raises InputError if there are none."""

    def check(self, task: TaskSpec | None, classes: ModelClasses) -> None:
        """Raises InputError if a model of this task and classes cannot be compared with it."""

    def score(self, found: Sequence[Result], classes: ModelClasses) -> Evaluation: ...


def none_of_files(source: Path, files: Collection[Path]) -> InputError:
    """The error if the truth has none of `files`, which are held out."""
    some = ", ".join(sorted(file.name for file in files)[:_SHOWN])
    return InputError(
        f"{source}: expected the truth of samples that are held out (every fourth, such as "
        f"{some}), found others; add some of these"
    )


def plain(label: str) -> str:
    """A label as it is compared."""
    return " ".join(label.replace("_", " ").lower().split())
