"""Speech from phonemes, by a model with the inputs and the output of Piper's voices."""

from __future__ import annotations

import io
import struct
import sys
import unicodedata
from array import array
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from edgekit.device.runtime.agent.manifest import Manifest, Variant
from edgekit.device.runtime.agent.npz import Array
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.strict import bad, each, file_keys, integer, number, text
from edgekit.device.runtime.agent.task import SPEAK, TaskSpec
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.record import Record

SCHEMA = "edgekit.voice/1"
LENGTHS, SCALES, SPEAKER = "input_lengths", "scales", "sid"  # inputs, but for the phonemes
_START, _PAD, _END = "^", "_", "$"
_MOST = 1 << 16

Phonemes = Union[str, Sequence[int]]


class VoiceSpec(Record):
    """`phonemes` and their `numbers`, of which each has at least one; `scales` of the noise, the
    length and the noise of the length."""

    phonemes: Tuple[str, ...]
    numbers: Tuple[Tuple[int, ...], ...]
    scales: Tuple[float, ...]


def voice_of(data: bytes, where: str) -> VoiceSpec:
    """Checks the file of a release."""
    keys = file_keys(data, where, SCHEMA, VoiceSpec.field_names)
    numbers = each(keys["numbers"], f"{where}.numbers", _numbers)
    made = VoiceSpec(
        each(keys["phonemes"], f"{where}.phonemes", text),
        numbers,
        each(keys["scales"], f"{where}.scales", number),
    )
    if len(made.phonemes) != len(numbers) or len(made.scales) != 3:
        raise bad(where, "numbers of each phoneme, and three scales", "others")
    return made


def _numbers(raw: object, where: str) -> Tuple[int, ...]:
    found = each(raw, where, _number)
    if not found:
        raise bad(where, "a number", "none")
    return found


def _number(raw: object, where: str) -> int:
    return integer(raw, where, 0, _MOST)


class Voice:
    """Makes the inputs of phonemes."""

    def __init__(self, manifest: Manifest, files: ReleaseFiles) -> None:
        self.task = voice_task(manifest.task)
        self._spec = voice_of(files.read(self.task.characters), self.task.characters)
        spec = self._spec
        self._known = dict(zip(spec.phonemes, spec.numbers))
        self._variants = sorted(manifest.every_variant(), key=self._room)

    def inputs(self, phonemes: Phonemes) -> Dict[str, Array]:
        """For the smallest variant that holds them. InputError for phonemes that the model does
        not know, or too many."""
        given = self._of_text(phonemes) if isinstance(phonemes, str) else list(phonemes)
        most = self._room(self._variants[-1])
        if not 0 < len(given) <= most:
            raise InputError(
                f"expected 1 to {most} phonemes, of which a text of n has 2 n + 3 with what is "
                f"between them, found {len(given)}; shorten the text, or compile the model with "
                f"--input-shape {self.task.input}=1,{max(len(given), 1)}"
            )
        if not all(type(n) is int and 0 <= n < _MOST for n in given):
            raise InputError("expected numbers of phonemes, found others")
        variant = next(v for v in self._variants if self._room(v) >= len(given))
        padded = [*given, *[0] * (self._room(variant) - len(given))]
        values: Mapping[str, Sequence[Any]] = {
            self.task.input: padded,
            LENGTHS: [len(given)],
            SCALES: self._spec.scales,
            SPEAKER: [0],
        }
        return {spec.name: _array(spec, values[spec.name]) for spec in variant.inputs}

    def _of_text(self, phonemes: str) -> List[int]:
        """Numbers as Piper gives them: one that is no phoneme follows each."""
        pad = self._known.get(_PAD, ())
        found = [*self._known.get(_START, ()), *(pad if _START in self._known else ())]
        for phoneme in unicodedata.normalize("NFD", phonemes):
            if phoneme not in self._known:
                raise InputError(
                    f"expected phonemes of the voice, {''.join(self._known)}, found {phoneme!r}; "
                    "espeak-ng --ipa writes a text as phonemes"
                )
            found += [*self._known[phoneme], *pad]
        return [*found, *self._known.get(_END, ())]

    def _room(self, variant: Variant) -> int:
        return variant.shapes[self.task.input][-1]


def samples_of(task: TaskSpec, outputs: Mapping[str, Any]) -> "array[float]":
    """What a model says, -1 to 1. InputError if the output has no room for all of it."""
    found = array("f", _data(outputs[task.output]))
    if task.mask:
        data = _data(outputs[task.mask])
        count = int(struct.unpack("<q" if len(data) == 8 else "<i", data)[0])
        if count > len(found):
            raise InputError(
                f"expected at most {len(found) / task.rate:.1f} s of speech, found "
                f"{count / task.rate:.1f} s; shorten the text, or compile the model with a larger "
                "--max-rows"
            )
        del found[max(count, 0) :]
    return found


def wav_of(samples: Sequence[float], rate: int) -> bytes:
    """A WAV file of 16 bits and one channel; louder samples are cut."""
    import wave  # most programs need it not

    whole = array("h", (round(32767 * min(max(sample, -1.0), 1.0)) for sample in samples))
    if sys.byteorder == "big":
        whole.byteswap()
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(whole.tobytes())
    return made.getvalue()


def voice_task(task: Optional[TaskSpec]) -> TaskSpec:
    """The task of a model that speaks; InputError for others."""
    if task is None or task.kind != SPEAK:
        raise InputError(
            f"expected a model that was compiled with --task {SPEAK}, found "
            f"{task.kind if task else 'no task'}; compile it so"
        )
    return task


def _array(spec: Any, values: Sequence[Any]) -> Array:
    code = BY_NAME[spec.dtype].code
    return Array(spec.dtype, spec.shape, struct.pack(f"<{len(values)}{code}", *values))


def _data(made: Any) -> bytes:
    return bytes(made.data) if isinstance(made, Array) else memoryview(made).cast("B").tobytes()
