"""Implements `edgekit run --evaluate`: compares results with the ground truth."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.host.cli.evaluation import (
    LIST_LABELS,
    Evaluation,
    ModelClasses,
    Result,
    Truth,
    none_of_files,
    plain,
)
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.task import TaskSpec
    from edgekit.host.compiler.tasks.precision import TrueBox

Evaluated = Annotated[
    Path | None,
    typer.Option(
        "--evaluate",
        metavar="FILE or FOLDER",
        show_default=False,
        help="Score by instances.json (COCO), lines of file,label or file,text, or folders.",
    ),
]

_MOST_BYTES = 1 << 30


def read_truth(source: Path, folder: Path | None, option: str = "--input") -> Truth:
    """Reads the ground truth; files are in `folder`, which the `option` names, or next to `source`.
    Raises InputError."""
    from edgekit.host.cli.evaluate_named import NamedTruth

    if source.is_dir():
        if folder is not None and folder.resolve() != source.resolve():
            raise InputError(f"--evaluate: expected pictures in {source}, found {option} {folder}")
        return NamedTruth(source, tuple(_in_folders(source)), in_folders=True)
    if folder is not None and not folder.is_dir():
        raise InputError(f"{option}: expected a folder with the pictures of {source}, found a file")
    try:
        if source.stat().st_size > _MOST_BYTES:
            raise _unreadable(source, f"more than {_MOST_BYTES} bytes")
        text = source.read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        raise _unreadable(source, getattr(error, "strerror", None) or "no text") from None
    where = folder or source.parent
    if source.suffix.lower() == ".json":
        return _box_truth(source, text, where, option)
    return NamedTruth(source, tuple(_in_lines(source, text, where, option)))


@dataclass(frozen=True)
class _BoxTruth:
    """COCO's annotations of pictures; `names` are those of the categories."""

    source: Path
    files: Sequence[Path]
    boxes: Sequence[Sequence[TrueBox]]
    names: Mapping[str, int]

    def within(self, files: Collection[Path]) -> _BoxTruth:
        found = [each for each in zip(self.files, self.boxes, strict=True) if each[0] in files]
        if not any(boxes for _, boxes in found):
            raise none_of_files(self.source, files)
        return replace(self, files=[f for f, _ in found], boxes=[boxes for _, boxes in found])

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
            "mAP",
            made.every,
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
            number: self.names[plain(label)]
            for number, label in enumerate(labels)
            if plain(label) in self.names
        }
        if not made:
            raise InputError(
                f"{self.source}: expected categories with names of the model's labels, found "
                f"'{next(iter(self.names), '')}'; {LIST_LABELS}"
            )
        return made


def _box_truth(source: Path, text: str, folder: Path, option: str) -> _BoxTruth:
    from edgekit.host.compiler.tasks.precision import true_boxes

    try:
        raw = json.loads(text)
        boxes = true_boxes(raw["annotations"])
        names = {plain(str(each["name"])): int(each["id"]) for each in raw["categories"]}
        pictures = [(int(each["id"]), str(each["file_name"])) for each in raw["images"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _unreadable(source, "other JSON") from None
    if not pictures:
        raise _unreadable(source, "no pictures")
    files = [_existing(source, folder / name, option) for _, name in pictures]
    return _BoxTruth(source, files, [boxes.get(number, []) for number, _ in pictures], names)


def _in_folders(source: Path) -> Iterator[tuple[Path, str]]:
    """The pictures or sounds in the folders of classes."""
    from edgekit.host.compiler.inputs import is_picture, is_sound

    folders = sorted(each for each in source.iterdir() if each.is_dir())
    every = [(file, each.name) for each in folders for file in sorted(each.iterdir())]
    files = [(file, name) for file, name in every if is_picture(file) or is_sound(file)]
    if not files:
        raise InputError(f"{source}: expected a folder of files for each class, found none")
    yield from files


def _in_lines(source: Path, text: str, folder: Path, option: str) -> Iterator[tuple[Path, str]]:
    """The files and texts in lines: after the first comma or tab, in quotes or not, else after the
    name of the file."""
    separator = "\t" if "\t" in text else "," if "," in text else None
    count = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split(separator, 1)]
        if len(cells) != 2 or not all(cells):
            raise _unreadable(source, f"'{line[:60]}' in line {number}")
        if number == 1 and not (folder / cells[0]).is_file() and not Path(cells[0]).suffix:
            continue  # the names of the columns
        count += 1
        yield _existing(source, folder / _unquoted(cells[0]), option), _unquoted(cells[1])
    if not count:
        raise _unreadable(source, "none")


def _unquoted(cell: str) -> str:
    """A cell of CSV."""
    is_quoted = len(cell) > 1 and cell[0] == cell[-1] == '"'
    return cell[1:-1].replace('""', '"') if is_quoted else cell


def _existing(source: Path, file: Path, option: str) -> Path:
    if file.is_file():
        return file
    raise InputError(
        f"{source}: expected the file {file}, found none there; name the folder with {option}"
    )


def _need(task: TaskSpec | None, kinds: Sequence[str], source: Path) -> None:
    if task is None or task.kind not in kinds:
        raise InputError(
            f"{source}: expected a model that can {kinds[0]}, for --evaluate, found "
            f"{task.kind if task else 'no known task'}; see run --task"
        )


def _unreadable(source: Path, found: str) -> InputError:
    return InputError(
        f"{source}: expected COCO's instances.json, lines of file and label or text, or a "
        f"folder of each class, found {found}"
    )
