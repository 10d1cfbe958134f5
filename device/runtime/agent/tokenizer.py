"""Splits texts into the tokens of a model: WordPiece, as BERT has it (Devlin et al., 2018).

A word becomes the longest known piece that it begins with, then the longest one that goes on, and
so forth. Texts are first cleaned, lowercased and split at spaces and punctuation, as the tokenizer
says.
"""

from __future__ import annotations

import unicodedata
from typing import Dict, Iterator, List, Sequence, Tuple

from edgekit.device.runtime.agent.added import AddedTokens
from edgekit.device.runtime.agent.strict import bad, each, file_keys, integer
from edgekit.device.runtime.record import Record

SCHEMA = "edgekit.tokenizer/1"
_MOST = 1 << 20  # pieces: models of a hundred languages have half a million
_SPACES = "\t\n\r"
# Blocks of Chinese characters, each of which is a word.
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


class TokenizerSpec(Record):
    """`pieces` are the tokens by number, `special` those that are found in texts as they are.

    `before` and `after` are the tokens around a text, `padding` fills the rest; `unknown` stands
    for words that have no pieces or more than `longest` characters. Pieces that go on a word begin
    with `prefix`. `clean` drops control characters, `accents` drops accents, `ideographs` splits
    Chinese texts into characters. Of the special tokens, spaces before `left` and
    behind `right` belong to these, `single` are no parts of words, and `normalized` are found in
    texts after all this, and change as texts do.
    """

    pieces: Tuple[str, ...]
    special: Tuple[int, ...]
    before: Tuple[int, ...]
    after: Tuple[int, ...]
    unknown: int
    padding: int = 0
    prefix: str = "##"
    longest: int = 100
    clean: bool = True
    lower: bool = True
    accents: bool = True
    ideographs: bool = True
    left: Tuple[int, ...] = ()
    right: Tuple[int, ...] = ()
    single: Tuple[int, ...] = ()
    normalized: Tuple[int, ...] = ()


def tokenizer_of(data: bytes, where: str) -> TokenizerSpec:
    """Checks the file of a release."""
    names = TokenizerSpec.field_names
    keys = file_keys(data, where, SCHEMA, names[:-4], names[-4:])
    pieces = keys["pieces"]
    known = isinstance(pieces, list) and all(type(piece) is str for piece in pieces)
    if not known or len(pieces) > _MOST:
        raise bad(f"{where}.pieces", f"a list of at most {_MOST} texts", type(pieces).__name__)
    last = len(pieces) - 1

    def number(value: object, name: str) -> int:
        return integer(value, name, 0, last)

    def flag(name: str) -> bool:
        if not isinstance(keys[name], bool):
            raise bad(f"{where}.{name}", "true or false", keys[name])
        return bool(keys[name])

    return TokenizerSpec(
        tuple(pieces),
        each(keys["special"], f"{where}.special", number),
        each(keys["before"], f"{where}.before", number),
        each(keys["after"], f"{where}.after", number),
        number(keys["unknown"], f"{where}.unknown"),
        number(keys["padding"], f"{where}.padding"),
        _piece(keys["prefix"], f"{where}.prefix"),
        integer(keys["longest"], f"{where}.longest", 1, 1 << 20),
        flag("clean"),
        flag("lower"),
        flag("accents"),
        flag("ideographs"),
        *(each(keys.get(name, ()), f"{where}.{name}", number) for name in names[-4:]),
    )


def _piece(raw: object, where: str) -> str:
    """Returns a piece, which may be any characters: it is never shown."""
    if not isinstance(raw, str):
        raise bad(where, "text", raw)
    return raw


class Tokenizer:
    """`spec` prepared for look-ups."""

    def __init__(self, spec: TokenizerSpec) -> None:
        self._spec = spec
        self._numbers: Dict[str, int] = {}
        for number, piece in enumerate(spec.pieces):
            if number not in spec.single:  # such a word is no part of others
                self._numbers.setdefault(piece, number)
        later = {number: spec.pieces[number] for number in spec.normalized}
        first = {spec.pieces[i]: i for i in reversed(spec.special) if i not in later}
        rules = spec.left, spec.right, spec.single
        self._first = AddedTokens(first, *rules)
        contents = {_normalized(later[i], spec): i for i in reversed([*later])}
        self._later = AddedTokens(contents, *rules)

    def tokens(self, value: str, most: int) -> List[int]:
        """The numbers of at most `most` tokens of a text, with those around it; what is longer is
        cut."""
        spec = self._spec
        room = max(most - len(spec.before) - len(spec.after), 0)
        found: List[int] = []
        for piece in self._all(value):
            if len(found) == room:
                break
            found.append(piece)
        return [*spec.before, *found, *spec.after][:most]

    def padded(self, value: str, length: int) -> Tuple[List[int], List[int]]:
        """The tokens of a text, padded to `length`, and a mask with 1 for each that counts."""
        found = self.tokens(value, length)
        rest = length - len(found)
        return found + [self._spec.padding] * rest, [1] * len(found) + [0] * rest

    def _all(self, value: str) -> Iterator[int]:
        for part, number in _apart(value, self._first):
            if number >= 0:
                yield number
                continue
            for text, later in _apart(_normalized(part, self._spec), self._later):
                if later >= 0:
                    yield later
                    continue
                for word in _words(text):
                    yield from self._pieces(word)

    def _pieces(self, word: str) -> Sequence[int]:
        spec, found, start = self._spec, [], 0
        if len(word) > spec.longest:
            return [spec.unknown]
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = word[start:end] if start == 0 else spec.prefix + word[start:end]
                number = self._numbers.get(piece)
                if number is not None:
                    break
            else:
                return [spec.unknown]
            found.append(number)
            start = end
        return found


def _apart(text: str, added: AddedTokens) -> Iterator[Tuple[str, int]]:
    """The parts of a text, each with the number of a token, or -1."""
    end = 0
    for start, stop, number in added.found(text):
        yield text[end:start], -1
        yield text[start:stop], number
        end = stop
    yield text[end:], -1


def _normalized(value: str, spec: TokenizerSpec) -> str:
    if spec.clean:
        value = "".join(" " if _is_space(c) else c for c in value if not _is_control(c))
    if spec.ideographs:
        value = "".join(f" {c} " if _is_ideograph(c) else c for c in value)
    if spec.accents:
        parts = unicodedata.normalize("NFD", value)
        value = "".join(c for c in parts if unicodedata.category(c) != "Mn")
    if spec.lower:  # by character: str.lower() takes a sigma at the end of a word for another one
        value = "".join(c.lower() for c in value)
    return value


def _words(value: str) -> Iterator[str]:
    """Runs of characters between spaces, with each punctuation mark alone."""
    word: List[str] = []
    for c in value:
        if not (_is_space(c) or _is_mark(c)):
            word.append(c)
            continue
        if word:
            yield "".join(word)
            word = []
        if not _is_space(c):
            yield c
    if word:
        yield "".join(word)


def _is_space(c: str) -> bool:
    return c in _SPACES or (c.isspace() and not "\x1c" <= c <= "\x1f")


def _is_control(c: str) -> bool:
    if c in _SPACES:
        return False
    return c in "\0\ufffd" or unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs")


def _is_ideograph(c: str) -> bool:
    return c > "\u33ff" and any(first <= ord(c) <= last for first, last in _IDEOGRAPHS)


def _is_mark(c: str) -> bool:
    if c < "\x80":
        return c.isprintable() and c != " " and not c.isalnum()
    return unicodedata.category(c)[0] == "P"
