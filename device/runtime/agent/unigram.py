"""Splits texts by the probabilities of pieces, as SentencePiece's unigram models do (Kudo, 2018),
after the changes to characters that a tokenizer asks for.

Of all ways to split a word, the one with the highest sum of the pieces' scores is taken.
"""

from __future__ import annotations

import re
import struct
import unicodedata
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from edgekit.device.runtime.agent.strict import bad
from edgekit.device.runtime.agent.words import SPACES

UNKNOWN_PENALTY = 10.0  # below the lowest score, for a character without a piece
_BETWEEN = re.compile(f"[{SPACES}]+")
_SHORT = 6  # bytes: shorter clusters of characters are looked up as a whole
_MARKS = ("Mn", "Me", "Mc")
_JOINERS = "\u200c\u200d"
_SKINS = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
_CONTROLS = ("Cc", "Cf", "Zl", "Zp")
_PREPENDED = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f"
_FORMS: Dict[str, Any] = {"nfc": "NFC", "nfd": "NFD", "nfkc": "NFKC", "nfkd": "NFKD"}
# A step of a normalizer, and how many texts follow its name.
STEPS = {
    **dict.fromkeys(_FORMS, 0),
    "lower": 0, "accents": 0, "clusters": 0, "longest": 0, "left": 1, "right": 1,
    "prepend": 1, "replace": 2, "runs": 3,
}  # fmt: skip


def normalized(
    text: str, steps: Sequence[Sequence[str]], characters: Optional[CharacterMap]
) -> str:
    """A text after the steps, each a key of STEPS with its arguments.

    `clusters` replaces `characters` as the library tokenizers does, `longest` as SentencePiece
    does; `left` and `right` drop some characters, or all spaces, there; `accents` drops marks;
    `runs` replaces at least so many repetitions of a text.
    """
    for name, *more in steps:
        if name in _FORMS:
            text = unicodedata.normalize(_FORMS[name], text)
        elif name == "lower":
            text = "".join(c.lower() for c in text)  # no final sigma
        elif name == "accents":
            text = "".join(c for c in text if unicodedata.category(c) not in _MARKS)
        elif name == "clusters" and characters is not None:
            text = "".join(_replaced(cluster, characters) for cluster in _clusters(text))
        elif name == "longest" and characters is not None:
            text = _longest(text, characters)
        elif name == "left":
            text = text.lstrip(more[0] or SPACES)
        elif name == "right":
            text = text.rstrip(more[0] or SPACES)
        elif name == "prepend":
            text = more[0] + text if text else text
        elif name == "replace":
            text = text.replace(more[0], more[1])
        else:
            pattern = f"(?:{re.escape(more[0])}){{{int(more[2])},}}"
            text = re.sub(pattern, lambda _: more[1], text)  # noqa: B023
    return text


def _clusters(text: str) -> List[str]:
    """What a reader sees as characters, as far as those of less than _SHORT bytes go (Unicode
    annex 29)."""
    found: List[str] = []
    for c in text:
        before = found[-1][-1] if found else ""
        joins = unicodedata.category(c) in _MARKS or c in _JOINERS or c in _SKINS
        ends = before == "\r" and c == "\n"
        follows = joins or (before != "" and before in _PREPENDED and not _is_alone(c))
        if ends or (before and follows and not _is_alone(before)):
            found[-1] += c
        else:
            found.append(c)
    return found


def _is_alone(c: str) -> bool:
    return unicodedata.category(c) in _CONTROLS and c not in _JOINERS and c not in _PREPENDED


class CharacterMap:
    """SentencePiece's map of characters to texts: the size of a trie, its units in a double array
    (darts-clone), and the texts, each of which ends with a zero. InputError for others."""

    def __init__(self, data: bytes, where: str) -> None:
        size = int.from_bytes(data[:4], "little")
        if size % 4 or not 0 < size <= len(data) - 4:
            raise bad(where, "a map of characters", f"{len(data)} bytes of something else")
        self._units = struct.unpack_from(f"<{size // 4}I", data, 4)
        self._texts = data[4 + size :]

    def found(self, text: bytes, at: int = 0) -> Iterator[Tuple[int, str]]:
        """The ends of known beginnings of text[at:], the shortest first, with what replaces them;
        nothing where the map is damaged."""
        units = self._units
        place = _offset(units[0])
        for end in range(at, len(text)):
            byte = text[end]
            place ^= byte
            if byte == 0 or place >= len(units) or units[place] & 0x800000FF != byte:
                return
            unit = units[place]
            place ^= _offset(unit)
            if place < len(units) and unit >> 8 & 1:
                start = units[place] & 0x7FFFFFFF
                stop = self._texts.find(b"\0", start)
                yield end + 1, self._texts[start : max(stop, start)].decode("utf-8", "replace")


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 512) >> 6)


