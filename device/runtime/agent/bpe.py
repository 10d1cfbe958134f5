"""Splits texts into the tokens of a language model, and joins tokens to texts: byte-pair encoding.

Adjacent pieces that the model knows as one are joined, the pair of the lowest rank first (Sennrich
et al., 2016). Pieces are runs of bytes within words, as GPT-2 has them (Radford et al., 2019), or
runs of characters in which spaces are written as a mark (Kudo and Richardson, 2018). Tokenizers
that split by the probabilities of pieces instead share the rest.
"""

from __future__ import annotations

import base64
import heapq
import re
import unicodedata
from array import array
from bisect import bisect_left
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from edgekit.device.runtime.agent.added import AddedTokens
from edgekit.device.runtime.agent.strict import bad, integer, keys_of
from edgekit.device.runtime.agent.unigram import (
    STEPS,
    CharacterMap,
    Unigram,
    marked_words,
    normalized,
)
from edgekit.device.runtime.agent.words import SPLITS, Words, bytes_of_letters, letters_of_bytes
from edgekit.device.runtime.record import Record

BYTES, MARKS, UNIGRAM = "bytes", "marks", "unigram"
NEVER, FIRST, ALWAYS = "never", "first", "always"
SPACE = "\u2581"  # the mark for a space
_MOST = 1 << 22  # of pieces and merges
_BYTE = re.compile("<0x([0-9A-F]{2})>")

# How words are split where spaces are marks, see `marked_words`; "text" leaves them whole.
_OF_MARKS = ("none", "marks", "spaces", "text")


class BpeSpec(Record):
    """`pieces` are the tokens by number. `kind` is BYTES, with `split` a key of SPLITS, or MARKS or
    UNIGRAM, with `split` one of _OF_MARKS; UNIGRAM splits by `scores`.

    Pairs of pieces are joined in the order of `merges`, numbers of left and right pieces in turn,
    or, if that is empty, where both are a piece that has a score, the highest of `scores` first.
    `special` are found in texts as they are; `hidden` of them are not shown. `before` are the
    tokens before a text. `space` says where one is put before a text: NEVER, FIRST, ALWAYS (also
    behind special tokens). `whole`: a word that is a piece is not split. `unknown` stands for
    characters without pieces or bytes, -1 if these are left out, and once for several if `fused`.
    `composed`: texts are first brought into Unicode's form NFC; others go through `steps`, of which
    some replace `characters`, a CharacterMap in base64. Spaces before the special tokens `left` and
    behind `right` belong to these; `single` are no parts of words; `normalized` are found in texts
    after the steps, and go through them as well.
    """

    kind: str
    split: str
    pieces: Tuple[str, ...]
    merges: Tuple[int, ...]
    scores: Tuple[float, ...]
    special: Tuple[int, ...]
    hidden: Tuple[int, ...]
    before: Tuple[int, ...]
    space: str = NEVER
    whole: bool = False
    unknown: int = -1
    composed: bool = False
    steps: Tuple[Tuple[str, ...], ...] = ()
    characters: str = ""
    left: Tuple[int, ...] = ()
    right: Tuple[int, ...] = ()
    single: Tuple[int, ...] = ()
    normalized: Tuple[int, ...] = ()
    fused: bool = False


_OPTIONAL = {
    "steps": [], "characters": "", "left": [], "right": [], "single": [], "normalized": [],
    "fused": False,
}  # fmt: skip
_NUMBERS = ("merges", "special", "hidden", "before", "left", "right", "single", "normalized")


def bpe_of(raw: object, where: str) -> BpeSpec:
    """Checks the part of a release's file."""
    more = len(_OPTIONAL)
    given = keys_of(raw, where, BpeSpec.field_names[:-more], BpeSpec.field_names[-more:])
    keys = {**_OPTIONAL, **given}
    splits = _OF_MARKS if keys["kind"] in (MARKS, UNIGRAM) else (*SPLITS,)
    for name, known in (("kind", (BYTES, MARKS, UNIGRAM)), ("split", splits),
                        ("space", (NEVER, FIRST, ALWAYS))):  # fmt: skip
        if keys[name] not in known:
            raise bad(f"{where}.{name}", " or ".join(known), keys[name])
    pieces = _all(keys["pieces"], f"{where}.pieces", str)
    last = len(pieces) - 1
    for name in _NUMBERS:
        for number in _all(keys[name], f"{where}.{name}", int):
            integer(number, f"{where}.{name}", 0, last)
    scores = _all(keys["scores"], f"{where}.scores", float)
    steps = tuple(_step_of(step, where) for step in _all(keys["steps"], f"{where}.steps", list))
    if keys["kind"] == UNIGRAM and len(scores) != len(pieces):
        raise bad(where, "a score for each piece", len(scores))
    _characters(keys["characters"], f"{where}.characters")
    if len(keys["merges"]) % 2 or len(scores) not in (0, len(pieces)):
        raise bad(where, "pairs of merges, and a score for each piece", "others")
    for name in ("whole", "composed", "fused"):
        if not isinstance(keys[name], bool):
            raise bad(f"{where}.{name}", "true or false", keys[name])
    return BpeSpec(
        keys["kind"], keys["split"], pieces, tuple(keys["merges"]), scores,
        tuple(keys["special"]), tuple(keys["hidden"]), tuple(keys["before"]), keys["space"],
        keys["whole"], integer(keys["unknown"], f"{where}.unknown", -1, last),
        keys["composed"], steps, keys["characters"], tuple(keys["left"]), tuple(keys["right"]),
        tuple(keys["single"]), tuple(keys["normalized"]), keys["fused"],
    )  # fmt: skip


