"""Several input files of `edgekit run`: those that cannot be taken are left out and told of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from edgekit.device.runtime.agent.task import ASKED, SPEAK, TaskSpec
from edgekit.host.compiler.inputs import is_picture, is_sound, is_text
from edgekit.host.errors import InputError

_FORMS = {"a picture": is_picture, "a sound (.wav)": is_sound, "a text (.txt)": is_text}


def each_file(
    files: Sequence[Path], take: Callable[[Path], object], strict: bool
) -> list[InputError]:
    """Takes each file, and returns what is wrong with some of them. Raises the first such
    InputError if `strict`, or if all files are wrong."""
    wrong: list[InputError] = []
    for file in files:
        try:
            take(file)
        except InputError as error:
            if strict:
                raise
            wrong.append(error)
    if wrong and len(wrong) == len(files):
        raise wrong[0]
    return wrong


def left_out(wrong: Sequence[InputError], count: int) -> InputError:
    """Says which of `count` files were left out, after the results of the others."""
    return InputError(f"left out {len(wrong)} of {count} files: " + "; ".join(map(str, wrong)))


def check_form(task: TaskSpec | None, file: Path) -> None:
    """Raises InputError for a picture where the model takes sound, and the other way round."""
    if task is None:
        return
    found = next((name for name, fits in _FORMS.items() if fits(file)), "")
    wanted = "a sound (.wav)" if task.hears else "a picture"
    if task.tokenizer or task.kind == SPEAK:
        wanted = "a text (.txt)"
    if found and found != wanted:
        kind = ASKED.get(task.kind, task.kind)
        raise InputError(
            f"{file}: expected {wanted} for a model with --task {kind}, found {found}; "
            "give it other input, or --task none for its tensors"
        )