def _replaced(cluster: str, characters: CharacterMap) -> str:
    """A cluster becomes what its shortest known beginning does, however much follows that."""
    data = cluster.encode("utf-8", "replace")
    if len(data) < _SHORT:
        for _, made in characters.found(data):
            return made
    each = ((c, next(characters.found(c.encode("utf-8", "replace")), None)) for c in cluster)
    return "".join(c if known is None else known[1] for c, known in each)


def _longest(text: str, characters: CharacterMap) -> str:
    data, at = text.encode("utf-8", "replace"), 0
    made: List[bytes] = []
    while at < len(data):
        end, piece = at + 1, data[at : at + 1]
        for found, replaced in characters.found(data, at):
            end, piece = found, replaced.encode("utf-8")
        made.append(piece)
        at = end
    return b"".join(made).decode("utf-8", "replace")


class Unigram:
    """The pieces of words by `numbers` of pieces and their `scores`."""

    def __init__(
        self,
        numbers: Mapping[str, int],
        scores: Sequence[float],
        otherwise: Callable[[str], List[int]],
    ) -> None:
        """`otherwise`: the numbers for characters that no piece has."""
        self._scores: Dict[str, Tuple[float, int]] = {
            piece: (scores[number], number) for piece, number in numbers.items() if piece
        }
        self._most = max(map(len, self._scores), default=0)
        self._unknown = min(scores, default=0.0) - UNKNOWN_PENALTY
        self._otherwise = otherwise

    def pieces(self, word: str) -> List[int]:
        """The numbers of the most probable pieces of a word."""
        size = len(word)
        best: List[Tuple[float, int, int]] = [(0.0, -1, -1)] * (size + 1)  # score, begin, number
        for begin in range(size):
            so_far, alone = best[begin][0], False
            for end in range(begin + 1, min(begin + self._most, size) + 1):
                known = self._scores.get(word[begin:end])
                if known is not None:
                    alone = alone or end == begin + 1
                    self._offer(best, end, (so_far + known[0], begin, known[1]))
            if not alone:
                self._offer(best, begin + 1, (so_far + self._unknown, begin, -1))
        return self._path(word, best)

    @staticmethod
    def _offer(best: List[Tuple[float, int, int]], end: int, made: Tuple[float, int, int]) -> None:
        if best[end][1] < 0 or made[0] > best[end][0]:
            best[end] = made

    def _path(self, word: str, best: Sequence[Tuple[float, int, int]]) -> List[int]:
        """Backwards from the end; unknown characters that follow each other count as one."""
        parts: List[List[int]] = []
        end = until = len(word)
        while end > 0:
            _, begin, number = best[end]
            if number >= 0:
                if until > end:
                    parts.append(self._of_unknown(word[end:until]))
                parts.append([number])
                until = begin
            end = begin
        if until > 0:
            parts.append(self._of_unknown(word[:until]))
        return [number for part in reversed(parts) for number in part]

    def _of_unknown(self, text: str) -> List[int]:
        known = self._scores.get(text)
        return self._otherwise(text) if known is None else [known[1]]


def marked_words(text: str, mark: str, split: str, begin: bool) -> List[str]:
    """Words with spaces as a `mark`, which is put before the first one too if `begin`.

    `split`: "spaces" first splits at all spaces, which are dropped; "marks" begins a word at each
    mark; "none" and "text" leave the text whole.
    """
    parts = _BETWEEN.split(text) if split == "spaces" else [text]
    made: List[str] = []
    for part in parts:
        part = part.replace(" ", mark)
        if begin and part and not part.startswith(mark):
            part = mark + part
        words = [part] if split in ("none", "text") else re.split(f"(?={re.escape(mark)})", part)
        made += [word for word in words if word]
    return made
