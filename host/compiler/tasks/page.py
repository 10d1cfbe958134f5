"""Models that read pages: one finds lines of text, another reads each. A release has both, with a
signature for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from edgekit.device.runtime.agent.task import BOXES, FIND, READ, TaskSpec
from edgekit.host.compiler.artifact import Artifact
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.errors import InputError


def page_variants(options: CompileOptions) -> tuple[CompileOptions, ...]:
    """The options of both variants; shapes are those of the model that finds."""
    finds = (
        replace(options, signatures=(FIND,), shapes=shapes, more_shapes=())
        for shapes in (options.shapes, *options.more_shapes)
    )
    return (*finds, replace(options, signatures=(READ,), shapes={}, more_shapes=()))


def part_of(path: Path, options: CompileOptions) -> tuple[Path, CompileOptions]:
    """The file of a variant, and the options with which it would be compiled alone."""
    own = replace(options, recognizer=None, signatures=())
    if options.signature == READ and options.recognizer is not None:
        return options.recognizer, replace(own, task="ocr", head="")
    return path, replace(own, task="guess") if own.task == "auto" else own


def check_finder(task: TaskSpec | None) -> None:
    """Raises InputError if the first model finds no boxes."""
    if task is None or task.kind not in BOXES:
        raise InputError(
            "--recognizer: expected it with a model that finds boxes, found "
            f"{task.kind if task else 'no known task'}; see --task"
        )


def joined(parts: Sequence[Artifact]) -> tuple[Artifact, ...]:
    """The variants of a release: the first has the characters of the one that reads."""
    first, last = parts[0], parts[-1]
    assert first.task is not None and last.task is not None
    task = replace(first.task, characters=last.task.characters)
    return (replace(first, task=task, files={**first.files, **last.files}), *parts[1:])
