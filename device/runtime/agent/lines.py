"""Lines of text that a model reads in pictures, from the characters that it sees along the line."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple, TypeVar

from edgekit.device.runtime.agent.manifest import Manifest
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.agent.strict import bad, each, file_keys
from edgekit.device.runtime.agent.task import (
    BGR,
    BOXES,
    CHARACTER_FIELDS,
    LINE,
    OCR,
    READ,
    TRANSCRIBE,
    TaskSpec,
)
from edgekit.device.runtime.errors import InputError

SCHEMA = "edgekit.characters/1"


# How the picture of a line becomes an input (PaddleOCR).
LINE_PIXELS: Mapping[str, Any] = {
    "fit": LINE, "fill": 127, "channels": BGR, "mean": (127.5,), "scale": (127.5,),
}  # fmt: skip


class HasEnds(Protocol):
    """A variant of a release."""

    @property
    def inputs(self) -> Tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> Tuple[TensorSpec, ...]: ...

    @property
    def signature(self) -> str: ...


Ends = TypeVar("Ends", bound=HasEnds)


class Line(NamedTuple):
    """A line of text; `score` says how sure the model is, 0 to 1."""

    text: str
    score: float


class Characters:
    """The characters by number; 0 is none (Graves et al., 2006, on connectionist temporal
    classification)."""

    def __init__(self, known: Sequence[str]) -> None:
        self._known = ("", *known)

    @staticmethod
    def of_release(manifest: Manifest, files: ReleaseFiles) -> Characters:
        """Those of the model that reads lines, or that transcribes speech."""
        task = page_task(manifest.task, reading_part(manifest.every_variant()))
        path = (task or reading_task(manifest.task)).characters
        return Characters(characters_of(files.read(path), path))

    def line(self, values: Sequence[float]) -> Line:
        """The text of `values`: CHARACTER_FIELDS for each place along the line, the number of the
        character and its score. The same one at places that follow each other counts once."""
        found, scores, before = [], [], 0
        for at in range(0, len(values), CHARACTER_FIELDS):
            number = int(values[at])
            if number != before and number < len(self._known) and self._known[number]:
                found.append(self._known[number])
                scores.append(values[at + 1])
            before = number
        return Line("".join(found), sum(scores) / len(scores) if scores else 0.0)


def reading_part(variants: Sequence[Ends]) -> Optional[Ends]:
    """The variant that reads the lines of a page; None if the release has none."""
    return next((v for v in variants if v.signature == READ), None)


def page_task(task: Optional[TaskSpec], part: Optional[HasEnds]) -> Optional[TaskSpec]:
    """The task of the variant that reads what the release's own task finds."""
    if task is None or task.kind not in BOXES or part is None:
        return None
    ends = part.inputs[0].name, part.outputs[-1].name
    return TaskSpec(OCR, *ends, characters=task.characters, **LINE_PIXELS)


def characters_of(data: bytes, where: str) -> Sequence[str]:
    """Checks the file of a release."""
    keys = file_keys(data, where, SCHEMA, ("characters",))
    return each(keys["characters"], f"{where}.characters", _character)


def reading_task(task: Optional[TaskSpec], *kinds: str) -> TaskSpec:
    """The task of a model that reads lines or transcribes speech, or only of `kinds`; InputError
    for others."""
    wanted = kinds or (OCR, TRANSCRIBE)
    if task is None or task.kind not in wanted:
        raise InputError(
            f"expected a model that was compiled with --task {' or '.join(wanted)}, found "
            f"{task.kind if task else 'no task'}; compile it so"
        )
    return task


def _character(raw: object, where: str) -> str:
    if not isinstance(raw, str):
        raise bad(where, "text", raw)
    return raw
