"""Implements `edgekit run --evaluate`: how good the results of a run are, by what is right."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.fitting import Pose
    from edgekit.device.runtime.agent.task import TaskSpec
    from edgekit.host.cli.classes import Class
    from edgekit.host.compiler.tasks.precision import TrueBox

Evaluated = Annotated[
    Path | None,
    typer.Option(
        "--evaluate",
        metavar="FILE or FOLDER",
        show_default=False,
        help="Score by instances.json (COCO), lines of file,label or folders of classes.",
    ),
]

_TOP = 5
_MOST_BYTES = 1 << 30


class Result(Protocol):
    """What was found in a picture: classes of each run, best first, or boxes."""

    @property
    def classes(self) -> tuple[list[Class], ...]: ...

    @property
    def poses(self) -> tuple[Pose, ...] | None: ...


@dataclass(frozen=True)
class Evaluation:
    """The figures as lines for people, and for --json."""

    lines: tuple[str, ...]
    document: Mapping[str, Any]


@dataclass(frozen=True)
class ModelClasses:
    """The classes of a model: `labels`, and how many scores it gives, which are `count`."""

    labels: Sequence[str]
    count: int


class Truth(Protocol):
    """What is right in the pictures `files`."""

    @property
    def files(self) -> Sequence[Path]: ...

    def check(self, task: TaskSpec | None, classes: ModelClasses) -> None:
        """Raises InputError if a model of this task and classes cannot be compared with it."""

    def score(self, found: Sequence[Result], classes: ModelClasses) -> Evaluation: ...


def read_truth(source: Path, folder: Path | None) -> Truth:
    """Reads what is right; pictures are in `folder`, or next to the file. Raises InputError."""
    if source.is_dir():
        if folder is not None and folder.resolve() != source.resolve():
            raise InputError(f"--evaluate: expected pictures in {source}, found --input {folder}")
        return _ClassTruth(source, tuple(_in_folders(source)), in_folders=True)
    if folder is not None and not folder.is_dir():
        raise InputError(f"--input: expected a folder with the pictures of {source}, found a file")
    try:
        if source.stat().st_size > _MOST_BYTES:
            raise _unreadable(source, f"more than {_MOST_BYTES} bytes")
        text = source.read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        raise _unreadable(source, getattr(error, "strerror", None) or "no text") from None
    where = folder or source.parent
    if source.suffix.lower() == ".json":
        return _box_truth(source, text, where)
    return _ClassTruth(source, tuple(_in_lines(source, text, where)))


@dataclass(frozen=True)
class _ClassTruth:
    """Pictures with the name or number of their class."""

    source: Path
    named: tuple[tuple[Path, str], ...]
    in_folders: bool = False

    @property
    def files(self) -> list[Path]:
        return [file for file, _ in self.named]

    def check(self, task: TaskSpec | None, classes: ModelClasses) -> None:
        from edgekit.device.runtime.agent.task import CLASSIFY

        _need(task, (CLASSIFY,), self.source)
        self._numbers(classes)

    def score(self, found: Sequence[Result], classes: ModelClasses) -> Evaluation:
        best, among, numbers = 0, 0, self._numbers(classes)
        for result, (_, name) in zip(found, self.named, strict=True):
            ranked = [each.index for each in result.classes[0]]
            best += ranked[0] == numbers[name]
            among += numbers[name] in ranked[:_TOP]
        share, wide = best / len(found), among / len(found)
        return Evaluation(
            (f"top-1    {share:.2%} of {len(found)} pictures", f"top-5    {wide:.2%}"),
            {"pictures": len(found), "top1": share, "top5": wide},
        )

    def _numbers(self, classes: ModelClasses) -> dict[str, int]:
        """The class of each name: a label, or a number. Folders that have other names are the
        classes in alphabetical order, as PyTorch's ImageFolder has them."""
        labels, count = classes.labels, classes.count
        names = sorted({name for _, name in self.named})
        known: dict[str, int] = {}
        for number, label in reversed([*enumerate(labels)]):
            # Some lists have several words for a class.
            known |= {_plain(label.split(",")[0]): number, _plain(label): number}
        known |= {str(n): n for n in range(count) if str(n) not in known}
        missing = [name for name in names if _plain(name) not in known]
        if self.in_folders and len(missing) == len(names) == count:
            return {name: number for number, name in enumerate(names)}
        if missing:
            some = f"such as '{labels[0]}'" if labels else "which it has not"
            raise InputError(
                f"{self.source}: expected labels of the model, {some}, or numbers below {count}, "
                f"found '{missing[0]}'; name the labels with --labels"
            )
        return {name: known[_plain(name)] for name in names}


