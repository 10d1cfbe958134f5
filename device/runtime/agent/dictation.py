"""Speech to text by an encoder of sound and a decoder that continues a text with the most likely
token (Radford et al., 2022, on Whisper)."""

from __future__ import annotations

import math
import struct
from array import array
from operator import itemgetter, mul
from typing import Any, Callable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

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
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.record import Record

SCHEMA = "edgekit.dictation/1"
LANGUAGE = "language"  # output: number of the language in DictationSpec.languages
_QUIET = 10  # parts of a second, in the quietest of which a long sound is cut
_SOUGHT = 5  # a fifth of a window is searched for it

TIMES = "times"  # output: the probabilities of the tokens DictationSpec.ends and of all times
STEP, LATEST = 0.02, 51  # seconds; the first text begins before so many steps

Written = List[Tuple[int, float]]  # tokens with their probabilities
# The token behind those of the text so far, by the outputs of WRITE.
Next = Callable[[Sequence[int], Mapping[str, Any]], Tuple[int, float]]
# Runs the inputs of a signature; the values of outputs as Array, or as memoryviews.
Run = Callable[[Mapping[str, Array], str], Mapping[str, Any]]


class DictationSpec(Record):
    """A text begins with the tokens `start`, the token of the language (the best of `languages`, if
    there are any) and those of `after`. It ends before any of `ends`; none of `held` is its first
    token. Tokens from number `times` are times in steps of STEP; 0 if there are none. If it is
    `cached`, each token is computed, in order: the decoder keeps what it knows of those before."""

    tokenizer: BpeSpec
    ends: Tuple[int, ...]
    start: Tuple[int, ...]
    languages: Tuple[int, ...]
    after: Tuple[int, ...]
    held: Tuple[int, ...]
    times: int = 0
    cached: bool = False


class Subtitle(NamedTuple):
    """The text spoken from `start` to `end`, in seconds; `score` as of a Line."""

    text: str
    start: float
    end: float
    score: float


def dictation_of(data: bytes, where: str) -> DictationSpec:
    """Checks the file of a release."""
    optional = ("times", "cached")
    required = tuple(name for name in DictationSpec.field_names if name not in optional)
    keys = file_keys(data, where, SCHEMA, required, optional)
    tokenizer = bpe_of(keys["tokenizer"], f"{where}.tokenizer")

    def tokens(name: str) -> Tuple[int, ...]:
        given = keys[name]
        if not isinstance(given, list):
            raise bad(f"{where}.{name}", "a list", type(given).__name__)
        return tuple(integer(each, f"{where}.{name}", 0, 1 << 24) for each in given)

    ends, start, languages, after, held = map(
        tokens, ("ends", "start", "languages", "after", "held")
    )
    times = integer(keys.get("times", 0), f"{where}.times", 0, 1 << 24)
    cached = keys.get("cached", False)
    if type(cached) is not bool:
        raise bad(f"{where}.cached", "true or false", cached)
    made = DictationSpec(tokenizer, ends, start, languages, after, held, times, cached)
    if not made.start or not made.ends:
        raise bad(where, "tokens with which texts start and end", "none")
    return made


