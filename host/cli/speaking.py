"""What a voice says of a file with phonemes, as a WAV file."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

from edgekit.device.runtime.agent.task import TaskSpec
from edgekit.device.runtime.agent.voice import samples_of, wav_of
from edgekit.host.cli.findings import FileResult, Sound
from edgekit.host.cli.results import STDOUT, WAV, names_folder
from edgekit.host.common.files import atomic_write
from edgekit.host.compiler.inputs import read_lines
from edgekit.host.deploy.release import InferenceSession
from edgekit.host.errors import InputError

_PAUSE = 5  # a fifth of a second between lines


def read_phonemes(file: Path) -> list[str | list[int]]:
    """The phonemes of each line, or their numbers in brackets, also as `phoneme_ids` of Piper's
    JSON. Raises InputError."""
    return [_phonemes(file, line) for line in read_lines(file)]


def _phonemes(file: Path, line: str) -> str | list[int]:
    if line[0] not in "[{":
        return line
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        given = None
    found = given.get("phoneme_ids") if isinstance(given, dict) else given
    if not isinstance(found, list) or not all(type(each) is int for each in found):
        raise InputError(
            f"{file}: expected phonemes in each line, or their numbers as in [1, 0, 14, 2], found "
            f"{line!r:.40}"
        )
    return found


def check_spoken(output: str | None) -> None:
    """Raises InputError for an output that is neither a WAV file nor a folder."""
    if output is None or output.lower().endswith(WAV):
        return
    if output == STDOUT or not names_folder(Path(output)):
        raise InputError(
            f"{output}: expected a {WAV} or a folder for what a voice says, found neither; name one"
        )


def speak(file: Path, session: InferenceSession, task: TaskSpec, output: str | None) -> FileResult:
    """Writes what the lines of a file say to NAME.out.wav in the working folder, NAME.wav in the
    folder `output`, or the file `output`."""
    said, times = array("f"), []
    for phonemes in read_phonemes(file):
        made, timings = session.run(session.tokens(phonemes))
        if said:
            said.extend([0.0] * (task.rate // _PAUSE))
        said += samples_of(task, made)
        times.append(timings.latency_ms)
    target = Path(output or f"{file.stem}.out{WAV}")
    if names_folder(target):
        target.mkdir(exist_ok=True)
        target /= f"{file.stem}{WAV}"
    atomic_write(target, wav_of(said, task.rate))
    return FileResult(file, tuple(times), (), spoken=Sound(target, len(said) / task.rate))