def _characters(raw: object, where: str) -> Optional[CharacterMap]:
    """None for an empty text."""
    if not isinstance(raw, str):
        raise bad(where, "a text in base64", type(raw).__name__)
    try:
        return CharacterMap(base64.b64decode(raw, validate=True), where) if raw else None
    except ValueError:
        raise bad(where, "a text in base64", "others") from None


def _step_of(raw: List[Any], where: str) -> Tuple[str, ...]:
    made = _all(raw, f"{where}.steps", str)
    if not made or STEPS.get(made[0]) != len(made) - 1:
        raise bad(f"{where}.steps", f"one of {', '.join(STEPS)} with what it takes", made[:1])
    if made[0] == "runs" and (not made[1] or not re.fullmatch("[1-9]", made[3])):
        raise bad(f"{where}.steps", "a text and a number from 1 to 9", made[1:])
    return made


def _all(raw: Any, where: str, kind: type) -> Tuple[Any, ...]:
    """A list with entries of one type, which may be long."""
    if not isinstance(raw, list) or len(raw) > _MOST or not all(type(v) is kind for v in raw):
        raise bad(
            where, f"a list of at most {_MOST} entries of {kind.__name__}", type(raw).__name__
        )
    return tuple(raw)


class Bpe:
    """`spec` prepared for look-ups."""

    def __init__(self, spec: BpeSpec) -> None:
        self._spec = spec
        self._hidden = frozenset(spec.hidden)
        # Pieces that words are not split into.
        apart = frozenset(spec.special if spec.kind == UNIGRAM else (*spec.hidden, *spec.single))
        self._numbers: Dict[str, int] = {}
        for number, piece in enumerate(spec.pieces):
            if number not in apart:
                self._numbers.setdefault(piece, number)
        self._pairs, self._ranks = _ranked(spec.merges, len(spec.pieces))
        self._characters = _characters(spec.characters, "characters")
        after = frozenset(spec.normalized)
        self._added = self._found_among(n for n in spec.special if n not in after)
        self._plain = self._found_among(
            n for n in spec.special if n not in after and n not in self._hidden
        )
        self._normalized = self._found_among(spec.normalized)
        self._words = Words(spec.split if spec.kind == BYTES else "none")
        unigram = (
            Unigram(self._numbers, spec.scores, self._of_unknown) if spec.kind == UNIGRAM else None
        )
        self._split_word = unigram.pieces if unigram else self._joined
        self._known: Dict[str, Tuple[int, ...]] = {}  # words that were split before

    def _found_among(self, tokens: Iterable[int]) -> AddedTokens:
        spec, numbers = self._spec, dict[str, int]()
        for number in tokens:
            piece = spec.pieces[number]
            if number in spec.normalized:
                piece = self._after_steps(piece)
            numbers.setdefault(piece, number)
        return AddedTokens(numbers, spec.left, spec.right, spec.single)

    def tokens(self, value: str) -> List[int]:
        """The numbers of a text's tokens, without those before it."""
        return self.tokens_of([(value, True)])

    def tokens_of(self, parts: Sequence[Tuple[str, bool]]) -> List[int]:
        """The tokens of a text that consists of `parts`, each with whether special tokens are found
        in it: what a user wrote must not have any that are hidden or in other parts."""
        text = "".join(value for value, _ in parts)
        cuts: List[Tuple[int, int, int]] = []
        at = 0
        for value, special in parts:
            if special:
                cuts += self._added.found(text, at, at + len(value))
            at += len(value)
        own = {number for *_, number in cuts if self._spec.pieces[number].strip()}
        for value, special in reversed(parts):
            at -= len(value)
            if not special:
                others = self._plain.found(text, at, at + len(value))
                cuts += (each for each in others if each[2] not in own)
        found: List[int] = []
        end = 0
        for start, stop, number in [*sorted(cuts), (len(text), len(text), -1)]:
            if start > end:
                found += self._of_plain(text[end:start], first=end == 0)
            if number >= 0:
                found.append(number)
            end = max(end, stop)
        return found

    def bytes_of(self, number: int) -> bytes:
        """What a token adds to a text, in UTF-8: not always whole characters."""
        if number in self._hidden or not 0 <= number < len(self._spec.pieces):
            return b""
        piece = self._spec.pieces[number]
        if self._spec.kind == BYTES and number not in self._spec.special:
            known = bytes_of_letters()
            return bytes(known[c] for c in piece if c in known)
        if self._spec.kind == BYTES:
            return piece.encode("utf-8", "replace")
        byte = _BYTE.fullmatch(piece)
        if byte:
            return bytes([int(byte.group(1), 16)])
        return piece.replace(SPACE, " ").encode("utf-8", "replace")

    def _of_plain(self, text: str, first: bool) -> Iterator[int]:
        """The tokens of a text between special ones."""
        text, end = self._after_steps(text), 0
        for start, stop, number in [*self._normalized.found(text), (len(text), len(text), -1)]:
            if start > end:
                yield from self._of_part(text[end:start], first and end == 0)
            if number >= 0:
                yield number
            end = stop

    def _after_steps(self, text: str) -> str:
        if self._spec.composed:
            text = unicodedata.normalize("NFC", text)
        return normalized(text, self._spec.steps, self._characters)

    def _of_part(self, text: str, first: bool) -> Iterator[int]:
        spec = self._spec
        begin = spec.space == ALWAYS or (spec.space == FIRST and first)
        if spec.kind == UNIGRAM or spec.split not in SPLITS:
            for word in marked_words(text, SPACE, spec.split, begin):
                yield from self._known_pieces(word)
            return
        text = f" {text}" if begin else text
        if spec.kind == MARKS:
            yield from self._known_pieces(text.replace(" ", SPACE))
            return
        letters = letters_of_bytes()
        for word in self._words.of_text(text):
            of_bytes = "".join(letters[byte] for byte in word.encode("utf-8", "replace"))
            for part in self._words.of_letters(of_bytes):
                yield from self._known_pieces(part)

    def _known_pieces(self, word: str) -> Tuple[int, ...]:
        if word not in self._known:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            whole = self._numbers.get(word) if self._spec.whole else None
            self._known[word] = (*self._split_word(word),) if whole is None else (whole,)
        return self._known[word]

    def _of_unknown(self, text: str) -> List[int]:
        """The bytes of characters without pieces, or one token for all of them."""
        names = [f"<0x{byte:02X}>" for byte in text.encode("utf-8", "replace")]
        numbers = [self._numbers.get(name, -1) for name in names]
        if -1 not in numbers:
            return numbers
        return [self._spec.unknown] if self._spec.unknown >= 0 else []

    def _joined(self, word: str) -> List[int]:
        """The pieces of a word, after all merges."""
        numbers: List[Optional[int]] = []
        unknown = False
        for c in word:
            own = self._of_character(c)
            alone = own == [self._spec.unknown] and self._spec.fused
            if not (alone and unknown):
                numbers += own
            unknown = alone
        if len(numbers) == 1:
            return [n for n in numbers if n is not None]
        before = list(range(-1, len(numbers) - 1))
        after = list(range(1, len(numbers) + 1))
        waiting: List[Tuple[float, int, int, int, int]] = []

        def offer(left: int) -> None:
            right = after[left] if left >= 0 else len(numbers)
            if left >= 0 and right < len(numbers):
                a, b = numbers[left], numbers[right]
                found = None if a is None or b is None else self._merge(a, b)
                if found is not None and a is not None and b is not None:
                    heapq.heappush(waiting, (found[0], left, found[1], a, b))

        for left in range(len(numbers) - 1):
            offer(left)
        while waiting:
            _, left, made, a, b = heapq.heappop(waiting)
            right = after[left]
            if numbers[left] != a or right >= len(numbers) or numbers[right] != b:
                continue  # one of them was joined meanwhile
            numbers[left], numbers[right] = made, None
            after[left] = after[right]
            if after[left] < len(numbers):
                before[after[left]] = left
            offer(before[left])
            offer(left)
        return [n for n in numbers if n is not None]

    def _merge(self, left: int, right: int) -> Optional[Tuple[float, int]]:
        """The rank of a pair, and what it becomes; None if it is not joined."""
        pieces, rank = self._spec.pieces, 0.0
        if self._spec.merges:
            pair = left * len(pieces) + right
            at = bisect_left(self._pairs, pair)
            if at == len(self._pairs) or self._pairs[at] != pair:
                return None
            rank = self._ranks[at]
        elif not self._spec.scores:
            return None
        made = self._numbers.get(pieces[left] + pieces[right])
        if made is None:
            return None
        return rank if self._spec.merges else -self._spec.scores[made], made

    def _of_character(self, c: str) -> List[Optional[int]]:
        found = self._numbers.get(c)
        if found is not None:
            return [found]
        if self._spec.kind == MARKS:
            names = [f"<0x{byte:02X}>" for byte in c.encode("utf-8", "replace")]
            numbers = [self._numbers.get(name) for name in names]
            if None not in numbers:
                return numbers
        return [self._spec.unknown] if self._spec.unknown >= 0 else []


_MOST_KNOWN = 1 << 14


def _ranked(merges: Sequence[int], count: int) -> Tuple["array[int]", "array[int]"]:
    """The pairs in order, each as one number, and their ranks: a dictionary of them would take
    twenty times as much memory, and models have up to half a million."""
    pairs = [a * count + b for a, b in zip(merges[::2], merges[1::2])]
    order = sorted(range(len(pairs)), key=pairs.__getitem__)
    return array("Q", (pairs[rank] for rank in order)), array("L", order)
