"""What `edgekit run` was asked to read and to write, and the job that follows from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.host.cli.classes import read_labels
from edgekit.host.cli.evaluate import read_truth
from edgekit.host.cli.results import STDOUT, check_target
from edgekit.host.cli.run_job import RunJob
from edgekit.host.cli.run_stream import StreamOptions
from edgekit.host.cli.wake_words import stated_word
from edgekit.host.compiler.inputs import (
    InputNotes,
    InputOptions,
    ModelNotes,
    input_files,
    is_array,
    read_arrays,
    read_notes,
)
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.deploy.board import Board


@dataclass(frozen=True)
class Wanted:
    """Options of `run` that do not all go together."""

    input: Path | None
    output: str | None
    top: int | None
    evaluate: Path | None
    labels: Path | None
    stream: bool
    command: str | None
    pixels: bool
    raw: bool

    def given(self) -> dict[str, Any]:
        """Options that say what to do with results, by name."""
        names = "input", "output", "stream", "top", "evaluate"
        return {name: getattr(self, name) for name in names}

    @property
    def is_special(self) -> bool:
        """True if results are not simply shown."""
        return bool(self.stream or self.output or self.top or self.evaluate)

    @property
    def streaming(self) -> StreamOptions:
        return StreamOptions(self.stream, self.command, self.pixels, self.raw)

    def check(self, recognizer: str | None, as_json: bool) -> None:
        """Raises InputError for options that exclude each other."""
        self.streaming.check(self.input or self.evaluate, self.output, as_json)
        if self.output == STDOUT and as_json:
            raise InputError(
                "expected one document on stdout, found --json and --output -; use one"
            )
        if self.evaluate and (self.stream or self.output or self.top):
            raise InputError(
                "--evaluate: expected it without --stream, --output and --top, found one"
            )
        if recognizer and self.is_special:
            raise InputError(
                "--recognizer: expected it without --stream, --output, --top and --evaluate, "
                "found one"
            )


def job_of(
    wanted: Wanted,
    device: Board,
    model: Path | None,
    given: InputOptions,
    signature: str,
    reset_each: bool,
    timestamps: bool,
) -> RunJob:
    """The job on files, none for a stream of frames."""
    truth = read_truth(wanted.evaluate, wanted.input) if wanted.evaluate else None
    files = [*truth.files] if truth else _find_input_files(wanted.input, wanted.output)
    shown = bool(wanted.top) or wanted.pixels or not all(map(is_array, files))
    own = _read_model_notes(device, model, shown)
    given = replace(given, notes=own.inputs[0] if own.inputs else InputNotes())
    known = read_labels(wanted.labels) if wanted.labels else stated_word(model)
    made = RunJob(files, wanted.output, wanted.top, known, own, reset_each, given, signature, truth)
    return replace(made, timestamps=timestamps)


def _find_input_files(input_path: Path | None, output: str | None) -> list[Path]:
    """The input files, none for a stream of frames; checks names before the board is contacted."""
    if input_path is None or str(input_path) == STDOUT:
        return []
    files = input_files(input_path)
    if is_array(files[0]):
        read_arrays(files[0])
    if output is not None:
        check_target(output, files, input_path.is_dir())
    return files


def _read_model_notes(device: Board, model: Path | None, wanted: bool) -> ModelNotes:
    """Metadata from the model's file: pixel format, rates, labels. For a deployed model, the file
    named in edgekit.toml is used if its hash matches."""
    import hashlib

    from edgekit.host.deploy.inventory import read_project

    if model is not None:
        return _with_stated_pixels(model, read_notes(model))
    named = read_project(Path.cwd()).model
    if not wanted or named is None or not Path(named).is_file():
        return ModelNotes()
    current = device.status().current
    with Path(named).open("rb") as file:
        same = current and hashlib.file_digest(file, "sha256").hexdigest() == current.model_sha256
    return _with_stated_pixels(Path(named), read_notes(Path(named))) if same else ModelNotes()


def _with_stated_pixels(model: Path, notes: ModelNotes) -> ModelNotes:
    """With mean and scale by preprocessor_config.json if the model's file states nothing."""
    from edgekit.host.compiler.tasks.hub import stated_pixels

    mean, scale = ((), ()) if notes.inputs else stated_pixels(model)
    return replace(notes, inputs=(InputNotes(mean, scale),)) if scale else notes