@dataclass(frozen=True)
class _BoxTruth:
    """COCO's annotations of pictures; `names` are those of the categories."""

    source: Path
    files: Sequence[Path]
    boxes: Sequence[Sequence[TrueBox]]
    names: Mapping[str, int]

    def check(self, task: TaskSpec | None, classes: ModelClasses) -> None:
        from edgekit.device.runtime.agent.task import BOXES, POSE

        _need(task, (*BOXES, POSE), self.source)
        self._categories(classes.labels)

    def score(self, found: Sequence[Result], classes: ModelClasses) -> Evaluation:
        from edgekit.host.compiler.tasks.precision import FoundBox, precision_of

        numbers = self._categories(classes.labels)
        made = precision_of(
            (
                right,
                [
                    FoundBox(numbers[b.number], b.score, (b.left, b.top, b.right, b.bottom))
                    for b, _ in result.poses or ()
                    if b.number in numbers
                ],
            )
            for result, right in zip(found, self.boxes, strict=True)
        )
        return Evaluation(
            (
                f"mAP      {made.every:.4f} of {len(found)} pictures, without boxes of low scores",
                f"mAP50    {made.at_50:.4f}",
                f"mAP75    {made.at_75:.4f}",
                f"recall   {made.recall:.4f}",
            ),
            {"pictures": len(found), **asdict(made)},
        )

    def _categories(self, labels: Sequence[str]) -> dict[int, int]:
        """The category of each class that has one, by its label."""
        made = {
            number: self.names[_plain(label)]
            for number, label in enumerate(labels)
            if _plain(label) in self.names
        }
        if not made:
            raise InputError(
                f"{self.source}: expected categories with names of the model's labels, found "
                f"'{next(iter(self.names), '')}'; name the labels with --labels"
            )
        return made


def _box_truth(source: Path, text: str, folder: Path) -> _BoxTruth:
    from edgekit.host.compiler.tasks.precision import true_boxes

    try:
        raw = json.loads(text)
        boxes = true_boxes(raw["annotations"])
        names = {_plain(str(each["name"])): int(each["id"]) for each in raw["categories"]}
        pictures = [(int(each["id"]), str(each["file_name"])) for each in raw["images"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _unreadable(source, "other JSON") from None
    if not pictures:
        raise _unreadable(source, "no pictures")
    files = [_existing(source, folder / name) for _, name in pictures]
    return _BoxTruth(source, files, [boxes.get(number, []) for number, _ in pictures], names)


def _in_folders(source: Path) -> Iterator[tuple[Path, str]]:
    """The pictures in the folders of classes."""
    from edgekit.host.compiler.inputs import is_picture

    folders = sorted(each for each in source.iterdir() if each.is_dir())
    files = [(f, each.name) for each in folders for f in sorted(each.iterdir()) if is_picture(f)]
    if not files:
        raise InputError(f"{source}: expected a folder of pictures for each class, found none")
    yield from files


def _in_lines(source: Path, text: str, folder: Path) -> Iterator[tuple[Path, str]]:
    """The pictures that lines of CSV, or of a name and a label, name."""
    is_csv = "," in text
    rows = (
        csv.reader(text.splitlines()) if is_csv else (s.split(None, 1) for s in text.splitlines())
    )
    count = 0
    for number, row in enumerate(rows, 1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) != 2 or not all(cells):
            raise _unreadable(source, f"'{','.join(row)[:60]}' in line {number}")
        if number == 1 and not (folder / cells[0]).is_file() and not Path(cells[0]).suffix:
            continue  # the names of the columns
        count += 1
        yield _existing(source, folder / cells[0]), cells[1]
    if not count:
        raise _unreadable(source, "none")


def _existing(source: Path, file: Path) -> Path:
    if file.is_file():
        return file
    raise InputError(
        f"{source}: expected the picture {file}, found none there; name the folder with --input"
    )


def _plain(label: str) -> str:
    return " ".join(label.replace("_", " ").lower().split())


def _need(task: TaskSpec | None, kinds: Sequence[str], source: Path) -> None:
    if task is None or task.kind not in kinds:
        raise InputError(
            f"{source}: expected a model that can {kinds[0]}, for --evaluate, found "
            f"{task.kind if task else 'no known task'}; see --task"
        )


def _unreadable(source: Path, found: str) -> InputError:
    return InputError(
        f"{source}: expected COCO's instances.json, lines of file and label, or a folder of each "
        f"class, found {found}"
    )
