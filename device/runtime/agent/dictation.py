"""What is said in sound, by an encoder of sound and a decoder that continues a text with the most
likely token (Radford et al., 2022, on Whisper)."""

from __future__ import annotations

import math
import struct
from array import array
from operator import mul
from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence, Tuple

from edgekit.device.runtime.agent.bpe import Bpe, BpeSpec, bpe_of
from edgekit.device.runtime.agent.generate import CANDIDATES, POSITION, SCORES
from edgekit.device.runtime.agent.generators import values_of
from edgekit.device.runtime.agent.lines import Line, reading_task
from edgekit.device.runtime.agent.manifest import Manifest
from edgekit.device.runtime.agent.npz import Array
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.strict import bad, file_keys, integer
from edgekit.device.runtime.agent.task import LISTEN, TRANSCRIBE, WRITE, TaskSpec
from edgekit.device.runtime.agent.variants import HasSignature, names_of
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.device.runtime.record import Record

SCHEMA = "edgekit.dictation/1"
LANGUAGE = "language"  # output: number of the language in DictationSpec.languages
_QUIET = 10  # parts of a second, in the quietest of which a long sound is cut
_SOUGHT = 5  # a fifth of a window is searched for it

# Runs the inputs of a signature; the values of outputs as Array, or as memoryviews.
Run = Callable[[Mapping[str, Array], str], Mapping[str, Any]]


class DictationSpec(Record):
    """A text begins with the tokens `start`, the token of the language (the best of `languages`, if
    there are any) and those of `after`. It ends before any of `ends`; none of `held` is its first
    token."""

    tokenizer: BpeSpec
    ends: Tuple[int, ...]
    start: Tuple[int, ...]
    languages: Tuple[int, ...]
    after: Tuple[int, ...]
    held: Tuple[int, ...]


def dictation_of(data: bytes, where: str) -> DictationSpec:
    """Checks the file of a release."""
    keys = file_keys(data, where, SCHEMA, DictationSpec.field_names)
    tokenizer = bpe_of(keys["tokenizer"], f"{where}.tokenizer")

    def tokens(name: str) -> Tuple[int, ...]:
        given = keys[name]
        if not isinstance(given, list):
            raise bad(f"{where}.{name}", "a list", type(given).__name__)
        return tuple(integer(each, f"{where}.{name}", 0, 1 << 24) for each in given)

    names = ("ends", "start", "languages", "after", "held")
    made = DictationSpec(tokenizer, *map(tokens, names))
    if not made.start or not made.ends:
        raise bad(where, "tokens with which texts start and end", "none")
    return made


class Dictation:
    """Writes down what is said, by a model with the signatures LISTEN and WRITE."""

    def __init__(self, manifest: Manifest, files: ReleaseFiles, run: Run) -> None:
        task = reading_task(manifest.task, TRANSCRIBE)
        every = manifest.every_variant()
        self._spec = dictation_of(files.read(task.characters), task.characters)
        self._bpe = Bpe(self._spec.tokenizer)
        self._rate, self._run = task.rate, run
        self._sound = next(s for s in every[0].inputs if s.name == task.input)
        writers = [v for v in every if v.signature == WRITE]
        tokens = [next(s for s in v.inputs if s.name != POSITION) for v in writers]
        self._tokens = sorted(tokens, key=lambda spec: spec.shape)

    def line(self, samples: Sequence[float]) -> Line:
        """The text of `samples`, -1 to 1, of one channel, and the mean probability of its
        tokens. A text that is too long for the decoder ends where it is full."""
        window = self._sound.shape[-1]
        return joined([*map(self.part, parts(array("f", samples), window, self._rate))])

    def part(self, part: "array[float]") -> Line:
        """`line` of at most a window."""
        spec, room = self._spec, self._sound.shape[-1]
        padded = part.tobytes() + bytes(4 * (room - len(part)))
        self._run({self._sound.name: Array("f32", self._sound.shape, padded)}, LISTEN)
        tokens = list(spec.start)
        if spec.languages:
            number = values_of(self._step(tokens)[LANGUAGE], "i")[0]
            tokens.append(spec.languages[number])
        tokens += spec.after
        begun = len(tokens)
        scores: List[float] = []
        while len(tokens) < self._tokens[-1].shape[-1]:
            made = self._step(tokens)
            likely = zip(values_of(made[CANDIDATES], "i"), values_of(made[SCORES], "f"))
            held = spec.held if len(tokens) == begun else ()
            token, score = next(each for each in likely if each[0] not in held)
            if token in spec.ends:
                break
            tokens.append(token)
            scores.append(score)
        said = b"".join(map(self._bpe.bytes_of, tokens[begun:]))
        text = " ".join(said.decode("utf-8", "replace").split())
        return Line(text, sum(scores) / len(scores) if scores else 0.0)

    def _step(self, tokens: Sequence[int]) -> Mapping[str, Any]:
        """What follows the last token, by the shortest decoder that takes so many."""
        spec = next(s for s in self._tokens if s.shape[-1] >= len(tokens))
        room = spec.shape[-1]
        code = BY_NAME[spec.dtype].code
        given = struct.pack(f"<{room}{code}", *tokens, *[0] * (room - len(tokens)))
        at = struct.pack("<i", len(tokens) - 1)
        inputs = {spec.name: Array(spec.dtype, spec.shape, given), POSITION: Array("s32", (1,), at)}
        return self._run(inputs, WRITE)


def joined(lines: Sequence[Line]) -> Line:
    """The text of all parts of a sound."""
    found = [line for line in lines if line.text]
    score = sum(line.score for line in found) / len(found) if found else 0.0
    return Line(" ".join(line.text for line in found), score)


def is_dictation(task: Optional[TaskSpec], variants: Sequence[HasSignature]) -> bool:
    """Whether a release has an encoder and a decoder for Dictation."""
    names = (LISTEN, WRITE)
    return task is not None and task.kind == TRANSCRIBE and names_of(variants) == names


def parts(sound: "array[float]", window: int, rate: int) -> Iterator["array[float]"]:
    """Parts of at most a window: where more follows, cut at the quietest tenth of a second in the
    last fifth of the window."""
    start, step = 0, max(rate // _QUIET, 1)
    while len(sound) - start > window:
        places = range(start + window - window // _SOUGHT, start + window - step + 1, step)

        def energy(at: int) -> float:
            some = sound[at : at + step]
            return math.fsum(map(mul, some, some))

        end = min(places, key=energy) + step // 2 if places else start + window
        yield sound[start:end]
        start = end
    if start < len(sound):
        yield sound[start:]
