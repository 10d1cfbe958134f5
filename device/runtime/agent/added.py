"""Finds tokens that are added to those of a model, which stand in texts as they are."""

from __future__ import annotations

import re
import unicodedata
from typing import Collection, Iterator, Mapping, Tuple

from edgekit.device.runtime.agent.words import SPACES

# What besides letters, marks and numbers is part of a word: letters in circles and squares.
_CIRCLED = ((0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189))
_JOINERS = "\u200c\u200d"


class AddedTokens:
    """Tokens by what they are in a text: the longest is found. Spaces before `left` and behind
    `right` belong to them; `single` are no parts of words."""

    def __init__(
        self,
        numbers: Mapping[str, int],
        left: Collection[int] = (),
        right: Collection[int] = (),
        single: Collection[int] = (),
    ) -> None:
        self._numbers = {content: number for content, number in numbers.items() if content}
        names = sorted(self._numbers, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        self._left, self._right, self._single = map(frozenset, (left, right, single))

    def found(self, text: str, begin: int = 0, end: int = -1) -> Iterator[Tuple[int, int, int]]:
        """Where each begins and ends in a text, and its number; between `begin` and `end`, but for
        the spaces."""
        free = 0
        for match in self._pattern.finditer(text, begin, len(text) if end < 0 else end):
            start, stop = match.span()
            number = self._numbers[match.group()]
            if number in self._single and not _stands_alone(text, start, stop):
                continue
            if number in self._left:
                start = len(text[:start].rstrip(SPACES))
            if number in self._right:
                stop = len(text) - len(text[stop:].lstrip(SPACES))
            yield max(start, free), stop, number
            free = stop


def _stands_alone(text: str, start: int, stop: int) -> bool:
    around = text[max(start - 1, 0) : start] + text[stop : stop + 1]
    return not any(map(_is_in_word, around))


def _is_in_word(c: str) -> bool:
    kind = unicodedata.category(c)
    return (
        kind[0] in "LM"
        or kind in ("Nd", "Nl", "Pc")
        or c in _JOINERS
        or (kind == "So" and any(first <= ord(c) <= last for first, last in _CIRCLED))
    )
