"""Reads model inputs from a file or a folder of files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.agent.task import TaskSpec
from edgekit.device.runtime.agent.variants import variant_for
from edgekit.device.runtime.arrays.sparse_file import DAMAGED
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.common.paths import near_file
from edgekit.host.compiler.inputs import pictures, sound
from edgekit.host.compiler.inputs.convert import fitted
from edgekit.host.compiler.inputs.options import InputOptions
from edgekit.host.errors import InputError

ARRAYS = (".npz", ".npy")
DRAWN = ".out.png"  # the end of names of pictures with results, which are no inputs
_TEXTS = (".txt", ".md")
_NUMBERS = (".json", ".jsonl")  # of phonemes
SUFFIXES = (*ARRAYS, ".wav", *pictures.SUFFIXES)

_OTHER_SOUNDS = (".aac", ".aiff", ".flac", ".m4a", ".mp3", ".oga", ".ogg", ".opus", ".wma")
_OTHER_PICTURES = (".avif", ".heic", ".heif", ".jp2", ".pdf", ".psd", ".svg")
_LIVE = re.compile(r"/dev/video\d+|(rtsps?|rtmp|udp|tcp):/")  # a path has one slash less
_VIDEOS = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpg", ".webm")

Inputs = dict[str, NDArray[Any]]

_NUMBER = re.compile(r"([0-9]+)")
_MOST_FILES = 1_000_000


class InputVariant(Protocol):
    """A model variant for one signature and set of input shapes."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs by name."""

    @property
    def signature(self) -> str:
        """Its signature; empty if the model has only one."""


def input_files(path: Path) -> list[Path]:
    """Return the file itself, or a folder's supported files in natural order (2.png, 10.png)."""
    if is_live(path):
        return [path]
    if not path.is_dir():
        if not path.is_file():
            found = "something else" if path.exists() else f"nothing there{near_file(path)}"
            raise InputError(f"{path}: expected a file or folder with inputs, found {found}")
        _refuse_other_forms(path)
        return [path]
    found_files = [p for p in path.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file()]
    found_files = [p for p in found_files if not p.name.startswith(".")]
    found_files = [p for p in found_files if not p.name.endswith(DRAWN)]
    if not found_files or len(found_files) > _MOST_FILES:
        raise InputError(
            f"{path}: expected 1 to {_MOST_FILES} files of {', '.join(SUFFIXES)}, "
            f"found {len(found_files)}"
        )
    return sorted(found_files, key=_natural_sort_key)


def _refuse_other_forms(path: Path) -> None:
    """Raises InputError for a sound or picture that a program has to convert."""
    suffix, name = path.suffix.lower(), shlex.quote(path.name)
    if suffix in _OTHER_SOUNDS:
        target = shlex.quote(path.with_suffix(".wav").name)
        raise InputError(
            f"{path}: expected a sound as .wav, found {suffix}; convert it: ffmpeg -i {name} -ac 1 "
            f"{target}"
        )
    if suffix in _OTHER_PICTURES:
        raise InputError(
            f"{path}: expected a picture as {', '.join(pictures.SUFFIXES)}, found {suffix}; "
            "convert it"
        )


def is_array(file: Path) -> bool:
    """Whether a file contains arrays in the model's own format, by its name."""
    return not (is_sound(file) or is_picture(file) or is_video(file) or is_text(file))


def is_text(file: Path) -> bool:
    """Whether a file has a text or phonemes in each line, by its name."""
    return file.suffix.lower() in (*_TEXTS, *_NUMBERS)


def is_video(file: Path) -> bool:
    """Whether a file is a video, by its name, or a camera."""
    return file.suffix.lower() in _VIDEOS or is_live(file)


def is_live(path: Path) -> bool:
    """Whether it is a camera of this machine, or the address of one."""
    return _LIVE.match(str(path)) is not None


def is_sound(file: Path) -> bool:
    """Whether a file is a sound, by its name."""
    return file.suffix.lower() == ".wav"


def is_picture(file: Path) -> bool:
    """Whether a file is a picture, by its name."""
    return file.suffix.lower() in pictures.SUFFIXES


def read_inputs(
    path: Path, variants: Sequence[InputVariant], options: InputOptions, stateful: bool = False
) -> list[Inputs]:
    """Read model inputs from a file: one set or, for sound and a stateful model, one per window.
    Raises InputError."""
    if is_sound(path):
        spec = _only_input(path, variants)
        return [{spec.name: part} for part in sound.windows(path, spec, options, stateful)]
    if is_picture(path):
        spec = _only_input(path, variants)
        return [{spec.name: pictures.picture(path, spec, options)}]
    arrays = read_arrays(path)
    if not isinstance(arrays, dict):
        arrays = {_only_input(path, variants).name: arrays}
    elif len(arrays) == len(names := {s.name for v in variants for s in v.inputs}) == 1:
        arrays = dict(zip(names, arrays.values(), strict=True))  # whatever its name
    try:
        return [fitted(arrays, variant_for(variants, arrays).inputs)]
    except (InputError, DeviceInputError) as error:
        raise InputError(f"{path}: {error}") from None


def read_texts(path: Path, task: TaskSpec | None) -> list[str]:
    """Read the lines of a file that are not empty, for a model of texts. Raises InputError."""
    if task is None or not task.tokenizer:
        raise InputError(
            f"{path}: expected a model of texts, known by tokenizer.json or vocab.txt next to it "
            "and by its outputs, found another; give the tokens in an .npz file"
        )
    if path.suffix.lower() in _NUMBERS:
        raise InputError(f"{path}: expected texts ({', '.join(_TEXTS)}), found another file")
    return read_lines(path)


def read_lines(path: Path) -> list[str]:
    """Read the lines of a file that are not empty. Raises InputError."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"{path}: expected a text in UTF-8, found other bytes") from None
    if found := [line.strip() for line in lines if line.strip()]:
        return found
    raise InputError(f"{path}: expected a text in each line, found none")


def read_arrays(path: Path) -> Inputs | NDArray[Any]:
    """Read an .npz file as a dict or an .npy file as an array. Raises InputError for others."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded as archive:
            return {name: archive[name] for name in archive.files}
    except DAMAGED as error:
        if isinstance(error, OSError) and error.filename:
            raise  # the file cannot be read at all
        raise InputError(
            f"{path}: expected an .npz or .npy file of plain arrays, found something else; "
            "write one with: numpy.savez(path, name=array)"
        ) from None


def _only_input(path: Path, variants: Sequence[InputVariant]) -> TensorSpec:
    """Return the model's only input, for files that do not name inputs."""
    specs = variants[0].inputs
    if len(specs) == 1:
        return specs[0]
    raise InputError(
        f"{path}: expected an .npz file with arrays {', '.join(s.name for s in specs)}, found "
        f"{path.suffix or 'another'}, which only fits a model with one input; write one with: "
        "numpy.savez(path, name=array)"
    )


def _natural_sort_key(path: Path) -> list[tuple[int, str]]:
    """Sort key that compares numbers in names by value."""
    parts = _NUMBER.split(path.name)
    return [(int(p), "") if i % 2 else (0, p.casefold()) for i, p in enumerate(parts)] + [
        (0, path.name)
    ]
