"""Splits texts into words as language models do, each by patterns of its own.

A text is split by patterns that see each letter beyond ASCII as one of a few letters, and so forth:
Python's own patterns do not know the properties of characters.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Dict, Iterable, Iterator, Tuple

# Unicode's property White_Space; what Python takes for spaces besides separates no tokens.
SPACES = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008"
    "\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
# How a character beyond ASCII is seen. A long s is an s in any case; caseless letters are both.
_SEEN = {
    "Lu": "A", "Lt": "A", "Ll": "a", "Lm": "\xaa", "Lo": "\xaa", "Mn": "\u0300", "Mc": "\u0300",
    "Me": "\u0300", "Nd": "0", "Nl": "0", "No": "0", "Zs": "\t", "Zl": "\t", "Zp": "\t",
    **dict.fromkeys(("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"), "!"),
}  # fmt: skip
_OTHER, _LONG_S = "\xa7", "\u017f"
_L, _M = f"A-Za-z\xaa{_LONG_S}", "\u0300"
_UPPER, _LOWER = f"A-Z\xaa{_M}", f"a-z\xaa{_LONG_S}{_M}"
_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_ANY_CASE = f"(?i:'[s{_LONG_S}]|'t|'re|'ve|'m|'ll|'d)"
_ENDS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = rf"{_CONTRACTIONS}| ?[{_L}]+| ?[0-9]+| ?[^\s{_L}0-9]+|\s+(?!\S)|\s+"
_BEGIN = rf"[^\r\n{_L}0-9]?"
_NEWER = (
    rf"{_ANY_CASE}|{_BEGIN}[{_L}%(marks)s]+|[0-9]{{1,%(digits)s}}"
    rf"| ?[^\s{_L}0-9%(marks)s]+[\r\n]*|{_ENDS}"
)
_CASED = (
    rf"{_BEGIN}[{_UPPER}]*[{_LOWER}]+%(more)s|{_BEGIN}[{_UPPER}]+[{_LOWER}]*%(more)s"
    rf"|[0-9]{{1,%(digits)s}}| ?[^\s{_L}0-9]+[\r\n/]*|{_ENDS}"
)
# What texts are split by, one pattern after the other, each within the parts of the one before.
SPLITS: Dict[str, Tuple[str, ...]] = {
    "none": (),
    "gpt2": (_GPT2,),
    "digits": ("[0-9]", _GPT2),
    "llama3": (_NEWER % {"marks": "", "digits": "3"},),
    "qwen2": (_NEWER % {"marks": "", "digits": "1"},),
    "qwen35": (_NEWER % {"marks": _M, "digits": "1"},),
    "tekken": (_CASED % {"more": "", "digits": "1"},),
    "gpt4o": (_CASED % {"more": f"{_ANY_CASE}?", "digits": "3"},),
    "falcon": (r"[!-/:-@\[-`{-~]+", _GPT2),
}
# The same for words as letters that stand for bytes, among which are a few numbers.
_OF_LETTERS = {"falcon": ("[0-9\xb2\xb3\xb9\xbc\xbd\xbe]+", "[0-9][0-9][0-9]")}


class Words:
    """Splits texts by a key of SPLITS."""

    def __init__(self, split: str) -> None:
        self._of_texts = [re.compile(each, re.ASCII) for each in SPLITS[split]]
        self._of_letters = [re.compile(each) for each in _OF_LETTERS.get(split, ())]

    def of_text(self, text: str) -> Iterable[str]:
        words: Iterable[str] = [text]
        for pattern in self._of_texts:
            words = [part for word in words for part in _parts(word, seen_as(word), pattern)]
        return words

    def of_letters(self, word: str) -> Iterable[str]:
        """The parts of a word of `text` whose bytes are letters."""
        words: Iterable[str] = [word]
        for pattern in self._of_letters:
            words = [part for each in words for part in _parts(each, each, pattern)]
        return words


def _parts(text: str, seen: str, pattern: re.Pattern[str]) -> Iterator[str]:
    """The parts of a text that match the pattern, and those between them."""
    end = 0
    for match in pattern.finditer(seen):
        if match.start() > end:
            yield text[end : match.start()]
        if match.end() > match.start():
            yield text[match.start() : match.end()]
        end = match.end()
    if end < len(text):
        yield text[end:]


def seen_as(text: str) -> str:
    """A text with a character of its kind for each beyond ASCII."""
    return text if text.isascii() else "".join(c if c < "\x80" else _class_of(c) for c in text)


def _class_of(c: str) -> str:
    if c in (_LONG_S, "\x85"):
        return c if c == _LONG_S else "\t"
    return _SEEN.get(unicodedata.category(c), _OTHER)


@functools.lru_cache(None)
def letters_of_bytes() -> Tuple[str, ...]:
    """A printable character for each byte: itself, or one above U+00FF."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return tuple(chr(b) if b in plain else chr(next(others)) for b in range(256))


@functools.lru_cache(None)
def bytes_of_letters() -> Dict[str, int]:
    return {letter: byte for byte, letter in enumerate(letters_of_bytes())}
