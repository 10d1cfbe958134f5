"""Continues texts with a language model: one token at a time, each chosen from the most likely."""

from __future__ import annotations

import codecs
import math
import random
import threading
import time
from typing import Any, Callable, Iterator, List, Sequence, Tuple

from edgekit.device.runtime.agent.language import Language
from edgekit.device.runtime.agent.strict import bad, each, integer, keys_of, number
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.record import Record

TOKENS, POSITION, SCORES, CANDIDATES = "tokens", "position", "scores", "candidates"
MOST_CANDIDATES = 64  # that a model gives, the most likely first
STOP, LENGTH, CONTEXT = "stop", "length", "context"
_MOST_STOPS, _MOST_STOP = 16, 256
_SILENCE = 1.0  # seconds without a piece

# Computes the scores and numbers of the most likely tokens behind some from a position on.
Step = Callable[[Sequence[int], int], Tuple[Sequence[float], Sequence[int]]]


class Sampling(Record):
    """How tokens are chosen: the most likely, or at random if `temperature` is above 0, from the
    `top_k` most likely, and of these from the fewest that together have the probability `top_p`.

    Equal seeds give equal texts. A text ends before any of `stop`, after `most` tokens, or, if that
    is 0, where the context is full.
    """

    most: int = 0
    temperature: float = 0.0
    top_k: int = 40
    top_p: float = 1.0
    seed: int = 0
    stop: Tuple[str, ...] = ()


def sampling_of(raw: object, where: str) -> Sampling:
    """Checks options of a caller: those that are missing have their defaults. InputError."""
    given = keys_of(raw, where, (), Sampling.field_names)
    keys = {**{n: getattr(Sampling(), n) for n in Sampling.field_names}, **given}
    made = Sampling(
        integer(keys["most"], f"{where}.max_tokens"),
        number(keys["temperature"], f"{where}.temperature"),
        integer(keys["top_k"], f"{where}.top_k", 1, MOST_CANDIDATES),
        number(keys["top_p"], f"{where}.top_p"),
        integer(keys["seed"], f"{where}.seed", -(1 << 63), 1 << 64),
        each(keys["stop"], f"{where}.stop", _stop_word),
    )
    if not 0 <= made.temperature <= 100:
        raise bad(f"{where}.temperature", "a number from 0 to 100", made.temperature)
    if not 0 < made.top_p <= 1:
        raise bad(f"{where}.top_p", "a number above 0, at most 1", made.top_p)
    if len(made.stop) > _MOST_STOPS:
        raise bad(f"{where}.stop", f"at most {_MOST_STOPS} texts", len(made.stop))
    return made


def _stop_word(raw: object, where: str) -> str:
    if not isinstance(raw, str) or not 0 < len(raw) <= _MOST_STOP:
        raise bad(where, f"a text of 1 to {_MOST_STOP} characters", repr(raw))
    return raw