class Dictation:
    """Transcribes speech by a model with the signatures LISTEN and WRITE."""

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
        self._known = 0  # tokens in the decoder's cache

    def line(self, samples: Sequence[float]) -> Line:
        """The text of `samples`, -1 to 1, of one channel, and the mean probability of its
        tokens. A text that is too long for the decoder ends where it is full."""
        window = self._sound.shape[-1]
        return joined([*map(self.part, parts(array("f", samples), window, self._rate))])

    def part(self, part: "array[float]") -> Line:
        """`line` of at most a window."""
        found = self._written(part, self._spec.after, self._next)
        return Line(self._text(found), _mean(found))

    def subtitles(self, samples: Sequence[float]) -> List[Subtitle]:
        """The text spoken in `samples`, and when. InputError for a model without times."""
        if not self._spec.times:
            raise InputError(
                "expected a model with times among its tokens, as Whisper's, found another; leave "
                "the timestamps out"
            )
        found: List[Subtitle] = []
        begun = 0
        after = [token for token in self._spec.after if token != self._spec.times - 1]
        for part in parts(array("f", samples), self._sound.shape[-1], self._rate):
            made = self._written(part, after, self._next_timed)
            lasts = len(part) / self._rate
            found += self._timed(made, begun / self._rate, lasts)
            begun += len(part)
        return found

    def _written(self, part: "array[float]", after: Sequence[int], following: Next) -> Written:
        """The tokens of at most a window, with their probabilities."""
        spec, room = self._spec, self._sound.shape[-1]
        padded = part.tobytes() + bytes(4 * (room - len(part)))
        self._run({self._sound.name: Array("f32", self._sound.shape, padded)}, LISTEN)
        self._known = 0
        tokens = list(spec.start)
        if spec.languages:
            number = values_of(self._step(tokens)[LANGUAGE], "i")[0]
            tokens.append(spec.languages[number])
        tokens += after
        found: Written = []
        while len(tokens) < self._tokens[-1].shape[-1]:
            token, score = following([n for n, _ in found], self._step(tokens))
            if token in spec.ends:
                break
            tokens.append(token)
            found.append((token, score))
        return found

    def _next(self, before: Sequence[int], made: Mapping[str, Any]) -> Tuple[int, float]:
        """The most likely token behind those of a text."""
        held = () if before else self._spec.held
        return next(each for each in _likely(made) if each[0] not in held)

    def _next_timed(self, before: Sequence[int], made: Mapping[str, Any]) -> Tuple[int, float]:
        """The same with times, which come in pairs, never go back, and precede and follow each
        text (as the program of Whisper's authors has it)."""
        first, ends = self._spec.times, self._spec.ends
        shares = values_of(made[TIMES], "f")
        over, times = list(zip(ends, shares)), shares[len(ends) :]
        stamps = [token - first for token in before if token >= first]
        follows = bool(before) and before[-1] >= first
        paired = len(before) < 2 or before[-2] >= first
        low = stamps[-1] + (not (follows and not paired)) if stamps else 0
        high = len(times) if before else min(LATEST, len(times))
        known = {} if follows and paired else {n + first: times[n] for n in range(low, high)}
        texts = [] if not before else over if follows and not paired else _likely(made)
        best = max(texts, key=itemgetter(1), default=(ends[0], -1.0))
        if known and sum(known.values()) > best[1]:
            return max(known.items(), key=itemgetter(1))
        return best

    def _timed(self, made: Written, begun: float, lasts: float) -> List[Subtitle]:
        """The texts between times, of a part of a sound that begins at `begun`."""
        found: List[Subtitle] = []
        text: Written = []
        start = 0.0
        for token, score in [*made, (self._spec.times + round(lasts / STEP), 0.0)]:
            if token < self._spec.times:
                text.append((token, score))
                continue
            at = min((token - self._spec.times) * STEP, lasts)
            if said := self._text(text):
                found.append(Subtitle(said, begun + start, begun + at, _mean(text)))
            text, start = [], at
        return found

    def _text(self, made: Written) -> str:
        said = b"".join(self._bpe.bytes_of(token) for token, _ in made)
        return " ".join(said.decode("utf-8", "replace").split())

    def _step(self, tokens: Sequence[int]) -> Mapping[str, Any]:
        """What follows the last token, by the shortest decoder that takes so many."""
        while self._spec.cached and self._known < len(tokens) - 1:
            self._known += 1
            self._computed(tokens[: self._known])
        self._known = len(tokens)
        return self._computed(tokens)

    def _computed(self, tokens: Sequence[int]) -> Mapping[str, Any]:
        spec = next(s for s in self._tokens if s.shape[-1] >= len(tokens))
        room = spec.shape[-1]
        code = BY_NAME[spec.dtype].code
        given = struct.pack(f"<{room}{code}", *tokens, *[0] * (room - len(tokens)))
        at = struct.pack("<i", len(tokens) - 1)
        inputs = {spec.name: Array(spec.dtype, spec.shape, given), POSITION: Array("s32", (1,), at)}
        return self._run(inputs, WRITE)


def _likely(made: Mapping[str, Any]) -> Written:
    """The most likely tokens of the text, best first."""
    return list(zip(values_of(made[CANDIDATES], "i"), values_of(made[SCORES], "f")))


def _mean(made: Written) -> float:
    return sum(score for _, score in made) / len(made) if made else 0.0


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
