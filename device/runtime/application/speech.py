"""Speech to text and text to speech by a deployed model."""

from __future__ import annotations

from array import array
from typing import List, Sequence

from edgekit.device.runtime.agent.dictation import Subtitle, is_dictation
from edgekit.device.runtime.agent.lines import Line, reading_task
from edgekit.device.runtime.agent.task import TRANSCRIBE
from edgekit.device.runtime.agent.transcribe import transcribe
from edgekit.device.runtime.agent.voice import Phonemes, samples_of
from edgekit.device.runtime.application.loaded import Loaded
from edgekit.device.runtime.errors import InputError


def transcript_of(loaded: Loaded, samples: Sequence[float]) -> Line:
    """See Model.transcribe."""
    manifest = loaded.manifest
    task = reading_task(manifest.task, TRANSCRIBE)
    if is_dictation(task, manifest.every_variant()):
        return loaded.dictation().line(samples)
    return transcribe(
        samples,
        task,
        manifest.inputs,
        manifest.outputs,
        lambda inputs: loaded.run(inputs, {}, ""),
        loaded.characters().line,
    )


def subtitles(loaded: Loaded, samples: Sequence[float]) -> List[Subtitle]:
    """See Model.subtitles."""
    manifest = loaded.manifest
    task = reading_task(manifest.task, TRANSCRIBE)
    if not is_dictation(task, manifest.every_variant()):
        raise InputError(
            "expected an encoder with its decoder for subtitles, found a model of characters"
        )
    return loaded.dictation().subtitles(samples)


def speak(loaded: Loaded, phonemes: Phonemes) -> "array[float]":
    """See Model.speak."""
    voice = loaded.voice()
    return samples_of(voice.task, loaded.run(voice.inputs(phonemes), {}, ""))