class Generator:
    """The texts of one model. Its cache stays between them: the tokens with which a prompt begins
    like the last one are not computed again. One text at a time; others wait."""

    def __init__(
        self,
        language: Language,
        step: Step,
        sizes: Sequence[int] = (1,),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`sizes`: how many tokens a step can take, in descending order down to 1. `clock`: of
        seconds."""
        self.language, self.clock = language, clock
        self._step, self._sizes = step, sizes
        self._kept: List[int] = []  # the tokens in the cache
        self.busy = threading.Lock()

    def reply(self, tokens: Sequence[int], sampling: Sampling) -> Reply:
        """The continuation of a prompt, which has not begun. InputError for one that is empty, or
        does not fit."""
        context = self.language.spec.context
        if not tokens:
            raise InputError("expected a prompt with at least one token, found an empty one")
        if len(tokens) > context:
            raise InputError(
                f"expected a prompt of 1 to {context} tokens, which the model keeps, found "
                f"{len(tokens)}; shorten it, or compile the model with a larger --context"
            )
        return Reply(self, tuple(tokens), sampling)

    def forget(self) -> None:
        """Begins anew, as after a reset of the model's state."""
        self._kept = []

    def read(self, tokens: Sequence[int]) -> Iterator[Tuple[Sequence[float], Sequence[int]]]:
        """Computes what follows `tokens`, of which only those that are not kept are computed: the
        candidates after each step."""
        same = 0
        for a, b in zip(self._kept, tokens[:-1]):
            if a != b:
                break
            same += 1
        del self._kept[same:]
        while len(self._kept) < len(tokens):
            at, left = len(self._kept), tokens[len(self._kept) :]
            size = next(size for size in self._sizes if self._suits(size, len(left), at))
            some = [*left[:size]] if size <= len(left) else [*left[:-1]]
            more = [left[-1]] * (size - len(some))  # of which later steps overwrite what is kept
            found = self._step([*some, *more], at)
            self._kept += some
            yield found

    def _suits(self, size: int, left: int, at: int) -> bool:
        """Whether a step takes that many of `left` tokens, of which `at` precede. It may take fewer
        than its size, but not the last one, since its scores are of the last of all."""
        return size <= left or (size < 2 * (left - 1) and at + size <= self.language.spec.context)


class Reply:
    """A continuation: iterate over it once for its text, piece by piece as it is computed. Pieces
    are empty where there was none for a second.

    `finish` is empty until it ended: STOP at the model's own end or a stop word, LENGTH at the
    limit that was asked for, CONTEXT where nothing more fits. `prompt_tokens` and `tokens` count
    those before and of the text; `prompt_seconds` and `seconds` are what they took.
    """

    def __init__(self, generator: Generator, prompt: Tuple[int, ...], sampling: Sampling) -> None:
        self._generator, self._prompt, self._sampling = generator, prompt, sampling
        self.finish = ""
        self.prompt_tokens, self.tokens = len(prompt), 0
        self.prompt_seconds = self.seconds = 0.0
        self._stops = _Stops(sampling.stop)
        self._shown = 0.0  # when something was passed on

    def __iter__(self) -> Iterator[str]:
        generator, clock = self._generator, self._generator.clock
        with generator.busy:
            begun = self._shown = clock()
            for made in generator.read(self._prompt):
                found = made
                self.prompt_seconds = clock() - begun
                if self._is_due():
                    yield ""
            yield from self._texts(found)

    def _texts(self, found: Tuple[Sequence[float], Sequence[int]]) -> Iterator[str]:
        generator, sampling, clock = self._generator, self._sampling, self._generator.clock
        language, chance = generator.language, random.Random(sampling.seed)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        tokens, stops = list(self._prompt), self._stops
        begun = clock()
        while not self.finish:
            token = choose(found[0], found[1], sampling, chance)
            if token in language.spec.ends:
                self.finish = STOP
                break
            self.tokens += 1
            tokens.append(token)
            text = stops.pass_on(decoder.decode(language.bpe.bytes_of(token)))
            if stops.found:
                self.finish = STOP
            elif self.tokens == sampling.most:
                self.finish = LENGTH
            elif len(tokens) > language.spec.context:
                self.finish = CONTEXT
            self.seconds = clock() - begun
            if self._is_due(text):
                yield text
            if not self.finish:
                (found,) = generator.read(tokens)
        self.seconds = clock() - begun
        rest = stops.rest(decoder.decode(b"", final=True))
        if rest:
            yield rest

    def _is_due(self, text: str = "") -> bool:
        """Whether to pass `text` on: if there is some, or to show that the work goes on."""
        now = self._generator.clock()
        due = bool(text) or now - self._shown >= _SILENCE
        self._shown = now if due else self._shown
        return due


def choose(
    scores: Sequence[float], numbers: Sequence[int], sampling: Sampling, chance: random.Random
) -> int:
    """One of the tokens `numbers`, whose `scores` (logits) descend."""
    if sampling.temperature <= 0:
        return numbers[0]
    kept = scores[: sampling.top_k]
    weights = [math.exp((score - kept[0]) / sampling.temperature) for score in kept]
    wanted, total, count = sampling.top_p * sum(weights), 0.0, 0
    while count < len(weights) and (count == 0 or total < wanted):
        total += weights[count]
        count += 1
    drawn = chance.random() * total
    for i in range(count - 1):
        drawn -= weights[i]
        if drawn < 0:
            return numbers[i]
    return numbers[count - 1]


class _Stops:
    """Passes a text on up to the first stop word. Its end is held back while it may begin one."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words, self._held = words, ""
        self.found = False

    def pass_on(self, text: str) -> str:
        whole = self._held + text
        places = [at for at in map(whole.find, self._words) if at >= 0]
        if places:
            self.found, self._held = True, ""
            return whole[: min(places)]
        keep = 0
        for word in self._words:
            for size in range(min(len(word) - 1, len(whole)), keep, -1):
                if whole.endswith(word[:size]):
                    keep = size
                    break
        self._held = whole[len(whole) - keep :]
        return whole[: len(whole) - keep]

    def rest(self, text: str) -> str:
        """What was held back, at the end of a text without a stop word."""
        return "" if self.found else self.pass_on(text) + self._held


def prompt_of(language: Language, prompt: Any) -> List[int]:
    """The tokens of a text to continue, or of the messages of a conversation to answer."""
    if isinstance(prompt, str):
        return language.prompt(prompt)
    if isinstance(prompt, (list, tuple)):
        return language.chat(prompt)
    raise InputError(f"expected a text, or a list of messages, found {type(prompt).__name__}")
