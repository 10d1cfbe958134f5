"""What a model hears in a file of sound: words, or speech."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.device.runtime.agent.dictation import Subtitle, is_dictation, joined, parts
from edgekit.device.runtime.agent.listening import Heard, Listener
from edgekit.device.runtime.agent.sound_vectors import vector_of_sound
from edgekit.device.runtime.agent.task import TRANSCRIBE
from edgekit.device.runtime.agent.transcribe import transcribe
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.host.cli.wake_words import RATE, wake_word
from edgekit.host.compiler.inputs import read_sound
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.lines import Line
    from edgekit.device.runtime.agent.task import TaskSpec
    from edgekit.host.deploy.release import InferenceSession
    from edgekit.host.deploy.release.inference import ServedVariant


def hear(
    file: Path,
    session: InferenceSession,
    variant: ServedVariant,
    task: TaskSpec | None,
    rate: int | None,
    labels: Sequence[str],
) -> tuple[list[Heard], list[float]]:
    """What is heard in a file, and the milliseconds of each run. `rate` and `labels` of the user
    replace those of the task; a model without one takes features of sound. Raises InputError if it
    is no WAV file."""
    times: list[float] = []
    run = _running(session, variant, times)
    if task is None:
        word = wake_word(variant.inputs, variant.outputs, variant.stateful, labels)
        assert word is not None
        return word.hear(read_sound(file, RATE), run), times
    own = replace(task, rate=rate or task.rate, labels=tuple(labels) or task.labels)
    listener = Listener(own, variant.inputs, variant.outputs, run, variant.stateful)
    found = listener.feed(read_sound(file, own.rate).tolist())
    return found + listener.finish(), times


def transcript_of(
    file: Path,
    session: InferenceSession,
    variant: ServedVariant,
    task: TaskSpec,
    rate: int | None,
) -> tuple[Line, list[float]]:
    """The transcript of a file, and the milliseconds of each run; as for `hear`."""
    times: list[float] = []
    if is_dictation(task, session.served.variants):
        lines = []
        for part in _windows(file, variant, task, rate):
            line, spent = session.transcribe(np.asarray(part))
            lines.append(line)
            times.append(spent)
        return joined(lines), times
    samples = read_sound(file, rate or task.rate).tolist()
    run = _running(session, variant, times)
    ends = variant.inputs, variant.outputs
    return transcribe(samples, task, *ends, run, lambda v: session.line(np.asarray(v))), times


def embed_sound(
    file: Path,
    session: InferenceSession,
    variant: ServedVariant,
    task: TaskSpec,
    rate: int | None,
) -> tuple[list[float], list[float]]:
    """The vector of a file, and the milliseconds of each run; as for `hear`."""
    times: list[float] = []
    samples = read_sound(file, rate or task.rate).tolist()
    run = _running(session, variant, times)
    return vector_of_sound(samples, task, variant.inputs, run), times


def time_texts(
    file: Path,
    session: InferenceSession,
    variant: ServedVariant,
    task: TaskSpec,
    rate: int | None,
) -> tuple[list[Subtitle], list[float]]:
    """The transcript of a file, with times; as for `hear`. InputError for a model without times."""
    if not is_dictation(task, session.served.variants):
        raise InputError(
            f"--timestamps: expected an encoder with its decoder, as Whisper's, found {TRANSCRIBE} "
            "by characters; leave it out"
        )
    found: list[Subtitle] = []
    times, begun = [], 0.0
    for part in _windows(file, variant, task, rate):
        said, spent = session.subtitles(np.asarray(part))
        found += (s._replace(start=begun + s.start, end=begun + s.end) for s in said)
        times.append(spent)
        begun += len(part) / task.rate
    return found, times


def _windows(
    file: Path, variant: ServedVariant, task: TaskSpec, rate: int | None
) -> Iterator[array[float]]:
    """Parts of a file's sound that fit into the model's window."""
    window = next(spec.shape[-1] for spec in variant.inputs if spec.name == task.input)
    return parts(array("f", read_sound(file, rate or task.rate).tolist()), window, task.rate)


def subtitle_lines(found: Sequence[Subtitle]) -> list[str]:
    """Score, start and end in seconds, and text of each."""
    return [f"  {s.score:6.3f}  {s.start:8.2f} {s.end:8.2f}  {s.text}" for s in found]


def _running(
    session: InferenceSession, variant: ServedVariant, times: list[float]
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Runs the model on flat inputs, and notes the milliseconds."""
    specs = {spec.name: spec for spec in variant.inputs}

    def run(inputs: dict[str, Any]) -> dict[str, Any]:
        arrays = {
            name: np.asarray(value, BY_NAME[specs[name].dtype].npy).reshape(specs[name].shape)
            for name, value in inputs.items()
        }
        outputs, timings = session.run(arrays)
        times.append(timings.latency_ms)
        return outputs

    return run


def heard_lines(found: Sequence[Heard]) -> list[str]:
    """Score, start and end in seconds, and label of each."""
    return [f"  {h.score:6.3f}  {h.start:8.2f} {h.end:8.2f}  {h.name}" for h in found]
