"""How much of what was read or heard is right: edits, and precision with recall."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_FRAME = 0.01  # seconds


@dataclass(frozen=True)
class Hits:
    """What was found and right, found and wrong, and missed."""

    right: int = 0
    wrong: int = 0
    missed: int = 0

    def __add__(self, other: Hits) -> Hits:
        return Hits(self.right + other.right, self.wrong + other.wrong, self.missed + other.missed)

    @property
    def precision(self) -> float:
        return self.right / max(self.right + self.wrong, 1)

    @property
    def recall(self) -> float:
        return self.right / max(self.right + self.missed, 1)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return 2 * self.right / max(2 * self.right + self.wrong + self.missed, 1)


def edits(right: Sequence[str], found: Sequence[str]) -> int:
    """The fewest insertions, deletions and substitutions that make one of the other (Levenshtein,
    1966)."""
    last = list(range(len(found) + 1))
    for number, wanted in enumerate(right, 1):
        row = [number]
        for at, each in enumerate(found, 1):
            row.append(min(last[at] + 1, row[-1] + 1, last[at - 1] + (wanted != each)))
        last = row
    return last[-1]


def words_of(text: str) -> list[str]:
    """The words in lower case; punctuation parts them, but for apostrophes."""
    kept = (c if c.isalnum() or c == "'" else " " for c in text.lower().replace("\u2019", "'"))
    return [word for word in "".join(kept).split() if word.strip("'")]


def overlap(right: Iterable[tuple[float, float]], found: Iterable[tuple[float, float]]) -> Hits:
    """Compares spans in seconds, in frames of 10 ms."""
    wanted, heard = _frames(right), _frames(found)
    return Hits(len(wanted & heard), len(heard - wanted), len(wanted - heard))


def _frames(spans: Iterable[tuple[float, float]]) -> set[int]:
    return {n for start, end in spans for n in range(round(start / _FRAME), round(end / _FRAME))}
