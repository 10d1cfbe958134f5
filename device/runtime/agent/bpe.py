"""Splits texts into the tokens of a language model, and joins tokens to texts: byte-pair encoding.

Adjacent pieces that the model knows as one are joined, the pair of the lowest rank first (Sennrich
et al., 2016). Pieces are runs of bytes within words, as GPT-2 has them (Radford et al., 2019), or
runs of characters in which spaces are written as a mark (Kudo and Richardson, 2018). Tokenizers
that split by the probabilities of pieces instead share the rest.
"""

from __future__ import annotations

import base64
import functools
import heapq
import re
import unicodedata
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from edgekit.device.runtime.agent.strict import bad, integer, keys_of
from edgekit.device.runtime.agent.unigram import (
    STEPS,
    CharacterMap,
    Unigram,
    marked_words,
    normalized,
)
from edgekit.device.runtime.record import Record

BYTES, MARKS, UNIGRAM = "bytes", "marks", "unigram"
NEVER, FIRST, ALWAYS = "never", "first", "always"
SPACE = "\u2581"  # the mark for a space
_MOST = 1 << 22  # of pieces and merges
_BYTE = re.compile("<0x([0-9A-F]{2})>")

# A text is split by patterns that see each letter beyond ASCII as one letter, and so forth.
_LETTER, _NUMBER, _SPACE, _OTHER = "a", "0", "\t", "!"
_CLASSES = {"L": _LETTER, "N": _NUMBER}
_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_GPT2 = (rf"{_CONTRACTIONS}| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+",)
_NEWER = (
    rf"(?i:{_CONTRACTIONS})|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]{{1,%s}}|"
    r" ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)  # fmt: skip
# What texts are split by, one pattern after the other, each within the parts of the one before.
SPLITS: Dict[str, Tuple[str, ...]] = {
    "none": (),
    "gpt2": _GPT2,
    "digits": ("[0-9]", *_GPT2),
    "llama3": (_NEWER % "3",),
    "qwen2": (_NEWER % "1",),
}
# Of Unicode's property White_Space; what Python takes for spaces besides separates no tokens.
_SPACES = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008"
    "\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_OF_UNIGRAM = ("none", "marks", "spaces")  # see `marked_words`


class BpeSpec(Record):
    """`pieces` are the tokens by number. `kind` is BYTES or MARKS; `split` a key of SPLITS.
    UNIGRAM splits by `scores`, and by one of _OF_UNIGRAM before.

    Pairs of pieces are joined in the order of `merges`, numbers of left and right pieces in turn,
    or, if that is empty, where both are a piece that has a score, the highest of `scores` first.
    `special` are found in texts as they are; `hidden` of them are not shown. `before` are the
    tokens before a text. `space` says where one is put before a text: NEVER, FIRST, ALWAYS (also
    behind special tokens). `whole`: a word that is a piece is not split. `unknown` stands for
    characters without pieces or bytes, -1 if these are left out. `composed`: texts are first
    brought into Unicode's form NFC, or, for UNIGRAM, go through `steps`, of which some
    replace `characters`, a CharacterMap in base64. Spaces before the special tokens `left` and
    behind `right` belong to these.
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


def bpe_of(raw: object, where: str) -> BpeSpec:
    """Checks the part of a release's file."""
    given = keys_of(raw, where, BpeSpec.field_names[:-4], BpeSpec.field_names[-4:])
    keys = {"steps": [], "characters": "", "left": [], "right": [], **given}
    splits = _OF_UNIGRAM if keys["kind"] == UNIGRAM else (*SPLITS,)
    for name, known in (("kind", (BYTES, MARKS, UNIGRAM)), ("split", splits),
                        ("space", (NEVER, FIRST, ALWAYS))):  # fmt: skip
        if keys[name] not in known:
            raise bad(f"{where}.{name}", " or ".join(known), keys[name])
    pieces = _all(keys["pieces"], f"{where}.pieces", str)
    last = len(pieces) - 1
    for name in ("merges", "special", "hidden", "before", "left", "right"):
        for number in _all(keys[name], f"{where}.{name}", int):
            integer(number, f"{where}.{name}", 0, last)
    scores = _all(keys["scores"], f"{where}.scores", float)
    steps = tuple(_step_of(step, where) for step in _all(keys["steps"], f"{where}.steps", list))
    if keys["kind"] == UNIGRAM and len(scores) != len(pieces):
        raise bad(where, "a score for each piece", len(scores))
    _characters(keys["characters"], f"{where}.characters")
    if len(keys["merges"]) % 2 or len(scores) not in (0, len(pieces)):
        raise bad(where, "pairs of merges, and a score for each piece", "others")
    for name in ("whole", "composed"):
        if not isinstance(keys[name], bool):
            raise bad(f"{where}.{name}", "true or false", keys[name])
    return BpeSpec(
        keys["kind"], keys["split"], pieces, tuple(keys["merges"]), scores,
        tuple(keys["special"]), tuple(keys["hidden"]), tuple(keys["before"]), keys["space"],
        keys["whole"], integer(keys["unknown"], f"{where}.unknown", -1, last),
        keys["composed"], steps, keys["characters"], tuple(keys["left"]), tuple(keys["right"]),
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
        self._numbers: Dict[str, int] = {}
        for number, piece in enumerate(spec.pieces):
            self._numbers.setdefault(piece, number)
        pairs = zip(spec.merges[::2], spec.merges[1::2])
        # By both pieces: the rank, and what they become.
        self._ranks: Dict[Tuple[int, int], Tuple[float, int]] = {}
        for rank, (left, right) in enumerate(pairs):
            made = self._numbers.get(spec.pieces[left] + spec.pieces[right])
            if made is not None:
                self._ranks.setdefault((left, right), (rank, made))
        names = sorted((spec.pieces[i] for i in spec.special), key=len, reverse=True)
        self._special = re.compile("({})".format("|".join(map(re.escape, names)) or r"(?!)"))
        patterns = SPLITS[spec.split] if spec.kind != UNIGRAM else ()
        self._splits = [re.compile(pattern, re.ASCII) for pattern in patterns]
        self._characters = _characters(spec.characters, "characters")
        own = {*spec.special}
        plain = {p: n for p, n in self._numbers.items() if n not in own}
        unigram = Unigram(plain, spec.scores, self._of_unknown) if spec.kind == UNIGRAM else None
        self._split_word = unigram.pieces if unigram else self._joined
        self._hidden = frozenset(spec.hidden)
        self._left, self._right = frozenset(spec.left), frozenset(spec.right)
        self._known: Dict[str, Tuple[int, ...]] = {}  # words that were split before

    def tokens(self, value: str) -> List[int]:
        """The numbers of a text's tokens, without those before it."""
        return self.tokens_of([(value, True)])

    def tokens_of(self, parts: Iterable[Tuple[str, bool]]) -> List[int]:
        """The tokens of a text that consists of `parts`, each with whether special tokens are found
        in it: what a user wrote must not have any."""
        found: List[int] = []
        plain: List[str] = []

        def end_plain(following: int = -1) -> None:
            text = "".join(plain)
            plain.clear()
            if found and found[-1] in self._right:  # plain texts have no special tokens
                text = text.lstrip(_SPACES)
            if following in self._left:
                text = text.rstrip(_SPACES)
            if text:
                found.extend(self._of_plain(text, first=not found))

        for value, special in parts:
            for at, part in enumerate(self._special.split(value) if special else [value]):
                if at % 2:
                    number = self._numbers[part]
                    end_plain(number)
                    found.append(number)
                else:
                    plain.append(part)
        end_plain()
        return found

    def bytes_of(self, number: int) -> bytes:
        """What a token adds to a text, in UTF-8: not always whole characters."""
        if number in self._hidden or not 0 <= number < len(self._spec.pieces):
            return b""
        piece = self._spec.pieces[number]
        if self._spec.kind == BYTES and number not in self._spec.special:
            known = _bytes_by_letter()
            return bytes(known[c] for c in piece if c in known)
        byte = _BYTE.fullmatch(piece)
        if byte and self._spec.kind != BYTES:
            return bytes([int(byte.group(1), 16)])
        return piece.replace(SPACE, " ").encode("utf-8", "replace")

    def _of_plain(self, text: str, first: bool) -> Iterator[int]:
        spec = self._spec
        if spec.kind == UNIGRAM:
            text = normalized(text, spec.steps, self._characters)
            begin = spec.space == ALWAYS or (spec.space == FIRST and first)
            for word in marked_words(text, SPACE, spec.split, begin):
                yield from self._known_pieces(word)
            return
        if spec.composed:
            text = unicodedata.normalize("NFC", text)
        if spec.space == ALWAYS or (spec.space == FIRST and first):
            text = f" {text}"
        if spec.kind == MARKS:
            text = text.replace(" ", SPACE)
        for word in self._words(text):
            if spec.kind == BYTES:
                letters = _letters()
                word = "".join(letters[byte] for byte in word.encode("utf-8", "replace"))
            if spec.whole and word in self._numbers:
                yield self._numbers[word]
                continue
            yield from self._known_pieces(word)

    def _known_pieces(self, word: str) -> Tuple[int, ...]:
        if word not in self._known:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            self._known[word] = tuple(self._split_word(word))
        return self._known[word]

    def _of_unknown(self, text: str) -> List[int]:
        """The bytes of characters without pieces, or one token for all of them."""
        names = [f"<0x{byte:02X}>" for byte in text.encode("utf-8", "replace")]
        numbers = [self._numbers.get(name, -1) for name in names]
        if -1 not in numbers:
            return numbers
        return [self._spec.unknown] if self._spec.unknown >= 0 else []

    def _words(self, text: str) -> Iterable[str]:
        words = [text]
        for pattern in self._splits:
            words = [part for word in words for part in _split(word, pattern)]
        return words

    def _joined(self, word: str) -> List[int]:
        """The pieces of a word, after all merges."""
        numbers: List[Optional[int]] = []
        for c in word:
            numbers += self._of_character(c)
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
        if self._spec.merges:
            return self._ranks.get((left, right))
        pieces = self._spec.pieces
        made = self._numbers.get(pieces[left] + pieces[right])
        if made is None or not self._spec.scores:
            return None
        return -self._spec.scores[made], made

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


def _split(text: str, pattern: re.Pattern[str]) -> Iterator[str]:
    """The parts of a text that match the pattern, and those between them."""
    end = 0
    seen = text if text.isascii() else "".join(c if c < "\x80" else _class_of(c) for c in text)
    for match in pattern.finditer(seen):
        if match.start() > end:
            yield text[end : match.start()]
        if match.end() > match.start():
            yield text[match.start() : match.end()]
        end = match.end()
    if end < len(text):
        yield text[end:]


def _class_of(c: str) -> str:
    if c.isspace():
        return _SPACE
    if c == "\u017f":  # a long s, which is an s in any case
        return "s"
    return _CLASSES.get(unicodedata.category(c)[0], _OTHER)


@functools.lru_cache(None)
def _letters() -> Tuple[str, ...]:
    """A printable character for each byte: itself, or one above U+00FF."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return tuple(chr(b) if b in plain else chr(next(others)) for b in range(256))


@functools.lru_cache(None)
def _bytes_by_letter() -> Dict[str, int]:
    return {letter: byte for byte, letter in enumerate(_letters())}
