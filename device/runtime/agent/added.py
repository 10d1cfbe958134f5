"""Finds tokens that are added to those of a model, which stand in texts as they are."""

from __future__ import annotations

import re
import unicodedata
from typing import Collection, Dict, Iterator, Mapping, Set, Tuple

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
        sizes: Dict[str, Set[int]] = {}
        for content in self._numbers:
            sizes.setdefault(content[0], set()).add(len(content))
        # By the first character, since models have thousands: the sizes, the longest first.
        self._sizes = {c: sorted(each, reverse=True) for c, each in sizes.items()}
        self._first = re.compile(
            "[{}]".format("".join(map(re.escape, sizes))) if sizes else r"(?!)"
        )
        self._left, self._right, self._single = map(frozenset, (left, right, single))

    def found(self, text: str, begin: int = 0, end: int = -1) -> Iterator[Tuple[int, int, int]]:
        """Where each begins and ends in a text, and its number; between `begin` and `end`, but for
        the spaces."""
        end = len(text) if end < 0 else end
        free = passed = 0
        for match in self._first.finditer(text, begin, end):
            start = match.start()
            stop = self._end_of(text, start, end) if start >= passed else 0
            if not stop:
                continue
            passed = stop
            number = self._numbers[text[start:stop]]
            if number in self._single and not _stands_alone(text, start, stop):
                continue
            while number in self._left and start > free and text[start - 1] in SPACES:
                start -= 1
            while number in self._right and stop < len(text) and text[stop] in SPACES:
                stop += 1
            yield max(start, free), stop, number
            free = stop

    def _end_of(self, text: str, start: int, end: int) -> int:
        """Of the longest token that begins there; 0 if none does."""
        for size in self._sizes[text[start]]:
            if start + size <= end and text[start : start + size] in self._numbers:
                return start + size
        return 0


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
